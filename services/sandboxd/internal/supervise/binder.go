package supervise

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
)

// ErrRefused is wrapped by a [Binder] where a bind, or a renewal, is definitely not
// granted. Its text is shown to who asked.
var ErrRefused = errors.New("the bind was refused")

// Binder has a sandbox's bind redeemed and its token renewed. At most one question is
// open at a time; it is given up when its context ends, which is when the sandbox does.
// There are two: the parent's pipe, and the gateway's listener for agents (package
// sidecar).
type Binder interface {
	// Redeem gives the session's grant for a bind that nobody has looked at yet. The grant
	// is for this sandbox. An error that isn't [ErrRefused] says that nothing is known, and
	// that the same bind may be tried again.
	Redeem(ctx context.Context, bind string) (*sandboxapi.Grant, error)
	// Renew gives a fresh token for the bind that was redeemed.
	Renew(ctx context.Context, bind string) (*sandboxapi.Grant, error)
	// Upstream is where Holdfast is for the agent, once a bind was redeemed; it stays.
	Upstream() *Upstream
}

// Upstream is the way to the gateway's listener for agents.
type Upstream struct {
	tr   *http.Transport
	base *url.URL
}

// NewUpstream makes one to "unix:/path" or "http://host:port".
func NewUpstream(endpoint string) (*Upstream, error) {
	tr, base, err := sandboxapi.NewTransport(endpoint)
	if err != nil {
		return nil, err
	}
	return &Upstream{tr: tr, base: base}, nil
}

// RoundTrip sends a request there, whatever host it names; it follows nothing.
func (u *Upstream) RoundTrip(r *http.Request) (*http.Response, error) { return u.tr.RoundTrip(r) }

// URL is the address of a path there.
func (u *Upstream) URL(path string) string { return u.base.JoinPath(path).String() }

// CloseIdle drops connections that nobody uses.
func (u *Upstream) CloseIdle() { u.tr.CloseIdleConnections() }
