package sandboxapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// maxUnixPath is what fits into sockaddr_un on Linux, without the final NUL.
const maxUnixPath = 107

// ErrEndpoint marks an endpoint that is neither "unix:/path" nor "http://host:port".
var ErrEndpoint = errors.New("invalid endpoint")

// NewTransport makes a transport that always goes to endpoint ("unix:/path" or
// "http://host:port"), whatever the host of a request says, and the base URL to
// make requests with. It uses no proxy and never asks for compression, so that
// what passes stays as it is.
func NewTransport(endpoint string) (*http.Transport, *url.URL, error) {
	dial, host, err := dialerOf(endpoint)
	if err != nil {
		return nil, nil, err
	}
	return transportBy(dial), &url.URL{Scheme: "http", Host: host}, nil
}

// dialTimeout is how long a sandbox may take to accept: one on a node that has just died
// says nothing at all.
const dialTimeout = 5 * time.Second

// dialFunc makes a connection.
type dialFunc func(ctx context.Context) (net.Conn, error)

func transportBy(dial dialFunc) *http.Transport {
	return &http.Transport{
		DisableCompression:  true,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     90 * time.Second,
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
	}
}

// Dial connects to an endpoint ("unix:/path" or "http://host:port").
func Dial(ctx context.Context, endpoint string) (net.Conn, error) {
	dial, _, err := dialerOf(endpoint)
	if err != nil {
		return nil, err
	}
	return dial(ctx)
}

// dialerOf gives how an endpoint is dialled, and the host that requests name.
func dialerOf(endpoint string) (dial dialFunc, host string, err error) {
	dialer := net.Dialer{Timeout: dialTimeout}
	if path, ok := strings.CutPrefix(endpoint, "unix:"); ok {
		if !filepath.IsAbs(path) {
			return nil, "", fmt.Errorf("%w: %q: the path of a socket must be absolute", ErrEndpoint, endpoint)
		}
		return func(ctx context.Context) (net.Conn, error) { return dialUnix(ctx, &dialer, path) }, "sandbox", nil
	}
	base, err := url.Parse(endpoint)
	if err != nil || base.Scheme != "http" || base.Port() == "" || strings.Trim(base.Path, "/") != "" {
		return nil, "", fmt.Errorf("%w: %q: want unix:/path or http://host:port", ErrEndpoint, endpoint)
	}
	return func(ctx context.Context) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", base.Host) }, base.Host, nil
}

// dialUnix reaches a socket whose path is too long for a sockaddr_un by way of
// an open descriptor of its directory.
func dialUnix(ctx context.Context, dialer *net.Dialer, path string) (net.Conn, error) {
	if len(path) <= maxUnixPath {
		return dialer.DialContext(ctx, "unix", path)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }() // only read through; nothing to lose
	return dialer.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
}
