// Package app keeps sessions' sandboxes as they are wanted: it carries effects out
// through a driver, one step at a time, and appends what came of each.
package app

import (
	"context"
	"crypto/ed25519"
	"errors"
	"log/slog"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/policy"
	"github.com/holdfast-io/holdfast/events/runtime"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/events/sweep"
	"github.com/holdfast-io/holdfast/services/internal/serving"
	"github.com/holdfast-io/holdfast/services/workload/internal/decider"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
	"github.com/holdfast-io/holdfast/services/workload/internal/recipe"
)

// Config of an App; see the service's Config.
type Config struct {
	Log   eventlog.Log
	Epoch string
	Copy  eventlog.Copy
	Key   ed25519.PrivateKey
	// Reviewer and Agents are for sandboxes that are Pods, which redeem their binds by way
	// of the gateway: who says which Pod asks, and the address that each bind sends it to.
	// Nil and empty where a sandbox's parent redeems.
	Reviewer Reviewer
	Agents   string
	Logger   *slog.Logger
	Now      func() time.Time
	// Rules are those of the driver, by which a runtime is checked when it is applied.
	Rules recipe.Rules
}

// App executes commands, settles, acts on deadlines, and grants binds.
type App struct {
	cfg      Config
	driver   driver.Driver
	requeue  serving.Requeue
	sessions *eventlog.Store[*session.State]
	runtimes *eventlog.Store[*runtime.State]
	policies *eventlog.Store[*policy.State]
	sweeps   *eventlog.Store[*sweep.State]
}

// New makes an App. The driver comes by UseDriver, because it needs the App as
// its granter first.
func New(cfg Config) *App {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &App{
		cfg: cfg,
		sessions: eventlog.NewStore(eventlog.Config[*session.State]{
			Log: cfg.Log, New: session.New, Service: events.ServiceWorkload, Copy: cfg.Copy, Epoch: cfg.Epoch, Now: cfg.Now,
		}),
		runtimes: eventlog.NewStore(eventlog.Config[*runtime.State]{
			Log: cfg.Log, New: runtime.New, Service: events.ServiceWorkload, Copy: cfg.Copy, Epoch: cfg.Epoch, Now: cfg.Now,
		}),
		policies: eventlog.NewStore(eventlog.Config[*policy.State]{
			Log: cfg.Log, New: policy.New, Copy: cfg.Copy, Epoch: cfg.Epoch, Now: cfg.Now,
		}),
		sweeps: eventlog.NewStore(eventlog.Config[*sweep.State]{
			Log: cfg.Log, New: sweep.New, Service: events.ServiceWorkload, Copy: cfg.Copy, Epoch: cfg.Epoch, Now: cfg.Now,
		}),
	}
}

// UseDriver sets where sandboxes run. Call it once, before anything else.
func (a *App) UseDriver(d driver.Driver) { a.driver = d }

// UseRequeue sets how a session is looked at again. Call it once, before anything
// is settled.
func (a *App) UseRequeue(r serving.Requeue) { a.requeue = r }

// system is the actor of what the service does by itself.
var system = events.Actor{Kind: events.ActorService, ID: string(events.ServiceWorkload)}

// step appends what a carried-out effect means.
func (a *App) step(
	ctx context.Context, tenant, id, cause string, decide eventlog.Decide[*session.State],
) error {
	subject, err := events.SessionSubject(tenant, id)
	if err != nil {
		return err
	}
	_, err = a.sessions.Execute(ctx, subject, eventlog.Command{
		ID: events.RandomID(events.PrefixCommand), Actor: system, Cause: cause,
	}, decide)
	return err
}

// Due acts on a deadline that the view says has passed: a claim's, or that of a sandbox
// that has to leave its place.
func (a *App) Due(ctx context.Context, tenant, id string, d session.Deadline) error {
	w, err := a.look(ctx, tenant, id)
	if err != nil {
		return err
	}
	if d.Kind == session.DeadlineDrain {
		return a.overstayed(ctx, w)
	}
	cause, detail := a.explain(ctx, w)
	return a.step(ctx, tenant, id, "deadline:claim", decider.Due(a.keeps(ctx, w), cause, detail))
}

// explain says what a start has waited for, where the driver knows.
func (a *App) explain(ctx context.Context, w want) (cause, detail string) {
	explainer, ok := a.driver.(driver.Explainer)
	if !ok {
		return decider.CauseTimeout, ""
	}
	t := explainer.Explain(ctx, w.ref)
	switch {
	case t == nil:
		return decider.CauseTimeout, ""
	case t.Cause == driver.CauseSlow:
		return decider.CauseTimeout, t.Detail
	}
	return t.Cause, t.Detail
}

// want is what a step needs of a session.
type want struct {
	action  decider.Action
	ref     driver.Ref
	intent  uint64
	podUID  string
	runtime session.RuntimeRef
	claimAt time.Time
	until   time.Time // the sandbox's backstop; zero for none
	claimed session.Workload
	keep    bool // the workspace, at the release
}

func (a *App) look(ctx context.Context, tenant, id string) (want, error) {
	subject, err := events.SessionSubject(tenant, id)
	if err != nil {
		return want{}, err
	}
	var w want
	err = a.sessions.Read(ctx, subject, func(s eventlog.Snapshot[*session.State]) error {
		st := s.State
		w = want{
			action: decider.Plan(st), intent: st.IntentN, podUID: st.Workload.PodUID, runtime: st.Runtime, claimed: st.Workload,
			keep: decider.KeepsWorkspace(st),
			ref:  driver.Ref{Tenant: tenant, Session: id, Generation: st.Workload.Generation},
		}
		if at, ok := st.ClaimAt(); ok {
			w.claimAt = at
		}
		w.until = backstop(st)
		return nil
	})
	return w, err
}

// backstopAfter is how long after a session's greatest age its cluster may remove its
// sandbox by itself. Until then it is this service's to do, however long it was away.
const backstopAfter = 24 * time.Hour

func backstop(s *session.State) time.Time {
	if s.MaxAt.IsZero() {
		return time.Time{}
	}
	return s.MaxAt.Add(backstopAfter)
}

// spec reads a pinned revision and words it for the driver.
func (a *App) spec(ctx context.Context, tenant string, ref session.RuntimeRef) (driver.RuntimeSpec, error) {
	subject, err := events.SubjectOf(events.AggregateRuntime, tenant, ref.Name)
	if err != nil {
		return driver.RuntimeSpec{}, err
	}
	var spec driver.RuntimeSpec
	err = a.runtimes.Read(ctx, subject, func(s eventlog.Snapshot[*runtime.State]) error {
		rev, ok := s.State.Revision(ref.Revision)
		if !ok {
			return errors.Join(driver.ErrInvalid, errors.New("the session's runtime revision is not in the log"))
		}
		spec = driverSpec(tenant, rev)
		return nil
	})
	return spec, err
}
