package invoke

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/gateway/internal/auth"
	"github.com/holdfast-io/holdfast/services/gateway/internal/edge"
	"github.com/holdfast-io/holdfast/services/gateway/internal/live"
	"github.com/holdfast-io/holdfast/services/internal/command"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
)

// readyWait is how long a call waits for its sandbox.
const readyWait = 60 * time.Second

// Pattern is where calls come in, for chi.
const Pattern = "/v1/sessions/{id}/invoke/*"

// Config is what calling sandboxes needs. All is required.
type Config struct {
	Commands *command.Client
	Live     *live.Live
	Problems edge.Problems
	Logger   *slog.Logger
}

// Invoker carries calls.
type Invoker struct {
	cfg    Config
	routes *routes
	uses   *uses
	ctx    context.Context
	stop   context.CancelFunc
}

// New makes an Invoker. Stop has to be called.
func New(cfg Config) *Invoker {
	ctx, stop := context.WithCancel(context.Background())
	return &Invoker{
		cfg: cfg, ctx: ctx, stop: stop,
		routes: newRoutes(cfg.Commands), uses: newUses(ctx, cfg.Commands, cfg.Logger),
	}
}

// Seen is told every message of the log: a workload's means that addresses of its
// session may be wrong.
func (i *Invoker) Seen(m events.Message) {
	if !slices.ContainsFunc(m.Envelope.Events, func(r events.Record) bool { return strings.HasPrefix(r.Type, "workload.") }) {
		return
	}
	if a, ok := events.ParseSubject(m.Subject); ok && a.Aggregate == events.AggregateSession {
		i.routes.dropSession(a.Tenant, a.Key)
	}
}

// Stop ends the calls that are still open, WebSockets too, and gives their
// sandboxes back.
func (i *Invoker) Stop() {
	i.stop()
	i.uses.wait()
	i.routes.known.Purge()
}

// ServeHTTP carries one call. The request's principal was admitted before.
func (i *Invoker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	// A WebSocket ends with the gateway, not after it.
	defer context.AfterFunc(i.ctx, cancel)() //nolint:contextcheck // the Invoker's, beside the request's
	r = r.WithContext(ctx)
	to, end, err := i.enter(ctx, chi.URLParam(r, "id"))
	if err != nil {
		i.cfg.Problems.Write(w, r, err)
		return
	}
	defer end()
	path, err := inside(r)
	if err != nil {
		i.cfg.Problems.Write(w, r, err)
		return
	}
	for _, name := range preset {
		w.Header().Del(name)
	}
	proxy := &httputil.ReverseProxy{
		Transport: viaRoute{routes: i.routes, to: to}, FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = "http", "sandbox", "sandbox"
			p.Out.URL.Path, p.Out.URL.RawPath, p.Out.URL.RawQuery = path.decoded, path.raw, p.In.URL.RawQuery
			strip(p.Out.Header, inward.names, inward.prefixes)
		},
		ModifyResponse: func(resp *http.Response) error { harden(resp.Header); return nil },
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			harden(w.Header())
			if _, ok := err.(*problem.Error); !ok { //nolint:errorlint // what isn't ours says too much of the inside
				err = unreachable(err)
			}
			i.cfg.Problems.Write(w, r, err)
		},
		ErrorLog: slog.NewLogLogger(i.cfg.Logger.Handler(), slog.LevelDebug),
	}
	proxy.ServeHTTP(finalOnly{w}, r)
}

// enter waits until the session has a sandbox, resuming it where it is asleep,
// and notes that it is used. By the time that the note is accepted the session may
// have another sandbox, which isn't held then; so it is read again, and where it is
// another one, that is entered.
func (i *Invoker) enter(ctx context.Context, id string) (to target, end func(), err error) {
	who := auth.From(ctx)
	for {
		to, idle, err := i.awake(ctx, who, id)
		if err != nil {
			return target{}, nil, err
		}
		end, err := i.uses.begin(ctx, to, idle)
		if err != nil {
			return target{}, nil, err
		}
		var now target
		err = i.cfg.Live.Session(ctx, who.Tenant, id, func(s *session.State) error {
			now = sandboxOf(who.Tenant, id, s)
			return ready(s)
		})
		if err == nil && now == to {
			return to, end, nil
		}
		end()
		if err != nil {
			return target{}, nil, err
		}
	}
}

// awake waits for a sandbox that is ready, and gives it and the session's idle
// timeout.
func (i *Invoker) awake(ctx context.Context, who auth.Principal, id string) (to target, idle time.Duration, err error) {
	var phase session.Phase
	look := func(s *session.State) error {
		idle, phase = s.Terms.Idle.D(), s.Phase()
		return nil
	}
	if err := i.cfg.Live.Session(ctx, who.Tenant, id, look); err != nil {
		return target{}, 0, err
	}
	if phase == session.PhaseSuspended || phase == session.PhaseSuspending {
		if err := i.resume(ctx, who, id); err != nil {
			return target{}, 0, err
		}
	}
	var refusal error
	err = i.cfg.Live.Wait(ctx, who.Tenant, id, readyWait, func(s *session.State) bool {
		refusal, to = ready(s), sandboxOf(who.Tenant, id, s)
		return refusal == nil || s.Ending || s.Ended
	})
	if err == nil {
		err = refusal
	}
	return to, idle, err
}

// sandboxOf names the sandbox that a session has now.
func sandboxOf(tenant, id string, s *session.State) target {
	return target{tenant: tenant, session: id, generation: s.Workload.Generation, podUID: s.Workload.PodUID}
}

// resume wakes a session. One that somebody else has woken meanwhile is no error.
func (i *Invoker) resume(ctx context.Context, who auth.Principal, id string) error {
	body, err := json.Marshal(struct{}{})
	if err != nil {
		return err
	}
	_, err = i.cfg.Commands.Do(ctx, events.ServiceSession, who.Tenant, verbs.Resume, command.Request{
		Actor: who.Actor(), Roles: who.RoleNames(), Groups: who.Groups, Session: id, Body: body,
	})
	if p := problem.From(err); p != nil && p.Code == api.CodeIllegalTransition {
		return nil
	}
	return err
}

// ready refuses a session that has no sandbox to call, with the moves that it has.
func ready(s *session.State) error {
	phase := s.Phase()
	switch {
	case phase == session.PhaseReady:
		return nil
	case s.Ending || s.Ended:
		return problem.New(api.CodeSessionEnded, "The session is over; create a new one.").In(string(phase))
	}
	moves := make([]string, 0, len(session.Moves[phase]))
	for _, m := range session.Moves[phase] {
		moves = append(moves, string(m))
	}
	return problem.Newf(api.CodeIllegalTransition, "The session is %s and can't be called.", phase).In(string(phase), moves...)
}

// insidePath is the path in the sandbox, decoded and, where that isn't the same,
// as it was sent.
type insidePath struct{ decoded, raw string }

// inside takes the path in the sandbox out of a request's. Dot segments are
// refused: somebody on the way would resolve them into another call.
func inside(r *http.Request) (insidePath, error) {
	cut := func(path string) string {
		for range 5 { // "", v1, sessions, id, invoke
			_, path, _ = strings.Cut(path, "/")
		}
		return "/" + path
	}
	p := insidePath{decoded: cut(r.URL.Path)}
	if r.URL.RawPath != "" {
		p.raw = cut(r.URL.RawPath)
	}
	for part := range strings.SplitSeq(p.decoded, "/") {
		if part == "." || part == ".." {
			return p, problem.New(api.CodeInvalidRequest, "The path has dot segments.").At("path/path", "has dot segments")
		}
	}
	return p, nil
}
