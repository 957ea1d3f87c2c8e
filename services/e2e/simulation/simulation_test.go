package simulation

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/invariants"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/policy/policytest"
	"github.com/holdfast-io/holdfast/services/runner/runnertest"
	"github.com/holdfast-io/holdfast/services/session/sessiontest"
)

func minutes(t *rapid.T, from, to int) time.Duration {
	return time.Duration(rapid.IntRange(from, to).Draw(t, "minutes")) * time.Minute
}

func drawTerms(t *rapid.T) session.Terms {
	return session.Terms{
		Kind: "agent", Adapter: "agui", Policy: "p",
		OnIdle:   rapid.SampledFrom([]string{"suspend", "end"}).Draw(t, "on idle"),
		OnLoss:   rapid.SampledFrom([]string{"restart", "restart", "end"}).Draw(t, "on loss"),
		Suspends: rapid.SampledFrom([]bool{true, true, false}).Draw(t, "suspends"),
		Claim:    events.Duration(minutes(t, 1, 2)), Idle: events.Duration(minutes(t, 1, 30)),
		Max: events.Duration(time.Duration(rapid.IntRange(0, 4).Draw(t, "max hours")) * time.Hour), SuspendWhileWaiting: events.Duration(minutes(t, 0, 5)),
	}
}

// actions are all that may happen next.
func (w *world) actions() map[string]func(*rapid.T) {
	client := func(decide decide) {
		_ = w.do(events.ServiceSession, person("alice"), decide) // refused where it isn't legal
	}
	acts := map[string]func(*rapid.T){
		"send": func(t *rapid.T) {
			client(sessiontest.Send{
				Messages: []sessiontest.Message{{ID: w.id("m"), Content: []byte(`"hello"`)}}, RunID: w.id("r"), Requester: "alice",
				WhenBusy: rapid.SampledFrom([]sessiontest.WhenBusy{sessiontest.Queue, sessiontest.Queue, sessiontest.Reject, sessiontest.CancelFirst}).Draw(t, "when busy"),
			}.Decide)
		},
		"suspend": func(*rapid.T) { client(sessiontest.Suspend{}.Decide) },
		"resume":  func(*rapid.T) { client(sessiontest.Resume{}.Decide) },
		"extend": func(t *rapid.T) {
			d := events.Duration(minutes(t, 1, 300))
			client(sessiontest.Extend{Max: &d}.Decide)
		},
		"note activity": func(t *rapid.T) {
			c := sessiontest.NoteActivity{Holder: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "holder")}
			if rapid.Bool().Draw(t, "hold") {
				c.Until = w.now.Add(minutes(t, 0, 90))
			}
			client(c.Decide)
		},
		"cancel a run": w.cancel,
		"answer":       w.answer,
		"agent speaks": w.speak, "agent proposes": w.propose, "agent starts": w.start, "agent completes": w.complete,
		"agent parks":            w.park,
		"all but the agent":      func(*rapid.T) { w.carryOut(func() {}) },
		"all is carried out":     func(*rapid.T) { w.rest() },
		"agent ends its run":     func(*rapid.T) { w.finishRun() },
		"agent fails":            w.failRun,
		"sandbox dies":           func(*rapid.T) { w.die() },
		"workload begins":        func(*rapid.T) { w.settleWorkload(true) },
		"workload finishes":      func(*rapid.T) { w.finish(none) },
		"workload crashes":       func(*rapid.T) { w.finish(crashes) },
		"runner is replaced":     func(*rapid.T) { w.instance, w.dirty[events.ServiceRunner] = w.id("runner"), true },
		"time passes":            func(t *rapid.T) { w.now = w.now.Add(minutes(t, 0, 3)) },
		"deadlines are acted on": func(*rapid.T) { w.due() },
	}
	for _, service := range reactors {
		acts[string(service)+" settles"] = func(*rapid.T) { w.settle(service) }
	}
	// What ends most sessions would, drawn as often as all else, leave none that
	// lives long enough for anything else to happen.
	seldom := func(t *rapid.T, act func()) {
		if rapid.IntRange(0, 7).Draw(t, "seldom") == 0 {
			act()
		}
	}
	acts["terminate"] = func(t *rapid.T) {
		seldom(t, func() { client(sessiontest.Terminate{Reason: "enough"}.Decide) })
	}
	acts["workload fails"] = func(t *rapid.T) { seldom(t, func() { w.finish(fails) }) }
	acts["hours pass"] = func(t *rapid.T) { seldom(t, func() { w.now = w.now.Add(minutes(t, 30, 300)) }) }
	return acts
}

func (w *world) settleWorkload(onlyBegin bool) {
	if w.dirty[events.ServiceWorkload] {
		w.work(onlyBegin)
	}
}

func (w *world) cancel(t *rapid.T) {
	runs := slices.Sorted(maps.Keys(w.state().RunIDs))
	if len(runs) == 0 {
		t.Skip("no run")
	}
	_ = w.do(events.ServiceRunner, person("alice"), runnertest.Cancel(rapid.SampledFrom(runs).Draw(t, "run")))
}

func (w *world) answer(t *rapid.T) {
	call := w.call(t)
	who := rapid.SampledFrom([]string{"alice", "bob", "carol"}).Draw(t, "who")
	a := policytest.Answer{
		CallID: call.ID, Decision: rapid.SampledFrom([]string{"approve", "deny"}).Draw(t, "decision"), Hash: call.ArgsHash,
		By: who, Roles: []string{"approver"},
	}
	if rapid.IntRange(0, 5).Draw(t, "hash") == 0 {
		a.Hash = "another"
	}
	_ = w.do(events.ServicePolicy, person(who), a.Decide)
}

// answerAll answers what is asked, until nothing is.
func (w *world) answerAll() {
	for range maxRounds {
		var asked *session.Call
		for _, id := range w.state().CallOrder {
			if c := w.state().Calls[id]; c.State == session.CallStatePending {
				asked = c
			}
		}
		if asked == nil {
			return
		}
		err := w.do(events.ServicePolicy, person("bob"), policytest.Answer{
			CallID: asked.ID, Decision: "approve", Hash: asked.ArgsHash, By: "bob", Roles: []string{"approver"},
		}.Decide)
		if err != nil {
			w.t.Fatalf("a question that is open refuses bob: %v", err)
		}
		w.rest()
	}
	w.t.Fatalf("questions without an end: %s", w.describe())
}

func (w *world) checkLog() {
	violations, err := invariants.Check(context.Background(), w.log)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, v := range violations {
		w.t.Errorf("%s", v)
	}
	if len(violations) > 0 {
		w.t.FailNow()
	}
}

func TestEverySessionComesToRest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, drawTerms(t))
		t.Repeat(w.actions())
		w.rest()
		w.answerAll()
		if st := w.state(); st.Interrupted != nil || len(st.Queue) > 0 {
			t.Fatalf("all is answered, and turns are left: %s", w.describe())
		}
		w.checkLog()
	})
}

func TestEverySessionCanBeEnded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, drawTerms(t))
		t.Repeat(w.actions())
		if err := w.do(events.ServiceSession, person("alice"), sessiontest.Terminate{}.Decide); err != nil {
			t.Fatalf("terminate refused: %v", err)
		}
		w.rest()
		if !w.state().Ended {
			t.Fatalf("terminated and not ended: %s", w.describe())
		}
		w.checkLog()
	})
}

func TestMaximumAgeEndsEverySession(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		terms := drawTerms(t)
		terms.Max = events.Duration(time.Hour)
		w := newWorld(t, terms)
		t.Repeat(w.actions())
		w.now = w.now.Add(1000 * time.Hour) // everything was down: what is due is due at the start
		w.rest()
		if !w.state().Ended {
			t.Fatalf("older than it may be and not ended: %s", w.describe())
		}
		w.checkLog()
	})
}
