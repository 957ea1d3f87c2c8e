package supervise

import (
	"errors"
	"net/http"
	"net/http/httputil"
	"path"
	"strings"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/throttle"
)

const (
	// agentPrefix is all that an agent can reach.
	agentPrefix = "/v1/agent/"
	// maxRelayBody bounds what an agent sends in one request: more than Holdfast takes,
	// so that it is Holdfast who refuses, and says why. It streams through.
	maxRelayBody = 32 << 20
	// What one agent may ask of Holdfast, so that a flood never reaches the gateway, which
	// all share. An agent that pushes its output sends some 25 batches a second; each that
	// holds keeps one request open for a call.
	relayRate  = 100 // requests a second, for long
	relayBurst = 200 // requests at once, after a rest
	relayOpen  = 64  // requests under way
)

// relay is the agent's way to Holdfast: it adds the session's token, which the
// agent never sees, and drops whatever the agent would claim about itself.
type relay struct {
	grant    func() *sandboxapi.Grant
	upstream func() *Upstream
	proxy    *httputil.ReverseProxy
	throttle *throttle.Throttle
}

// newRelay makes a relay. upstream is asked for only once there is a grant.
func newRelay(grant func() *sandboxapi.Grant, upstream func() *Upstream) *relay {
	r := &relay{grant: grant, upstream: upstream, throttle: throttle.New(relayRate, relayBurst, relayOpen)}
	r.proxy = &httputil.ReverseProxy{
		Transport:      r,
		FlushInterval:  -1, // long polls and streams pass as they come
		Rewrite:        r.rewrite,
		ModifyResponse: func(resp *http.Response) error { resp.Header.Del("Set-Cookie"); return nil },
		ErrorHandler:   relayFailed,
	}
	return r
}

// RoundTrip implements [http.RoundTripper].
func (r *relay) RoundTrip(req *http.Request) (*http.Response, error) {
	return r.upstream().RoundTrip(req)
}

// ServeHTTP implements [http.Handler].
func (r *relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	clean := path.Clean(req.URL.Path)
	switch {
	case clean != strings.TrimSuffix(req.URL.Path, "/") || !strings.HasPrefix(clean, agentPrefix),
		clean == sandboxapi.PathRedeem, clean == sandboxapi.PathRenew: // sandboxd's own
		sandboxapi.NewProblem(http.StatusNotFound, sandboxapi.CodeNotFound, "agents reach "+agentPrefix+" only").Write(w)
		return
	case r.grant() == nil:
		w.Header().Set("Retry-After", "1")
		sandboxapi.NewProblem(http.StatusServiceUnavailable, sandboxapi.CodeNotBound,
			"this sandbox belongs to no session yet").Write(w)
		return
	}
	leave, ok := r.throttle.Enter(w)
	if !ok {
		return
	}
	defer leave()
	req.Body = http.MaxBytesReader(w, req.Body, maxRelayBody)
	r.proxy.ServeHTTP(w, req)
}

func (r *relay) rewrite(p *httputil.ProxyRequest) {
	base := r.upstream().base
	p.SetURL(base)
	p.Out.Host = base.Host
	stripClaims(p.Out.Header)
	p.Out.Header.Set("Authorization", "Bearer "+r.grant().Token)
}

// stripClaims drops the headers by which a request says whose it is.
func stripClaims(h http.Header) {
	for name := range h {
		lower := strings.ToLower(name)
		if lower == "authorization" || lower == "cookie" || lower == "forwarded" ||
			strings.HasPrefix(lower, "x-forwarded-") || strings.HasPrefix(lower, "holdfast-") {
			h.Del(name)
		}
	}
}

func relayFailed(w http.ResponseWriter, _ *http.Request, err error) {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		sandboxapi.NewProblem(http.StatusRequestEntityTooLarge, sandboxapi.CodeTooLarge, err.Error()).Write(w)
		return
	}
	sandboxapi.NewProblem(http.StatusBadGateway, sandboxapi.CodeUpstreamDown, "Holdfast can't be reached: "+err.Error()).Write(w)
}
