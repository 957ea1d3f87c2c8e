package baddays_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/eventlog/memlog"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/deadlines"
	"github.com/holdfast-io/holdfast/services/policy/policytest"
	"github.com/holdfast-io/holdfast/services/session/sessiontest"
)

// clock can be stepped while its time passes.
type clock struct{ step atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.step.Load())) }

// timed is a log of sessions whose deadlines are swept by a clock.
type timed struct {
	t      *testing.T
	log    *memlog.Log
	clock  *clock
	stores map[events.Service]*eventlog.Store[*session.State]

	mu    sync.Mutex
	ids   []string
	early []string // deadlines that were handed out before their time
}

func newTimed(t *testing.T) *timed {
	w := &timed{
		t: t, log: memlog.New(eventlog.Genesis{LogID: "l", Epoch: "e"}), clock: &clock{},
		stores: map[events.Service]*eventlog.Store[*session.State]{},
	}
	for _, s := range []events.Service{events.ServiceSession, events.ServiceWorkload, events.ServiceRunner, events.ServicePolicy} {
		w.stores[s] = eventlog.NewStore(eventlog.Config[*session.State]{Log: w.log, New: session.New, Service: s, Now: w.clock.now})
	}
	return w
}

func (w *timed) execute(service events.Service, id string, decide eventlog.Decide[*session.State]) error {
	_, err := w.stores[service].Execute(context.Background(), "ev.t1.s."+id,
		eventlog.Command{ID: events.RandomID("cmd"), Actor: events.Actor{Kind: events.ActorService, ID: string(service)}}, decide)
	return err
}

func (w *timed) say(service events.Service, id string, payloads ...session.Payload) {
	w.t.Helper()
	if err := w.execute(service, id, func(*session.State, time.Time) ([]events.Record, error) {
		return session.Records(service, payloads...)
	}); err != nil {
		w.t.Fatal(err)
	}
}

// lives makes a session that lives for so long.
func (w *timed) lives(id string, age time.Duration) {
	if err := w.execute(events.ServiceSession, id, sessiontest.Create{
		Owner: "alice", Terms: session.Terms{Max: events.Duration(age), OnIdle: "suspend", OnLoss: "restart"},
	}.Decide); err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ids = append(w.ids, id)
}

// asks makes a session that lives for a day and asks a question for so long.
func (w *timed) asks(id string, question time.Duration) {
	now := w.clock.now()
	w.lives(id, 24*time.Hour)
	w.say(events.ServiceSession, id, session.MessageReceived{MessageID: id + "-m", RunID: id + "-r", Content: []byte(`"x"`), Requester: "alice"})
	w.say(events.ServiceWorkload, id, session.ClaimRequested{Generation: 1, Deadline: now.Add(time.Minute)})
	w.say(events.ServiceWorkload, id, session.Claimed{Generation: 1, PodUID: id, Path: "cold"}, session.Ready{Generation: 1, PodUID: id, Path: "cold"})
	w.say(events.ServiceRunner, id, session.RunStarted{RunID: id + "-r", Instance: "i", Generation: 1, PodUID: id})
	call := id + ".c-1"
	w.say(events.ServicePolicy, id,
		session.CallProposed{CallID: call, RunID: id + "-r", Tool: "deploy", Args: []byte(`{}`), ArgsHash: "h", Modes: []string{"park"}},
		session.CallDecided{CallID: call, Decision: "ask"},
		session.CallHumanConfirmRequired{CallID: call, Mode: "park", Deadline: now.Add(question), OnDeadline: "deny"})
	w.say(events.ServiceRunner, id, session.RunInterrupted{RunID: id + "-r", Calls: []string{call}})
}

// Due implements deadlines.Reader, from the log itself.
func (w *timed) Due(ctx context.Context, service events.Service, now time.Time, _ int) ([]deadlines.Due, error) {
	w.mu.Lock()
	ids := slices.Clone(w.ids)
	w.mu.Unlock()
	var due []deadlines.Due
	for _, id := range ids {
		err := w.stores[service].Read(ctx, "ev.t1.s."+id, func(s eventlog.Snapshot[*session.State]) error {
			for _, d := range s.State.Deadlines() {
				if d.Service == service && !d.At.After(now) {
					due = append(due, deadlines.Due{Tenant: "t1", Session: id, Kind: d.Kind, Key: d.Key, At: d.At})
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return due, nil
}

// sweep runs a service's own sweep until ctx ends.
func (w *timed) sweep(ctx context.Context, service events.Service, due func(session.Deadline) eventlog.Decide[*session.State]) {
	err := deadlines.Sweep{
		Reader: w, Service: service, Logger: slog.New(slog.DiscardHandler), Now: w.clock.now,
		Handle: func(_ context.Context, _, id string, d session.Deadline) error {
			if w.clock.now().Before(d.At) {
				w.mu.Lock()
				w.early = append(w.early, id)
				w.mu.Unlock()
			}
			return w.execute(service, id, due(d))
		},
	}.Run(ctx)
	if err != nil {
		w.t.Errorf("sweep of %s: %v", service, err)
	}
}

// ends counts, over the whole log, how often each session's question and age came to
// their end, and wants none to have come before its time as the log has it.
func (w *timed) ends() (questions, ages map[string]int) {
	questions, ages = map[string]int{}, map[string]int{}
	info, err := w.log.Info(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	for seq := uint64(2); seq <= info.LastSeq; seq++ {
		m, err := w.log.Get(context.Background(), seq)
		if err != nil {
			w.t.Fatal(err)
		}
		a, _ := events.ParseSubject(m.Subject)
		for _, r := range m.Envelope.Events {
			p, err := session.Decode(r, m.Envelope.Service)
			if err != nil {
				w.t.Fatal(err)
			}
			switch p := p.(type) {
			case session.CallExpired:
				questions[a.Key]++
				w.inTime(a.Key, "question", m.Envelope.Time, p.Deadline)
			case session.Expired:
				ages[a.Key]++
				w.inTime(a.Key, "age", m.Envelope.Time, p.MaxAt)
			default:
			}
		}
	}
	return questions, ages
}

func (w *timed) inTime(id, what string, decided, deadline time.Time) {
	if decided.Before(deadline) {
		w.t.Errorf("%s: the %s ended at %s, before %s", id, what, decided, deadline)
	}
}

// The clock is stepped by an hour both ways while questions and sessions come to their
// ends. None ends early, none twice, none is lost, and a step forward has what it
// passed over done at once.
func TestClockSteps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newTimed(t)
		ctx, cancel := context.WithCancel(t.Context())
		var sweeps sync.WaitGroup
		sweeps.Go(func() {
			w.sweep(ctx, events.ServiceSession, func(d session.Deadline) eventlog.Decide[*session.State] { return sessiontest.Due(d.Kind) })
		})
		sweeps.Go(func() {
			w.sweep(ctx, events.ServicePolicy, func(d session.Deadline) eventlog.Decide[*session.State] { return policytest.Due(d) })
		})
		defer func() { cancel(); sweeps.Wait() }()
		pass := func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		}
		const each = 12 // questions until 10, 20 … 120 minutes, ages twice as long
		for i := range each {
			at := time.Duration(i+1) * 10 * time.Minute
			w.asks(fmt.Sprintf("s-asks-%02d", i), at)
			w.lives(fmt.Sprintf("s-lives-%02d", i), 2*at)
		}
		want := func(when string, questions, ages int) {
			t.Helper()
			q, a := w.ends()
			if len(q) != questions || len(a) != ages {
				t.Errorf("%s: %d questions and %d sessions have come to their end, want %d and %d", when, len(q), len(a), questions, ages)
			}
			for id, n := range q {
				if n != 1 {
					t.Errorf("%s: the question of %s expired %d times", when, id, n)
				}
			}
			for id, n := range a {
				if n != 1 {
					t.Errorf("%s: %s expired %d times", when, id, n)
				}
			}
		}

		pass(25 * time.Minute)
		want("after 25 minutes", 2, 1)
		w.clock.step.Add(int64(-time.Hour))
		pass(30 * time.Minute)
		want("an hour back, half an hour later", 2, 1)
		pass(40 * time.Minute) // 35 minutes by the clock
		want("back where it was and 10 minutes on", 3, 1)
		w.clock.step.Add(int64(time.Hour))
		pass(2 * time.Second) // 95 minutes by the clock
		want("at once after an hour forward", 9, 4)
		pass(4 * time.Hour)
		want("in the end", each, each)
		if len(w.early) > 0 {
			t.Errorf("handed out before their time: %v", w.early)
		}
	})
}
