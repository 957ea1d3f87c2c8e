// Package decidertest is given/when/then for the services' deciders: a session
// given as the events that led to it, and what a decision came to in words that a
// table can hold. It is for tests.
package decidertest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

// Tenant and Session are the given session's.
const (
	Tenant  = "default"
	Session = "s-aaaaaaaaaaaaaaaaaaaa"
)

// Start is when everything given has happened.
var Start = time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)

// Terms are those of a session that can suspend; each timeout differs, so that a
// test that uses the wrong one fails.
var Terms = session.Terms{
	Kind: "agent", Adapter: "agui", Policy: "coder", OnIdle: "suspend", OnLoss: "restart", Suspends: true,
	Claim: events.Duration(time.Minute), Idle: events.Duration(15 * time.Minute),
	Max: events.Duration(8 * time.Hour), SuspendWhileWaiting: events.Duration(2 * time.Minute),
	DrainGrace: events.Duration(30 * time.Second),
}

// Past is what has happened to a session.
type Past []session.Payload

// And gives the past with more of it.
func (p Past) And(more ...session.Payload) Past { return append(slices.Clip(p), more...) }

// The lives of a session, one for each phase and more where a phase has several.
// Ready is in pod-1 of generation 1.
var (
	Nothing    = Past{}
	Pending    = Past{session.Created{Owner: "alice", Runtime: session.RuntimeRef{Name: "shell", Revision: 1}, Terms: Terms, BodyHash: "body"}}
	Requested  = Pending.And(session.ClaimRequested{Generation: 1, Deadline: Start.Add(time.Minute)})
	Claimed    = Requested.And(session.Claimed{Generation: 1, SandboxUID: "box-1", PodUID: "pod-1", Isolation: "none"})
	Ready      = Claimed.And(session.Ready{Generation: 1, SandboxUID: "box-1", PodUID: "pod-1", Isolation: "none"})
	Suspending = Ready.And(session.SuspendRequested{Cause: "request"})
	Suspended  = Suspending.And(session.Suspended{Generation: 1})
	Resuming   = Suspended.And(session.ResumeRequested{Cause: "request"})
	Lost       = Ready.And(session.Lost{Generation: 1, PodUID: "pod-1", Cause: "died"})
	Failed     = Claimed.And(session.Failed{Generation: 1, Cause: "entrypoint-failed"})
	Ending     = Ready.And(session.Terminated{})
	Released   = Ending.And(session.Released{Generation: 1})
	Ended      = Released.And(session.Ended{Outcome: session.OutcomeTerminated})
)

// Phases names one past for each place in a session's life.
var Phases = map[string]Past{
	"none": Nothing, "pending": Pending, "requested": Requested, "claimed": Claimed, "ready": Ready, "suspending": Suspending,
	"suspended": Suspended, "resuming": Resuming, "lost": Lost, "failed": Failed, "ending": Ending, "released": Released, "ended": Ended,
}

// Queued is a message whose run waits.
func Queued(run string) session.Payload {
	return session.MessageReceived{MessageID: "m-" + run, RunID: run, Content: []byte(`"hello"`), Requester: "alice"}
}

// Started is a run that is open in the ready sandbox, driven by instance i-1.
func Started(run string) session.Payload {
	return session.RunStarted{RunID: run, Instance: "i-1", Generation: 1, PodUID: "pod-1", Requester: "alice"}
}

// Running is a ready session with the run r-1 open.
var Running = Ready.And(Queued("r-1"), Started("r-1"))

// Given folds a past into its State.
func Given(t testing.TB, past Past) *session.State {
	t.Helper()
	s := session.New()
	subject, err := events.SessionSubject(Tenant, Session)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range past {
		service, _ := session.Owner(session.TypeOf(p))
		records, err := session.Records(service, p)
		if err != nil {
			t.Fatalf("given %s: %v", session.TypeOf(p), err)
		}
		n := uint64(i + 1)
		err = s.Apply(events.Message{Subject: subject, Seq: n + 1, Envelope: events.Envelope{
			Command: fmt.Sprintf("given-%d", n), Actor: events.Actor{Kind: events.ActorService, ID: string(service)},
			Service: service, N: n, Prev: s.Seq, Time: Start, Events: records,
		}})
		if err != nil {
			t.Fatalf("given %s: %v", session.TypeOf(p), err)
		}
	}
	return s
}

// Outcome words a decision: the types of its events, its refusal's code in
// brackets, or "nothing". Errors that aren't problems stand as they are.
func Outcome(records []events.Record, err error) string {
	var words []string
	for _, r := range records {
		words = append(words, r.Type)
	}
	var p *problem.Error
	switch {
	case errors.As(err, &p):
		words = append(words, "["+string(p.Code)+"]")
	case err != nil:
		words = append(words, "["+err.Error()+"]")
	}
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, " ")
}

// Only gives the one payload of a type among the records, and fails the test where
// there isn't exactly one.
func Only[P session.Payload](t testing.TB, records []events.Record) P {
	t.Helper()
	var found []P
	for _, r := range records {
		service, _ := session.Owner(r.Type)
		p, err := session.Decode(r, service)
		if err != nil {
			t.Fatal(err)
		}
		if p, ok := p.(P); ok {
			found = append(found, p)
		}
	}
	if len(found) != 1 {
		var p P
		t.Fatalf("%d of %T in %s", len(found), p, Outcome(records, nil))
	}
	return found[0]
}

// EveryPhase runs a decision in each of Phases. Want gives its Outcome by the
// phase's name; the phases that it doesn't name have want[""].
func EveryPhase(t *testing.T, decide func(*session.State, time.Time) ([]events.Record, error), want map[string]string) {
	t.Helper()
	for name := range want {
		if _, known := Phases[name]; name != "" && !known {
			t.Fatalf("there is no phase %q", name)
		}
	}
	for name, past := range Phases {
		expected, named := want[name]
		if !named {
			expected = want[""]
		}
		if got := Outcome(decide(Given(t, past), Start)); got != expected {
			t.Errorf("%s: %s, want %s", name, got, expected)
		}
	}
}
