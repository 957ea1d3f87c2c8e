// Package app runs the runner's commands and keeps a driver for each open run
// that is this instance's.
package app

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/output"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/agentinput"
	"github.com/holdfast-io/holdfast/services/internal/command"
	"github.com/holdfast-io/holdfast/services/internal/failpoint"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/reactor"
	"github.com/holdfast-io/holdfast/services/internal/serving"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
	"github.com/holdfast-io/holdfast/services/runner/internal/decider"
	"github.com/holdfast-io/holdfast/services/runner/internal/drive"
)

// Config of an App; see the service's Config.
type Config struct {
	NC     *nats.Conn
	Log    eventlog.Log
	Epoch  string
	Copy   eventlog.Copy
	Output output.Stream
	Logger *slog.Logger
	Now    func() time.Time
}

// App executes commands, settles, and drives.
type App struct {
	cfg      Config
	instance string
	threads  *eventlog.Store[*agentinput.Thread]
	commands command.Client
	driver   *drive.Driver

	mu      sync.Mutex
	drivers map[reactor.Key]*driving
	wg      sync.WaitGroup

	requeue serving.Requeue
	// Set by Background before started is closed.
	started chan struct{}
	base    context.Context // ends with the service
}

// driving is a run under way here.
type driving struct {
	run    string
	cancel context.CancelFunc
}

// threadCache is far below a store's usual size: an entry is a whole conversation,
// which may be many MiB, and only those with a turn under way are needed again soon.
const threadCache = 128

// New makes an App under a fresh instance id.
func New(cfg Config) *App {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	a := &App{
		cfg: cfg, instance: events.RandomID("runner"), drivers: map[reactor.Key]*driving{}, started: make(chan struct{}),
		threads: eventlog.NewStore(eventlog.Config[*agentinput.Thread]{
			Log: cfg.Log, New: agentinput.NewThread, Service: events.ServiceRunner, Copy: cfg.Copy, Epoch: cfg.Epoch, Now: cfg.Now,
			CacheSize: threadCache,
		}),
		commands: command.Client{NC: cfg.NC},
	}
	a.driver = &drive.Driver{Log: a, Calls: a, Output: cfg.Output, Now: cfg.Now}
	return a
}

// UseRequeue sets how a session is looked at again. Call it once, before anything
// is settled.
func (a *App) UseRequeue(r serving.Requeue) { a.requeue = r }

// system is the actor of what the runner does by itself.
var system = events.Actor{Kind: events.ActorService, ID: string(events.ServiceRunner)}

// Handlers gives the service's verbs.
func (a *App) Handlers() map[string]command.Handler {
	return map[string]command.Handler{verbs.CancelRun: a.cancelRun}
}

func (a *App) cancelRun(ctx context.Context, tenant string, req command.Request) (command.Reply, error) {
	body, err := command.Decode[verbs.CancelRunBody](req)
	if err != nil {
		return command.Reply{}, err
	}
	subject, err := events.SessionSubject(tenant, req.Session)
	if err != nil {
		return command.Reply{}, problem.New(api.CodeNotFound, "there is no such session or run in this tenant")
	}
	res, err := a.execute(ctx, subject, eventlog.Command{ID: req.CommandID, Actor: req.Actor, Trace: req.Trace}, decider.Cancel(body.RunID))
	return command.Reply{N: res.N, Seq: res.Seq, Repeated: res.Repeated}, err
}

func (a *App) execute(
	ctx context.Context, subject string, cmd eventlog.Command, decide func(*session.State, time.Time) ([]events.Record, error),
) (eventlog.Result, error) {
	return a.threads.Execute(ctx, subject, cmd, func(t *agentinput.Thread, now time.Time) ([]events.Record, error) {
		return decide(t.State, now)
	})
}

// Step implements drive.Log: one decision of the runner itself.
func (a *App) Step(
	ctx context.Context, tenant, id string, decide func(*session.State, time.Time) ([]events.Record, error),
) (uint64, error) {
	subject, err := events.SessionSubject(tenant, id)
	if err != nil {
		return 0, err
	}
	res, err := a.execute(ctx, subject, step(), decide)
	return res.N, err
}

// step is a command of the runner's own.
func step() eventlog.Command {
	return eventlog.Command{ID: events.RandomID(events.PrefixCommand), Actor: system, Cause: "run"}
}

// Settle decides what is next for a session's turns, until nothing is, and sees
// to it that its open run has a driver. A run is started only in a sandbox that is
// known to run: one whose loss isn't in the log yet, as after a restart of its host,
// would fail a run that can as well wait for the next.
func (a *App) Settle(ctx context.Context, key reactor.Key) error {
	select {
	case <-a.started:
	case <-ctx.Done():
		return ctx.Err()
	}
	subject, err := events.SessionSubject(key.Tenant, key.Session)
	if err != nil {
		return err
	}
	known := "" // the incarnation of which it is known
	for {
		var run, due *session.Run // as the state has them that the decision was made on
		decide := decider.Settle(a.instance)
		done, err := a.execute(ctx, subject, step(), func(s *session.State, now time.Time) ([]events.Record, error) {
			run, due = openRun(s), nil
			records, err := decide(s, now)
			if w := s.Workload; starts(records) && w.PodUID != known {
				due = &session.Run{Generation: w.Generation, PodUID: w.PodUID}
				return nil, err
			}
			return records, err
		})
		switch {
		case err != nil:
			return err
		case due != nil && a.runs(ctx, key, due):
			known = due.PodUID
		case len(done.Records) == 0:
			return a.attend(ctx, key, run)
		default:
			failpoint.Hit("run-settled")
		}
	}
}

// starts says whether a decision is to start a run.
func starts(records []events.Record) bool {
	return slices.ContainsFunc(records, func(r events.Record) bool { return r.Type == session.TypeRunStarted })
}

// sandboxAgain is how soon a sandbox that couldn't be found is looked for again, where
// nothing is heard of it before.
const sandboxAgain = time.Second

// runs says whether the sandbox of a run that is due runs now; else the session is
// looked at again.
func (a *App) runs(ctx context.Context, key reactor.Key, due *session.Run) bool {
	box, err := a.sandbox(ctx, key, due)
	if err == nil {
		box.Close()
		return true
	}
	a.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "run waits for its sandbox", slog.String("session", key.Session), slog.Any("error", err))
	a.requeue.EnqueueAfter(key, sandboxAgain)
	return false
}

// openRun is a copy of the session's open run, nil for none.
func openRun(s *session.State) *session.Run {
	if s.Run == nil {
		return nil
	}
	run := *s.Run
	return &run
}

func (a *App) read(ctx context.Context, key reactor.Key, view func(eventlog.Snapshot[*agentinput.Thread]) error) error {
	subject, err := events.SessionSubject(key.Tenant, key.Session)
	if err != nil {
		return err
	}
	return a.threads.Read(ctx, subject, view)
}

// attend gives the open run a driver here, takes it over from an instance that is
// gone, or passes on that it is to be cancelled.
func (a *App) attend(ctx context.Context, key reactor.Key, run *session.Run) error {
	if run == nil {
		a.stopDriving(key)
		return nil
	}
	if run.CancelRequested {
		// Whoever hears of it passes it on: the driver may be another instance.
		a.passCancel(ctx, key, run)
	}
	if run.Instance != a.instance {
		return a.inherit(ctx, key, run)
	}
	a.startDriving(key, run) //nolint:contextcheck // the driver outlives the step that starts it: it ends with the service
	return nil
}

// inherit takes over from an instance that doesn't answer any more; one that does
// is looked at again later.
func (a *App) inherit(ctx context.Context, key reactor.Key, run *session.Run) error {
	alive, err := a.alive(ctx, run.Instance)
	if err != nil {
		return err
	}
	if alive {
		a.requeue.EnqueueAfter(key, lookAgain)
		return nil
	}
	if _, err := a.Step(ctx, key.Tenant, key.Session, decider.TakeOver(run.ID, run.Instance, a.instance)); err != nil {
		return err
	}
	failpoint.Hit("run-taken-over")
	err = a.read(ctx, key, func(t eventlog.Snapshot[*agentinput.Thread]) error {
		run = openRun(t.State.State)
		return nil
	})
	if err != nil {
		return err
	}
	if run == nil || run.Instance != a.instance {
		return nil
	}
	return a.attend(ctx, key, run)
}

// lookAgain is how soon an instance that drives a run is asked again.
const lookAgain = 3 * time.Second

func pingSubject(instance string) string { return "cmd.runner.instance." + instance + ".ping" }

// alive asks an instance whether it lives. Nobody listening is a definite no; no
// answer in time is not.
func (a *App) alive(ctx context.Context, instance string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err := a.cfg.NC.RequestWithContext(ctx, pingSubject(instance), nil)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, nats.ErrNoResponders):
		return false, nil
	case errors.Is(err, context.DeadlineExceeded):
		return true, nil
	}
	return false, err
}

// passCancel asks the sandbox to end the run. Where it can't be reached, or doesn't
// know the run yet, that is tried again until the run is over: the workload service
// says whether the sandbox is gone, so it is no failure of this reactor's.
func (a *App) passCancel(ctx context.Context, key reactor.Key, run *session.Run) {
	err := a.cancelIn(ctx, key, run)
	if err == nil {
		return
	}
	a.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "cancel not passed on, trying again",
		slog.String("session", key.Session), slog.String("run", run.ID), slog.Any("error", err))
	a.requeue.EnqueueAfter(key, cancelAgain)
}

// cancelAgain is how soon a cancel that wasn't passed on is tried again.
const cancelAgain = time.Second

func (a *App) cancelIn(ctx context.Context, key reactor.Key, run *session.Run) error {
	box, err := a.sandbox(ctx, key, run)
	if err != nil {
		return err
	}
	defer box.Close()
	return box.CancelRun(ctx, run.ID)
}
