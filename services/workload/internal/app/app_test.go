package app_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/eventlog/memlog"
	"github.com/holdfast-io/holdfast/events/invariants"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/command"
	given "github.com/holdfast-io/holdfast/services/internal/decidertest"
	"github.com/holdfast-io/holdfast/services/internal/reactor"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
	"github.com/holdfast-io/holdfast/services/workload/internal/app"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

const epoch = "epoch-1"

var key = reactor.Key{Tenant: given.Tenant, Session: given.Session}

// queue notes what the app wants looked at again.
type queue struct {
	now   []reactor.Key
	later []time.Duration
}

func (q *queue) Enqueue(k reactor.Key)                       { q.now = append(q.now, k) }
func (q *queue) EnqueueAfter(_ reactor.Key, d time.Duration) { q.later = append(q.later, d) }

// world is the app on a log, with a driver that does as it is told.
type world struct {
	t      *testing.T
	log    *memlog.Log
	now    time.Time
	driver *scripted
	queue  *queue
	app    *app.App
	ids    int
	// reviewer and agents are for sandboxes that are Pods, from the next restart on.
	reviewer app.Reviewer
	agents   string
	// logger takes what the app logs, from the next restart on.
	logger *slog.Logger
}

// newWorld has a session that was created, of a runtime that exists.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, log: memlog.New(eventlog.Genesis{LogID: "log", Epoch: epoch}), now: given.Start, driver: newScripted(), queue: &queue{}, logger: slog.New(slog.DiscardHandler)}
	w.restart()
	w.applyRuntime(`{"kind":"agent","sandbox":{"command":["agent"]},"entrypoints":[{"name":"app","port":8000}],
		"workspace":{"path":"/workspace"},"warmPool":{"size":2}}`)
	w.append(session.Created{Owner: "alice", Runtime: session.RuntimeRef{Name: "shell", Revision: 1}, Terms: given.Terms, Config: []byte(`{"a":1}`)})
	t.Cleanup(w.checkLog)
	return w
}

// restart makes a new app, as another process would; the sandboxes live on.
func (w *world) restart() {
	seed := make([]byte, ed25519.SeedSize)
	w.app = app.New(app.Config{
		Log: w.log, Epoch: epoch, Key: ed25519.NewKeyFromSeed(seed), Reviewer: w.reviewer, Agents: w.agents, Logger: w.logger, Now: func() time.Time { return w.now },
	})
	w.driver.granter = w.app
	w.app.UseDriver(w.driver)
	w.app.UseRequeue(w.queue)
}

// append appends what another service decided.
func (w *world) append(payloads ...session.Payload) {
	w.t.Helper()
	service, _ := session.Owner(session.TypeOf(payloads[0]))
	store := eventlog.NewStore(eventlog.Config[*session.State]{Log: w.log, New: session.New, Service: service, Now: func() time.Time { return w.now }})
	w.ids++
	_, err := store.Execute(context.Background(), w.subject(), eventlog.Command{
		ID: events.RandomID("other"), Actor: events.Actor{Kind: events.ActorService, ID: string(service)},
	}, func(*session.State, time.Time) ([]events.Record, error) { return session.Records(service, payloads...) })
	if err != nil {
		w.t.Fatalf("append: %v", err)
	}
}

func (w *world) subject() string {
	subject, err := events.SessionSubject(given.Tenant, given.Session)
	if err != nil {
		w.t.Fatal(err)
	}
	return subject
}

func (w *world) state() *session.State {
	w.t.Helper()
	store := eventlog.NewStore(eventlog.Config[*session.State]{Log: w.log, New: session.New})
	var st *session.State
	if err := store.Read(context.Background(), w.subject(), func(s eventlog.Snapshot[*session.State]) error {
		st = s.State
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
	return st
}

// settle settles, again where that was asked for, until nobody asks any more.
func (w *world) settle() {
	w.t.Helper()
	for range 50 {
		w.queue.later, w.queue.now = nil, nil
		if err := w.app.Settle(context.Background(), key); err != nil {
			w.t.Fatalf("settle: %v", err)
		}
		switch {
		case len(w.queue.later) > 0:
			w.now = w.now.Add(w.queue.later[0])
		case len(w.queue.now) == 0:
			return
		}
	}
	w.t.Fatal("never settled")
}

func (w *world) want(phase session.Phase, generation uint64) {
	w.t.Helper()
	if st := w.state(); st.Phase() != phase || st.Workload.Generation != generation {
		w.t.Fatalf("phase %s, generation %d; want %s, %d", st.Phase(), st.Workload.Generation, phase, generation)
	}
}

func (w *world) checkLog() {
	violations, err := invariants.Check(context.Background(), w.log)
	if err != nil {
		w.t.Error(err)
	}
	for _, v := range violations {
		w.t.Error(v)
	}
}

func (w *world) do(verb string, body string) (command.Reply, error) {
	w.ids++
	return w.app.Handlers()[verb](context.Background(), given.Tenant, command.Request{
		CommandID: events.RandomID("cmd"), Actor: events.Actor{Kind: events.ActorPerson, ID: "alice"}, Session: given.Session,
		Deadline: w.now.Add(time.Minute), Body: []byte(body),
	})
}

func (w *world) applyRuntime(spec string) command.Reply {
	w.t.Helper()
	reply, err := w.do(verbs.RuntimeApply, `{"name":"shell","spec":`+spec+`}`)
	if err != nil {
		w.t.Fatalf("apply runtime: %v", err)
	}
	return reply
}

var ref = driver.Ref{Tenant: given.Tenant, Session: given.Session, Generation: 1}

func TestFromCreateToRelease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.settle()
	w.want(session.PhaseReady, 1)
	w.settle() // looks, and changes nothing
	w.append(session.SuspendRequested{Cause: "request"})
	w.settle()
	w.want(session.PhaseSuspended, 1)
	w.append(session.ResumeRequested{Cause: "request"})
	w.settle()
	w.want(session.PhaseReady, 1)
	if pod := w.state().Workload.PodUID; pod != "pod-2" {
		t.Errorf("resumed as %s", pod)
	}
	w.append(session.Terminated{})
	w.settle()
	w.want(session.PhaseEnding, 1)
	if exist, _ := w.driver.left(); w.state().Workload.Status != session.WorkloadReleased || exist != 0 {
		t.Errorf("%s, %d sandboxes", w.state().Workload.Status, exist)
	}
}

// What may get better is tried again until the claim's deadline, and is no failure
// that would park the session; what can't is said at once, with its cause.
func TestClaimFails(t *testing.T) {
	t.Parallel()
	always := 1000
	for name, tc := range map[string]struct {
		method string
		times  int
		err    error
		cause  string // "" becomes ready
	}{
		"starts at the second try":    {"Claim", 1, driver.ErrStart, ""},
		"binds after many tries":      {"Bind", 20, driver.ErrBindRefused, ""},
		"the log's host was away":     {"Claim", 5, errors.New("unreachable"), ""},
		"died on its way":             {"Ready", 1, driver.ErrNotRunning, ""},
		"never starts":                {"Claim", always, driver.ErrStart, "claim-timeout"},
		"dies again and again":        {"Ready", always, driver.ErrNotRunning, "claim-timeout"},
		"another generation runs":     {"Claim", always, driver.ErrBusy, "claim-timeout"},
		"the entrypoint fails":        {"Ready", 1, driver.ErrEntrypoint, "entrypoint-failed"},
		"no isolation":                {"Claim", 1, &driver.IsolationError{Missing: "user namespaces"}, "isolation-unavailable"},
		"a runtime that nobody runs":  {"Claim", 1, driver.ErrInvalid, "runtime-refused"},
		"no room for it, ever":        {"Claim", 1, &driver.StartError{Cause: driver.CauseQuota, Detail: "pods", Final: true}, "quota-exceeded"},
		"no room so far":              {"Claim", always, &driver.StartError{Cause: driver.CauseUnschedulable}, "unschedulable"},
		"a claim of somebody else's":  {"Claim", 1, driver.ErrForeign, "sandbox-name-taken"},
		"an older intent is no fault": {"Claim", 1, driver.ErrOlderIntent, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.driver.fail(tc.method, tc.times, tc.err)
			for range 20 {
				w.settle50()
				if s := w.state().Workload.Status; s == session.WorkloadReady || s == session.WorkloadFailed {
					break
				}
			}
			st := w.state().Workload
			if tc.cause == "" && st.Status != session.WorkloadReady || tc.cause != "" && (st.Status != session.WorkloadFailed || st.Cause != tc.cause) {
				t.Fatalf("%s %q, want cause %q", st.Status, st.Cause, tc.cause)
			}
			if tc.cause == "claim-timeout" && w.now.Before(st.ClaimDeadline) {
				t.Errorf("given up at %s, before its deadline %s", w.now, st.ClaimDeadline)
			}
		})
	}
}

// settle50 is settle that need not come to an end.
func (w *world) settle50() {
	w.t.Helper()
	for range 50 {
		w.queue.later = nil
		if err := w.app.Settle(context.Background(), key); err != nil {
			w.t.Fatalf("settle: %v", err)
		}
		if len(w.queue.later) == 0 {
			return
		}
		w.now = w.now.Add(w.queue.later[0])
	}
}

// An intent that stays refused is a fault for people, not a loop without an end.
func TestIntentThatStaysRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.driver.intent = 1000
	if err := w.app.Settle(context.Background(), key); !errors.Is(err, driver.ErrOlderIntent) {
		t.Fatalf("%v, want %v", err, driver.ErrOlderIntent)
	}
}

// What happens to the session while an effect is under way decides.
func TestOvertaken(t *testing.T) {
	t.Parallel()
	terminated := []session.Payload{session.Terminated{}}
	for name, tc := range map[string]struct {
		given  func(w *world)
		during string
		append []session.Payload
		phase  session.Phase
		runs   int
	}{
		"terminate while claiming":         {nil, "Claim", terminated, session.PhaseEnding, 0},
		"terminate while binding":          {nil, "Bind", terminated, session.PhaseEnding, 0},
		"terminate while it gets ready":    {nil, "Ready", terminated, session.PhaseEnding, 0},
		"terminate while suspending":       {suspend, "Suspend", terminated, session.PhaseEnding, 0},
		"a message while suspending":       {suspend, "Suspend", []session.Payload{session.ResumeRequested{Cause: "message"}}, session.PhaseReady, 1},
		"terminate while resuming":         {resume, "Resume", terminated, session.PhaseEnding, 0},
		"the claim's deadline while ready": {nil, "Ready", []session.Payload{session.Failed{Generation: 1, Cause: "claim-timeout"}}, session.PhaseEnding, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if tc.given != nil {
				tc.given(w)
			}
			done := false
			w.driver.hooks[tc.during] = func() {
				if !done {
					done = true
					w.append(tc.append...)
				}
			}
			w.settle()
			if !done {
				t.Fatalf("%s was not reached", tc.during)
			}
			if st := w.state(); st.Phase() != tc.phase {
				t.Errorf("%s (%s), want %s", st.Phase(), st.Workload.Status, tc.phase)
			}
			if _, run := w.driver.left(); run != tc.runs {
				t.Errorf("%d sandboxes run, want %d", run, tc.runs)
			}
		})
	}
}

func suspend(w *world) {
	w.settle()
	w.append(session.SuspendRequested{Cause: "request"})
}

func resume(w *world) {
	suspend(w)
	w.settle()
	w.append(session.ResumeRequested{Cause: "request"})
}

// A process that ends in any step leaves what the next one goes on from: one
// sandbox, in its generation.
func TestRestartInEveryStep(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"Claim", "Bind", "Ready", "Suspend", "Resume", "Release"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if method == "Suspend" {
				suspend(w)
			}
			if method == "Resume" {
				resume(w)
			}
			if method == "Release" {
				w.settle()
				w.append(session.Terminated{})
			}
			ctx, cancel := context.WithCancel(context.Background())
			w.driver.hooks[method] = cancel // what follows in this process can't append any more
			_ = w.app.Settle(ctx, key)
			if ctx.Err() == nil {
				t.Fatalf("%s was not reached", method)
			}
			delete(w.driver.hooks, method)
			w.restart()
			w.settle()
			phase, exist := session.PhaseReady, 1
			switch method {
			case "Suspend":
				phase = session.PhaseSuspended
			case "Release":
				phase, exist = session.PhaseEnding, 0
			}
			w.want(phase, 1)
			if n, _ := w.driver.left(); n != exist {
				t.Errorf("%d sandboxes, want %d", n, exist)
			}
		})
	}
}

// A sandbox that dies on its way to ready, with the process that had claimed it for
// example, is claimed again: nothing that was accepted is lost.
func TestDiesOnItsWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithCancel(context.Background())
	w.driver.hooks["Ready"] = cancel
	_ = w.app.Settle(ctx, key)
	delete(w.driver.hooks, "Ready")
	w.want(session.PhaseClaimed, 1)
	gone := w.driver.die()
	w.restart()
	w.watch(gone)
	if len(w.queue.now) == 0 {
		t.Error("nobody looks at the session again")
	}
	w.want(session.PhaseClaimed, 1)
	w.settle()
	w.want(session.PhaseReady, 1)
	if pod := w.state().Workload.PodUID; pod != "pod-2" {
		t.Errorf("ready in %s", pod)
	}
}

// runtimes lists what Watch keeps pools of.
type runtimes struct{}

// watch runs Watch until it has taken the events.
func (w *world) watch(gone ...driver.Event) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	taken := make(chan error)
	for _, e := range gone {
		w.driver.events <- e
	}
	close(w.driver.events) // a closed driver ends Watch after all that it told
	go func() { taken <- w.app.Watch(ctx, runtimes{}) }()
	if err := <-taken; !errors.Is(err, driver.ErrClosed) {
		w.t.Errorf("watch: %v", err)
	}
	w.driver.events = make(chan driver.Event, 8)
}

func TestLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.settle()
	w.watch(w.driver.die())
	w.want(session.PhaseSuspended, 1)
	if st := w.state(); st.Workload.Status != session.WorkloadLost {
		t.Fatalf("%s", st.Workload.Status)
	}
	w.settle()
	if exist, _ := w.driver.left(); exist != 0 {
		t.Errorf("%d sandboxes are left of the lost generation", exist)
	}
	w.append(session.ResumeRequested{Cause: "run"})
	w.settle()
	w.want(session.PhaseReady, 2)
}

// A loss that nobody told of is found when the session is looked at.
func TestVerifyFindsALoss(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.settle()
	w.driver.die()
	w.settle()
	if st := w.state(); st.Workload.Status != session.WorkloadLost {
		t.Errorf("%s", st.Workload.Status)
	}
}

// A resume that comes to nothing is a loss, and its half-started sandbox is no
// orphan.
func TestResumeFails(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		method string
		times  int
		err    error
		cause  string
	}{
		"entrypoint":   {"Ready", 1, driver.ErrEntrypoint, "entrypoint-failed"},
		"gone":         {"Resume", 1, driver.ErrNotFound, "sandbox-died"},
		"never starts": {"Resume", 1000, driver.ErrStart, "claim-timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			resume(w)
			w.driver.fail(tc.method, tc.times, tc.err)
			for range 20 {
				w.settle50()
			}
			if st := w.state().Workload; st.Status != session.WorkloadLost || st.Cause != tc.cause {
				t.Fatalf("%s %q, want lost %q", st.Status, st.Cause, tc.cause)
			}
			if exist, _ := w.driver.left(); exist != 0 {
				t.Errorf("%d sandboxes are left", exist)
			}
			w.driver.faults = map[string][]error{}
			w.append(session.ResumeRequested{Cause: "run"})
			w.settle()
			w.want(session.PhaseReady, 2)
		})
	}
}

// Claims of later generations that come to nothing cost the session its sandbox, in
// the end its life, and never its files.
func TestFailureKeepsTheWorkspace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.settle()
	w.driver.die()
	w.settle()
	w.driver.fail("Claim", 1000, driver.ErrInvalid)
	for _, want := range []session.WorkloadStatus{session.WorkloadLost, session.WorkloadLost, session.WorkloadFailed} {
		w.append(session.ResumeRequested{Cause: "run"})
		w.settle()
		if got := w.state().Workload; got.Status != want || got.Cause != "runtime-refused" {
			t.Fatalf("generation %d: %s %q, want %s", got.Generation, got.Status, got.Cause, want)
		}
	}
	w.append(session.EndRequested{Outcome: session.OutcomeFailed, Cause: "workload failed"})
	w.settle()
	if got := w.state().Workload.Status; got != session.WorkloadReleased {
		t.Fatalf("%s", got)
	}
	if slices.Contains(w.driver.calls, "Release") {
		t.Errorf("the workspace was removed: %v", w.driver.calls)
	}
}

// A volume that is gone is a loss that says so.
func TestResumeWithoutItsWorkspace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	resume(w)
	w.driver.fail("Resume", 1, driver.ErrWorkspaceGone)
	w.settle()
	if got := w.lastLost(); got.Cause != "workspace-gone" || got.WorkspaceKept {
		t.Errorf("lost: %+v", got)
	}
}

// lastLost is the newest loss in the log.
func (w *world) lastLost() session.Lost {
	w.t.Helper()
	info, err := w.log.Info(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	for seq := info.LastSeq; seq > 1; seq-- {
		m, err := w.log.Get(context.Background(), seq)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, r := range m.Envelope.Events {
			if r.Type == session.TypeLost {
				return given.Only[session.Lost](w.t, []events.Record{r})
			}
		}
	}
	w.t.Fatal("nothing was lost")
	return session.Lost{}
}

func TestSuspendOfWhatIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	suspend(w)
	delete(w.driver.boxes, ref)
	w.settle()
	if st := w.state(); st.Workload.Status != session.WorkloadLost || st.Phase() != session.PhaseSuspended {
		t.Errorf("%s, %s", st.Workload.Status, st.Phase())
	}
}

func TestDue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.driver.fail("Claim", 1, driver.ErrStart)
	if err := w.app.Settle(context.Background(), key); err != nil {
		t.Fatal(err)
	}
	w.now = w.state().Workload.ClaimDeadline
	if err := w.app.Due(context.Background(), key.Tenant, key.Session, session.Deadline{Kind: session.DeadlineClaim}); err != nil {
		t.Fatal(err)
	}
	if st := w.state().Workload; st.Status != session.WorkloadFailed || !strings.Contains(st.Cause, "timeout") {
		t.Errorf("%s %q", st.Status, st.Cause)
	}
}
