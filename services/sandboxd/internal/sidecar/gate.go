package sidecar

import (
	"log/slog"
	"net"
	"net/http"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/internal/sandboxtoken"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/supervise"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/throttle"
)

const (
	// What may be asked without an access token, by those in the Pod and by those outside,
	// each. Probes ask once a second.
	openRate    = 50 // requests a second, for long
	openBurst   = 200
	openAtATime = 64
	// maxHeader bounds a request's header before anything is known of who sends it.
	maxHeader = 16 << 10
)

// gate is the way in: what anybody may ask, and the CONNECT by which the bound session's
// callers reach the sandbox's API.
type gate struct {
	sandbox         *supervise.Sandbox
	verifier        *sandboxtoken.Verifier
	threshold       http.Handler
	admitted        *admitted
	inside, outside *throttle.Throttle
	log             *slog.Logger
}

func newGate(s *supervise.Sandbox, v *sandboxtoken.Verifier, addr net.Addr, log *slog.Logger) *gate {
	g := &gate{
		sandbox: s, verifier: v, admitted: newAdmitted(addr), log: log,
		inside: throttle.New(openRate, openBurst, openAtATime), outside: throttle.New(openRate, openBurst, openAtATime),
	}
	g.threshold = s.Threshold(g.refuse)
	return g
}

// ServeHTTP implements [http.Handler].
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	here := withinPod(r.RemoteAddr, local)
	if r.Method == http.MethodConnect {
		g.connect(w, r, here)
		return
	}
	bounds := g.outside
	if here {
		bounds = g.inside
	}
	leave, ok := bounds.Enter(w)
	if !ok {
		return
	}
	defer leave()
	g.threshold.ServeHTTP(w, r)
}

// refuse answers what needs an access token and came without.
func (g *gate) refuse(w http.ResponseWriter, _ *http.Request) {
	if g.sandbox.Grant() == nil {
		errNotBound.Write(w)
		return
	}
	sandboxapi.NewProblem(http.StatusUnauthorized, sandboxapi.CodeNoAccess,
		"this is reached by a CONNECT with an access token of the workload service").Write(w)
}

var errNotBound = sandboxapi.NewProblem(http.StatusMisdirectedRequest, sandboxapi.CodeNotBound, "this sandbox belongs to no session yet")

// connect makes the connection one to the sandbox's API, for the one session that it is
// bound to. No caller of a session is in the Pod, so whoever tries from there is bounded
// as for everything else.
func (g *gate) connect(w http.ResponseWriter, r *http.Request, here bool) {
	if here {
		leave, ok := g.inside.Enter(w)
		if !ok {
			return
		}
		leave()
	}
	grant := g.sandbox.Grant()
	if grant == nil {
		errNotBound.Write(w)
		return
	}
	claims, refusal, err := g.verifier.Access(r)
	if refusal != nil {
		g.log.Debug("access refused", "err", err)
		refusal.Write(w)
		return
	}
	if claims != (sandboxtoken.Claims{Tenant: grant.Tenant, Session: grant.Session, Generation: grant.Generation, PodUID: grant.PodUID}) {
		sandboxapi.NewProblem(http.StatusMisdirectedRequest, sandboxapi.CodeSandboxGone, "that incarnation of the sandbox doesn't run here").Write(w)
		return
	}
	if conn := sandboxapi.AnswerConnect(w); conn != nil {
		g.admitted.add(conn)
	}
}
