package session_test

import (
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/events/session/sessiontest"
)

// overHistories runs a property over every prefix of random legal histories; m is
// the message that led from before to s.
func overHistories(t *testing.T, property func(rt *rapid.T, before session.Phase, s *session.State, history []events.Message)) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) {
		history := sessiontest.Draw(rt, "ev.t1.s.s-1", 2, 80)
		s := session.New()
		for i, m := range history {
			before := s.Phase()
			if err := s.Apply(m); err != nil {
				rt.Fatal(err)
			}
			property(rt, before, s, history[:i+1])
		}
	})
}

// PhaseChanges is all that phases do.
func TestPropertyPhaseChanges(t *testing.T) {
	overHistories(t, func(rt *rapid.T, before session.Phase, s *session.State, h []events.Message) {
		after := s.Phase()
		if before != after && !slices.Contains(session.PhaseChanges[before], after) {
			rt.Fatalf("%q to %q by %s", before, after, h[len(h)-1].Envelope.Types())
		}
		if _, known := session.Moves[after]; !known {
			rt.Fatalf("phase %q has no moves in the table", after)
		}
	})
}

// decoded gives a history's payloads in order.
func decoded(rt *rapid.T, history []events.Message) []session.Payload {
	var ps []session.Payload
	for _, m := range history {
		for _, r := range m.Envelope.Events {
			p, err := session.Decode(r, m.Envelope.Service)
			if err != nil {
				rt.Fatal(err)
			}
			ps = append(ps, p)
		}
	}
	return ps
}

// One turn: the fold's open run is the one started and not ended, and there is at
// most one.
func TestPropertyOneOpenRun(t *testing.T) {
	overHistories(t, func(rt *rapid.T, _ session.Phase, s *session.State, h []events.Message) {
		open := map[string]bool{}
		for _, p := range decoded(rt, h) {
			switch p := p.(type) {
			case session.RunStarted:
				open[p.RunID] = true
			case session.RunInterrupted:
				delete(open, p.RunID)
			case session.RunFinished:
				delete(open, p.RunID)
			case session.RunFailed:
				delete(open, p.RunID)
			}
		}
		if len(open) > 1 {
			rt.Fatalf("%d runs are open", len(open))
		}
		if (s.Run != nil) != (len(open) == 1) || s.Run != nil && !open[s.Run.ID] {
			rt.Fatalf("the fold has %+v open, the log %v", s.Run, open)
		}
		if s.Run != nil && s.Interrupted != nil {
			rt.Fatalf("%s is open while %s is parked", s.Run.ID, s.Interrupted.RunID)
		}
		running := 0
		for _, state := range s.RunIDs {
			if state == session.RunRunning {
				running++
			}
		}
		if running != len(open) {
			rt.Fatalf("%d runs are said to be running", running)
		}
	})
}

// The counts that views and deciders read equal a recount, from the states and
// from the events.
func TestPropertyCallCounts(t *testing.T) {
	overHistories(t, func(rt *rapid.T, _ session.Phase, s *session.State, h []events.Message) {
		open, waiting := 0, 0
		for _, c := range s.Calls {
			if !c.State.Final() {
				open++
			}
			if c.State == session.CallStatePending {
				waiting++
			}
		}
		asked := map[string]bool{}
		for _, p := range decoded(rt, h) {
			switch p := p.(type) {
			case session.CallHumanConfirmRequired:
				asked[p.CallID] = true
			case session.CallApproved:
				delete(asked, p.CallID)
			case session.CallDenied:
				delete(asked, p.CallID)
			case session.CallExpired:
				delete(asked, p.CallID)
			case session.CallCancelled:
				delete(asked, p.CallID)
			case session.CallSuperseded:
				delete(asked, p.CallID)
			}
		}
		if s.OpenCalls() != open || s.Waiting() != waiting || len(asked) != waiting || len(s.CallOrder) != len(s.Calls) {
			rt.Fatalf("the fold counts %d open and %d waiting; a recount gives %d, %d and %d", s.OpenCalls(), s.Waiting(), open, waiting, len(asked))
		}
	})
}

// Deadlines are only of what lives, each at most once.
func TestPropertyDeadlinesOfTheLiving(t *testing.T) {
	overHistories(t, func(rt *rapid.T, _ session.Phase, s *session.State, _ []events.Message) {
		type key struct {
			kind session.DeadlineKind
			key  string
		}
		seen := map[key]bool{}
		for _, d := range s.Deadlines() {
			if seen[key{d.Kind, d.Key}] {
				rt.Fatalf("%+v twice", d)
			}
			seen[key{d.Kind, d.Key}] = true
			c := s.Calls[d.Key]
			ok := !d.At.IsZero() && s.Exists() && !s.Ending && !s.Ended
			switch d.Kind {
			case session.DeadlineIdle, session.DeadlineWaiting:
				ok = ok && s.Phase() == session.PhaseReady && s.Run == nil && !s.RunDue() && d.Service == events.ServiceSession
			case session.DeadlineMax:
				ok = ok && d.At.Equal(s.MaxAt) && d.Service == events.ServiceSession
			case session.DeadlineClaim:
				ok = ok && s.Phase() != session.PhaseReady && d.Service == events.ServiceWorkload
			case session.DeadlineDrain:
				ok = ok && s.Phase() == session.PhaseReady && !s.Workload.DrainingAt.IsZero() && d.Service == events.ServiceWorkload
			case session.DeadlineApproval:
				ok = ok && c != nil && c.State == session.CallStatePending && d.Service == events.ServicePolicy
			case session.DeadlineExecution:
				waits := []session.CallState{session.CallStateAllowed, session.CallStateApproved, session.CallStateDelegated}
				ok = ok && c != nil && slices.Contains(waits, c.State) && d.Service == events.ServicePolicy
			default:
				ok = false
			}
			if !ok {
				rt.Fatalf("%+v of a session that is %s", d, s.Phase())
			}
		}
	})
}

// The fold is a function of the history alone.
func TestPropertyApplyIsDeterministic(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		history := sessiontest.Draw(rt, "ev.t1.s.s-1", 2, 60)
		one, two := session.New(), session.New()
		for _, m := range history {
			if err := one.Apply(m); err != nil {
				rt.Fatal(err)
			}
			// The other is read between the messages, as services do, and gets what
			// another process decoded.
			_, _, _ = two.Phase(), two.Deadlines(), two.RunDue()
			again, err := events.DecodeEnvelope(m.Raw)
			if err != nil {
				rt.Fatal(err)
			}
			if err := two.Apply(events.Message{Subject: m.Subject, Seq: m.Seq, Envelope: again}); err != nil {
				rt.Fatal(err)
			}
		}
		if !reflect.DeepEqual(one, two) {
			rt.Fatalf("two folds of one history differ:\n%+v\n%+v", one, two)
		}
		last := history[len(history)-1]
		if one.N != last.Envelope.LastN() || one.Seq != last.Seq || !one.UpdatedAt.Equal(last.Envelope.Time) {
			rt.Fatalf("the fold is at n %d and sequence %d after %d and %d", one.N, one.Seq, last.Envelope.LastN(), last.Seq)
		}
	})
}

// The histories reach every type of event and every phase, else the properties
// above say less than they seem to. The seeds are fixed.
func TestHistoriesReachEverything(t *testing.T) {
	gen := rapid.Custom(func(rt *rapid.T) []events.Message { return sessiontest.Draw(rt, "ev.t1.s.s-1", 2, 80) })
	types, phases := map[string]int{}, map[session.Phase]int{}
	for seed := range 600 {
		s := session.New()
		for _, m := range gen.Example(seed) {
			if err := s.Apply(m); err != nil {
				t.Fatal(err)
			}
			phases[s.Phase()]++
			for _, r := range m.Envelope.Events {
				types[r.Type]++
			}
		}
	}
	for _, eventType := range session.Types() {
		if types[eventType] == 0 {
			t.Errorf("no history has a %s", eventType)
		}
	}
	for phase := range session.Moves {
		if phases[phase] == 0 {
			t.Errorf("no history is ever %s", phase)
		}
	}
}
