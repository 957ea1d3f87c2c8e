package driver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
)

// Client speaks sandboxd's HTTP API as far as drivers need it: health, ready
// and bind. It is bound to one endpoint and keeps no idle connections.
type Client struct {
	http *http.Client
	base string
}

// NewClient returns a client of an endpoint's URL.
func NewClient(endpoint string) *Client {
	path, unix := strings.CutPrefix(endpoint, "unix:")
	transport := &http.Transport{DisableKeepAlives: true}
	base := endpoint
	if unix {
		base = "http://sandbox"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}
	}
	return &Client{http: &http.Client{Transport: transport}, base: base}
}

// readyWait is how long one request for readiness is held open by sandboxd.
const readyWait = 10 * time.Second

// Ready waits until the entrypoint answers. It is ErrEntrypoint when the
// entrypoint failed for good, and ctx's error when ctx ends first.
func (c *Client) Ready(ctx context.Context) (sandboxapi.Health, error) {
	path := sandboxapi.PathReady + "?wait=" + strconv.Itoa(int(readyWait.Seconds()))
	for {
		var health sandboxapi.Health
		status, err := c.do(ctx, http.MethodGet, path, nil, &health)
		switch {
		case err != nil:
			return sandboxapi.Health{}, err
		case health.Entrypoint == sandboxapi.EntrypointFailed:
			return health, fmt.Errorf("%w: %s", ErrEntrypoint, health.Reason)
		case status == http.StatusOK:
			return health, nil
		case status != http.StatusServiceUnavailable:
			return health, fmt.Errorf("sandboxd ready: status %d", status)
		}
		if err := ctx.Err(); err != nil {
			return health, err
		}
	}
}

// Bind hands over a signed bind.
func (c *Client) Bind(ctx context.Context, bind string) (sandboxapi.Health, error) {
	var health sandboxapi.Health
	status, err := c.do(ctx, http.MethodPost, sandboxapi.PathBind, sandboxapi.BindRequest{Bind: bind}, &health)
	switch {
	case err != nil:
		return health, err
	case status == http.StatusConflict || status == http.StatusForbidden:
		return health, fmt.Errorf("%w: status %d", ErrBindRefused, status)
	case status != http.StatusOK:
		return health, fmt.Errorf("sandboxd bind: status %d", status)
	}
	return health, nil
}

// maxAnswer bounds what is read of an answer.
const maxAnswer = 64 << 10

// do sends one request and decodes a JSON answer where there is one.
func (c *Client) do(ctx context.Context, method, path string, body, answer any) (int, error) {
	var payload io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return 0, fmt.Errorf("sandboxd %s: %w", path, err)
		}
		payload = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, payload)
	if err != nil {
		return 0, fmt.Errorf("sandboxd %s: %w", path, err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, fmt.Errorf("sandboxd %s: %w", path, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return resp.StatusCode, fmt.Errorf("sandboxd %s: read answer: %w", path, err)
	}
	var syntax *json.SyntaxError
	if err := json.Unmarshal(raw, answer); err != nil && !(resp.StatusCode >= 300 && errors.As(err, &syntax)) {
		return resp.StatusCode, fmt.Errorf("sandboxd %s: answer: %w", path, err)
	}
	return resp.StatusCode, nil
}
