package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apispec"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/services/gateway/internal/agentside"
	"github.com/holdfast-io/holdfast/services/gateway/internal/agui"
	"github.com/holdfast-io/holdfast/services/gateway/internal/auth"
	"github.com/holdfast-io/holdfast/services/gateway/internal/edge"
	"github.com/holdfast-io/holdfast/services/gateway/internal/invoke"
	"github.com/holdfast-io/holdfast/services/gateway/internal/rest"
	"github.com/holdfast-io/holdfast/services/gateway/internal/site"
	"github.com/holdfast-io/holdfast/services/gateway/internal/system"
	"github.com/holdfast-io/holdfast/services/internal/command"
)

// publicRoutes are what people and their programs reach.
func (g *Gateway) publicRoutes(problems edge.Problems, operations *rest.API) (http.Handler, error) {
	r, err := g.router(problems, "public")
	if err != nil {
		return nil, err
	}
	guarded := r.With(problems.Guard(g.admit))
	operations.Mount(guarded)
	g.mountStreams(guarded)
	r.Method(http.MethodPost, agui.Pattern, problems.GuardAs("runAgui", g.admit, agui.New(agui.Config{
		Commands: &command.Client{NC: g.cfg.NC}, Live: g.live, Hub: g.hub, Problems: problems, Logger: g.cfg.Logger,
		Decide: func(ctx context.Context, id string, body api.DecideApproval) error {
			_, _, _, err := operations.Decide(ctx, id, body, nil) // the stream tells what came of it
			return err
		},
	})))
	r.Handle(invoke.Pattern, problems.GuardAs("invokeSession", g.admit, g.invoke))
	guarded.Method(http.MethodGet, "/metrics", system.Metrics(g.cfg.Metrics, g.cfg.Logger))
	guarded.Get("/healthz", system.Health)
	guarded.Method(http.MethodGet, "/readyz", system.NewReadiness(g.parts()...))
	if g.cfg.Console != nil {
		console, err := site.New(g.cfg.Console, http.HandlerFunc(problems.NotFound))
		if err != nil {
			return nil, err
		}
		// Not as a route: a pattern that takes everything would take the calls whose
		// method is wrong as well.
		r.NotFound(console.ServeHTTP)
	}
	return r, nil
}

// mountStreams puts the hub's streams on a guarded router.
func (g *Gateway) mountStreams(r chi.Router) {
	r.Get("/v1/sessions/{id}/stream", func(w http.ResponseWriter, r *http.Request) {
		g.hub.ServeSession(w, r, auth.From(r.Context()), chi.URLParam(r, "id"))
	})
	r.Get("/v1/sessions/{id}/replay", func(w http.ResponseWriter, r *http.Request) {
		g.hub.ServeReplay(w, r, auth.From(r.Context()), chi.URLParam(r, "id"))
	})
	r.Get("/v1/stream", func(w http.ResponseWriter, r *http.Request) { g.hub.ServeInbox(w, r, auth.From(r.Context())) })
	r.Get("/v1/ws", func(w http.ResponseWriter, r *http.Request) { g.hub.ServeWebSocket(w, r, auth.From(r.Context())) })
}

// agentRoutes are what agents reach.
func (g *Gateway) agentRoutes(problems edge.Problems, agents *agentside.Agents) (http.Handler, error) {
	r, err := g.router(problems, "agent")
	if err != nil {
		return nil, err
	}
	agents.Mount(r.With(problems.Guard(agents.Admit)))
	return r, nil
}

// router is a router with what every request passes.
func (g *Gateway) router(problems edge.Problems, listener string) (*chi.Mux, error) {
	metrics, err := edge.NewMetrics(g.cfg.Metrics, listener)
	if err != nil {
		return nil, err
	}
	r := chi.NewRouter()
	r.Use(edge.Identify, edge.Headers, edge.Observe(g.cfg.Logger, metrics), problems.Recover)
	r.NotFound(problems.NotFound)
	r.MethodNotAllowed(problems.MethodNotAllowed)
	return r, nil
}

// admit authenticates and authorises a person.
func (g *Gateway) admit(op *apispec.Operation, r *http.Request) (context.Context, error) {
	who, err := g.auth.Admit(op, r)
	if err != nil {
		return nil, err
	}
	if who.Name != "" {
		edge.SetCaller(r.Context(), who.ID())
	}
	return auth.With(r.Context(), who), nil
}

// maxLag is how far the views may be behind before the gateway isn't ready.
const maxLag = 1000

// parts are what has to work for the gateway to be ready.
func (g *Gateway) parts() []system.Part {
	parts := []system.Part{
		{Name: "nats", Check: func(ctx context.Context) error { return g.cfg.NC.FlushWithContext(ctx) }},
		{Name: "log", Check: g.checkLog},
	}
	for _, s := range []events.Service{events.ServiceSession, events.ServiceWorkload, events.ServicePolicy, events.ServiceRunner} {
		parts = append(parts, system.Part{Name: string(s), Check: func(ctx context.Context) error {
			// What nats.go/micro answers for every service that it serves.
			if _, err := g.cfg.NC.RequestWithContext(ctx, "$SRV.PING.holdfast-"+string(s), nil); err != nil {
				return errors.New("the service does not answer")
			}
			return nil
		}})
	}
	if g.cfg.Storage != nil {
		parts = append(parts, system.Part{Name: "storage", Degraded: g.storage})
	}
	return append(parts,
		system.Part{Name: "postgres", Check: func(ctx context.Context) error {
			if _, _, err := g.cfg.Views.Checkpoint(ctx); err != nil {
				return errors.New("the views can't be read")
			}
			return nil
		}},
		system.Part{Name: "projector", Check: g.checkProjector},
	)
}

// storage says what is low, and what is done about it. The gateway stays ready: what
// ends something has to get in.
func (g *Gateway) storage() string {
	braking, fullest := g.cfg.Storage()
	if !braking {
		return ""
	}
	return fmt.Sprintf("%.0f %% of the %s's limit is used: only what ends something is accepted until there is room",
		100*fullest.Share(), fullest.What)
}

// checkLog says whether the log is the one that the gateway started with, and is
// being followed.
func (g *Gateway) checkLog(ctx context.Context) error {
	info, err := g.cfg.Log.Info(ctx)
	switch {
	case err != nil:
		return errors.New("the log can't be read")
	case info.Genesis.Epoch != g.cfg.Epoch:
		return errors.New("the log is another one than at the start: it was restored or made anew")
	case g.hub.Healthy() != nil:
		return errors.New("the log is not followed")
	}
	return nil
}

// checkProjector says whether the views are of this log, and keep up.
func (g *Gateway) checkProjector(ctx context.Context) error {
	epoch, at, err := g.cfg.Views.Checkpoint(ctx)
	if err != nil {
		return errors.New("its position can't be read")
	}
	info, err := g.cfg.Log.Info(ctx)
	switch {
	case err != nil:
		return errors.New("the log can't be read")
	case at == 0 && info.LastSeq <= 1:
		return nil // there is nothing but the genesis yet
	case epoch != info.Genesis.Epoch:
		return errors.New("the views are of another log: rebuild them")
	case at > info.LastSeq:
		return errors.New("the views are ahead of the log: it was emptied, or restored from an older copy")
	case g.cfg.Views.Fits(ctx) != nil:
		return errors.New("the log has something else than the views include: it was restored from an older copy, and went on")
	case info.LastSeq-at > maxLag:
		return fmt.Errorf("%d messages behind the log", info.LastSeq-at)
	}
	return nil
}
