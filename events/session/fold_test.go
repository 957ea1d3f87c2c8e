package session_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
)

// fold applies one message for each payload, a minute apart, each by its owner.
func fold(t *testing.T, payloads ...session.Payload) *session.State {
	t.Helper()
	s := session.New()
	for i, p := range payloads {
		if err := s.Apply(messageOf(t, s, at.Add(time.Duration(i)*time.Minute), p)); err != nil {
			t.Fatalf("%T: %v", p, err)
		}
	}
	return s
}

func messageOf(t *testing.T, s *session.State, when time.Time, p session.Payload) events.Message {
	t.Helper()
	owner, _ := session.Owner(session.TypeOf(p))
	return events.Message{Subject: "ev.t1.s.s-1", Seq: s.Seq + 2, Envelope: events.Envelope{
		Command: "c", Actor: events.Actor{Kind: events.ActorPerson, ID: "alice"}, Service: owner,
		N: s.N + 1, Prev: s.Seq, Time: when, Events: []events.Record{owned(t, p)},
	}}
}

type payloads = []session.Payload

// Stories that the tables begin from.
var (
	created = payloads{session.Created{Owner: "alice", Terms: session.Terms{
		OnIdle: "suspend", OnLoss: "restart", Suspends: true, Idle: events.Duration(15 * time.Minute), Max: events.Duration(8 * time.Hour),
		Claim: events.Duration(time.Minute), SuspendWhileWaiting: events.Duration(2 * time.Minute),
		DrainGrace: events.Duration(5 * time.Minute),
	}}}
	requested = then(created, session.ClaimRequested{Generation: 1, Deadline: at.Add(time.Hour)})
	claimed   = then(requested, session.Claimed{Generation: 1, PodUID: "pod-1"})
	ready     = then(claimed, session.Ready{Generation: 1, PodUID: "pod-1"})
	queued    = then(ready, session.MessageReceived{MessageID: "m-1", RunID: "r-1", Requester: "alice"})
	running   = then(queued, session.RunStarted{RunID: "r-1", Generation: 1, PodUID: "pod-1", Requester: "alice"})
	asked     = then(running, session.CallProposed{CallID: "q", RunID: "r-1"}, session.CallDecided{CallID: "q", Decision: "ask"},
		session.CallHumanConfirmRequired{CallID: "q", Deadline: at.Add(24 * time.Hour)})
	parked    = then(asked, session.RunInterrupted{RunID: "r-1", LastK: 3, Calls: []string{"q"}})
	answered  = then(parked, session.CallVoteCast{CallID: "q", By: "bob", Decision: "approve"}, session.CallApproved{CallID: "q", By: "bob", ExecuteBy: at.Add(25 * time.Hour)})
	suspended = then(ready, session.SuspendRequested{}, session.Suspended{Generation: 1})
)

func then(story payloads, more ...session.Payload) payloads {
	return append(slices.Clone(story), more...)
}

func TestPhase(t *testing.T) {
	for _, c := range []struct {
		name  string
		story payloads
		want  session.Phase
	}{
		{"nothing", nil, ""},
		{"created", created, session.PhasePending},
		{"claim requested", requested, session.PhasePending},
		{"claimed", claimed, session.PhaseClaimed},
		{"ready", ready, session.PhaseReady},
		{"being suspended", then(ready, session.SuspendRequested{}), session.PhaseSuspending},
		{"being suspended, wanted back", then(ready, session.SuspendRequested{}, session.ResumeRequested{}), session.PhaseSuspending},
		{"suspended, wanted back", then(ready, session.SuspendRequested{}, session.ResumeRequested{}, session.Suspended{Generation: 1}), session.PhaseResuming},
		{"suspended", suspended, session.PhaseSuspended},
		{"resuming", then(suspended, session.ResumeRequested{}), session.PhaseResuming},
		{"resumed", then(suspended, session.ResumeRequested{}, session.Resumed{Generation: 1, PodUID: "pod-2"}), session.PhaseReady},
		{"lost: the restart is lazy", then(ready, session.Lost{Generation: 1}), session.PhaseSuspended},
		{"lost while being suspended", then(ready, session.SuspendRequested{}, session.Lost{Generation: 1}), session.PhaseSuspended},
		{"lost, wanted back", then(ready, session.Lost{Generation: 1}, session.ResumeRequested{}), session.PhaseResuming},
		{"a second generation requested", then(ready, session.Lost{Generation: 1}, session.ResumeRequested{}, session.ClaimRequested{Generation: 2}), session.PhaseResuming},
		{"a second generation claimed", then(ready, session.Lost{Generation: 1}, session.ResumeRequested{}, session.ClaimRequested{Generation: 2}, session.Claimed{Generation: 2}), session.PhaseResuming},
		{"lost before it was ever ready, then claimed", then(claimed, session.Lost{Generation: 1}, session.ResumeRequested{}, session.ClaimRequested{Generation: 2}), session.PhaseResuming},
		{"failed", then(requested, session.Failed{Generation: 1}), session.PhaseEnding},
		{"terminated", then(ready, session.Terminated{}), session.PhaseEnding},
		{"terminated and released", then(ready, session.Terminated{}, session.Released{Generation: 1}), session.PhaseEnding},
		{"ended", then(created, session.Terminated{}, session.Ended{Outcome: session.OutcomeTerminated}), session.PhaseEnded},
	} {
		if got := fold(t, c.story...).Phase(); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestRunDue(t *testing.T) {
	for _, c := range []struct {
		name  string
		story payloads
		due   bool
	}{
		{"nothing queued", ready, false},
		{"queued", queued, true},
		{"open", running, false},
		{"parked on a question", parked, false},
		{"queued behind a parked run", then(parked, session.MessageReceived{MessageID: "m-2", RunID: "r-2"}), false},
		{"answered", answered, true},
		{"denied", then(parked, session.CallDenied{CallID: "q", By: "bob"}), true},
		{"expired", then(parked, session.CallExpired{CallID: "q"}), true},
		{"cancelled before it began", then(queued, session.RunFinished{RunID: "r-1", Outcome: "cancelled"}), false},
		{"cancelled while parked", then(parked, session.RunFinished{RunID: "r-1", Outcome: "cancelled"}), false},
		{"continued", then(answered, session.RunStarted{RunID: "r-1b", ParentRunID: "r-1"}), false},
		{"ending", then(queued, session.Terminated{}), false},
	} {
		if got := fold(t, c.story...).RunDue(); got != c.due {
			t.Errorf("%s: due %t", c.name, got)
		}
	}
}

func TestContinuationKeepsItsChain(t *testing.T) {
	s := fold(t, then(answered, session.RunStarted{RunID: "r-1b", ParentRunID: "r-1"}, session.CallProposed{CallID: "q2", RunID: "r-1b"})...)
	if s.Interrupted != nil || s.Run == nil || s.Run.Root != "r-1" || s.RunIDs["r-1"] != session.RunContinued {
		t.Errorf("run %+v, parked %+v, r-1 is %q", s.Run, s.Interrupted, s.RunIDs["r-1"])
	}
	if q2 := s.Calls["q2"]; q2.Root != "r-1" || !s.ChainOpen("r-1") || s.ChainOpen("r-9") {
		t.Errorf("q2 belongs to %q", q2.Root)
	}
	// An interrupt of a run that is not open parks nothing.
	s = fold(t, then(running, session.RunInterrupted{RunID: "r-9", Calls: []string{"q"}})...)
	if s.Interrupted != nil || s.Run == nil {
		t.Errorf("parked %+v, run %+v", s.Interrupted, s.Run)
	}
}

func TestInUse(t *testing.T) {
	now := at.Add(10 * time.Minute)
	note := func(holder string, until time.Time) session.ActivityNoted {
		return session.ActivityNoted{Holder: holder, Until: until}
	}
	for _, c := range []struct {
		name  string
		story payloads
		used  bool
		until time.Time
	}{
		{"unused", ready, false, time.Time{}},
		{"a run is open", running, true, time.Time{}},
		{"held", then(ready, note("a", now.Add(time.Minute))), true, now.Add(time.Minute)},
		{"held by two", then(ready, note("a", now.Add(time.Minute)), note("b", now.Add(time.Second))), true, now.Add(time.Minute)},
		{"held until now", then(ready, note("a", now)), false, now},
		{"released", then(ready, note("a", now.Add(time.Minute)), note("a", time.Time{})), false, time.Time{}},
		{"one of two released", then(ready, note("a", now.Add(time.Minute)), note("b", now.Add(time.Hour)), note("b", time.Time{})), true, now.Add(time.Minute)},
		{"the sandbox is gone", then(ready, note("a", now.Add(time.Minute)), session.Lost{Generation: 1}), false, time.Time{}},
	} {
		if used, until := fold(t, c.story...).InUse(now); used != c.used || !until.Equal(c.until) {
			t.Errorf("%s: %t until %s", c.name, used, until)
		}
	}
}

func TestCallStates(t *testing.T) {
	proposed := then(running, session.CallProposed{CallID: "q", RunID: "r-1", ArgsHash: "h"})
	allowed := then(proposed, session.CallDecided{CallID: "q", Decision: "allow"})
	started := then(allowed, session.CallStarted{CallID: "q", RunID: "r-1", Nonce: "n"})
	for _, c := range []struct {
		name          string
		story         payloads
		want          session.CallState
		open, waiting int
	}{
		{"proposed", proposed, session.CallStateProposed, 1, 0},
		{"allowed", allowed, session.CallStateAllowed, 1, 0},
		{"denied by the policy", then(proposed, session.CallDecided{CallID: "q", Decision: "deny"}), session.CallStateDenied, 0, 0},
		{"asked", asked, session.CallStatePending, 1, 1},
		{"answered, refused", then(asked, session.CallAnswerRefused{CallID: "q"}), session.CallStatePending, 1, 1},
		{"approved", answered, session.CallStateApproved, 1, 0},
		{"denied", then(asked, session.CallDenied{CallID: "q"}), session.CallStateDenied, 0, 0},
		{"expired", then(asked, session.CallExpired{CallID: "q"}), session.CallStateExpired, 0, 0},
		{"cancelled", then(asked, session.CallCancelled{CallID: "q"}), session.CallStateCancelled, 0, 0},
		{"superseded", then(asked, session.CallSuperseded{CallID: "q"}), session.CallStateSuperseded, 0, 0},
		{"started", started, session.CallStateStarted, 1, 0},
		{"completed", then(started, session.CallCompleted{CallID: "q", Nonce: "n"}), session.CallStateCompleted, 0, 0},
		{"lapsed unstarted", then(allowed, session.CallLapsed{CallID: "q", Kind: "unstarted"}), session.CallStateLapsed, 0, 0},
		{"lapsed unfinished", then(started, session.CallLapsed{CallID: "q", Kind: "unfinished"}), session.CallStateLapsed, 0, 0},
	} {
		s := fold(t, c.story...)
		if got := s.Calls["q"].State; got != c.want || s.OpenCalls() != c.open || s.Waiting() != c.waiting || got.Final() != (c.open == 0) {
			t.Errorf("%s: %s, %d open, %d waiting", c.name, got, s.OpenCalls(), s.Waiting())
		}
	}
	s := fold(t, then(asked, session.CallVoteCast{CallID: "q", By: "bob", Decision: "deny", Comment: "no"}, session.CallDenied{CallID: "q", By: "bob"})...)
	if a := s.Calls["q"].Answer; a == nil || a.By != "bob" || a.Decision != "deny" || a.Comment != "no" {
		t.Errorf("the answer is %+v", a)
	}
	if a := fold(t, then(asked, session.CallApproved{CallID: "q", By: "deadline"})...).Calls["q"].Answer; a == nil || a.By != "deadline" || a.Decision != "approve" {
		t.Errorf("the deadline's answer is %+v", a)
	}
}

func TestDeadlines(t *testing.T) {
	minute := func(n int) time.Time { return at.Add(time.Duration(n) * time.Minute) }
	d := func(kind session.DeadlineKind, key string, service events.Service, when time.Time) session.Deadline {
		return session.Deadline{Kind: kind, Key: key, Service: service, At: when}
	}
	maxAge := d(session.DeadlineMax, "", events.ServiceSession, at.Add(8*time.Hour))
	for _, c := range []struct {
		name  string
		story payloads
		want  []session.Deadline
	}{
		{"nothing", nil, nil},
		{"created", created, []session.Deadline{maxAge}},
		{"claim requested", requested, []session.Deadline{maxAge, d(session.DeadlineClaim, "", events.ServiceWorkload, at.Add(time.Hour))}},
		{"ready since minute 3", ready, []session.Deadline{maxAge, d(session.DeadlineIdle, "", events.ServiceSession, minute(3+15))}},
		{"held until minute 30", then(ready, session.ActivityNoted{Holder: "a", Until: minute(30)}), []session.Deadline{maxAge, d(session.DeadlineIdle, "", events.ServiceSession, minute(30+15))}},
		{
			"its place is to be left since minute 4", then(ready, session.Draining{Generation: 1, PodUID: "pod-1"}),
			[]session.Deadline{
				maxAge, d(session.DeadlineIdle, "", events.ServiceSession, minute(4)), d(session.DeadlineDrain, "", events.ServiceWorkload, minute(4+5)),
			},
		},
		{
			"its place is to be left, and isn't any more",
			then(ready, session.Draining{Generation: 1, PodUID: "pod-1"}, session.Stayed{Generation: 1, PodUID: "pod-1"}),
			[]session.Deadline{maxAge, d(session.DeadlineIdle, "", events.ServiceSession, minute(3+15))},
		},
		{
			"its place is to be left since minute 6, in a run",
			then(running, session.Draining{Generation: 1, PodUID: "pod-1"}, session.Stayed{Generation: 1, PodUID: "pod-0"}),
			[]session.Deadline{maxAge, d(session.DeadlineDrain, "", events.ServiceWorkload, minute(6+5))},
		},
		{
			"its place is to be left, and it is put away",
			then(ready, session.Draining{Generation: 1, PodUID: "pod-1"}, session.SuspendRequested{Cause: "draining"}),
			[]session.Deadline{maxAge},
		},
		{
			"its place is to be left, held until minute 30",
			then(ready, session.ActivityNoted{Holder: "a", Until: minute(30)}, session.Draining{Generation: 1, PodUID: "pod-1"}),
			[]session.Deadline{
				maxAge, d(session.DeadlineIdle, "", events.ServiceSession, minute(30)), d(session.DeadlineDrain, "", events.ServiceWorkload, minute(5+5)),
			},
		},
		{
			"the place of an earlier Pod is to be left", then(ready, session.Draining{Generation: 1, PodUID: "pod-0"}),
			[]session.Deadline{maxAge, d(session.DeadlineIdle, "", events.ServiceSession, minute(3+15))},
		},
		{"a run is due", queued, []session.Deadline{maxAge}},
		{"a run is open", running, []session.Deadline{maxAge}},
		{
			"parked at minute 9 on a question", parked, []session.Deadline{
				maxAge, d(session.DeadlineIdle, "", events.ServiceSession, minute(9+15)), d(session.DeadlineWaiting, "", events.ServiceSession, minute(9+2)),
				d(session.DeadlineApproval, "q", events.ServicePolicy, at.Add(24*time.Hour)),
			},
		},
		{"answered", answered, []session.Deadline{maxAge, d(session.DeadlineExecution, "q", events.ServicePolicy, at.Add(25*time.Hour))}},
		{"suspended", suspended, []session.Deadline{maxAge}},
		{"resume asked at minute 6", then(suspended, session.ResumeRequested{}), []session.Deadline{maxAge, d(session.DeadlineClaim, "", events.ServiceWorkload, minute(6+1))}},
		{"extended", then(suspended, session.Extended{MaxAt: new(at.Add(9 * time.Hour))}), []session.Deadline{d(session.DeadlineMax, "", events.ServiceSession, at.Add(9*time.Hour))}},
		{"ending", then(asked, session.Terminated{}), nil},
	} {
		got := fold(t, c.story...).Deadlines()
		if !slices.EqualFunc(got, c.want, func(a, b session.Deadline) bool {
			return a.Kind == b.Kind && a.Key == b.Key && a.Service == b.Service && a.At.Equal(b.At)
		}) {
			t.Errorf("%s:\n%+v\nwant\n%+v", c.name, got, c.want)
		}
	}
}

func TestMoves(t *testing.T) {
	all := []session.Move{session.MoveMessage, session.MoveSuspend, session.MoveResume, session.MoveExtend, session.MoveTerminate}
	for _, story := range []payloads{created, ready, suspended, then(ready, session.Terminated{})} {
		s := fold(t, story...)
		for _, m := range all {
			if got, want := s.May(m), slices.Contains(session.Moves[s.Phase()], m); got != want {
				t.Errorf("%s while %s: %t", m, s.Phase(), got)
			}
		}
	}
	if fold(t, created...).May(session.MoveSuspend) || !fold(t, ready...).May(session.MoveSuspend) || fold(t, suspended...).May(session.MoveSuspend) {
		t.Error("only a ready session can be suspended")
	}
}

func TestApplyRefuses(t *testing.T) {
	for _, subject := range []string{"ev.t1.runtime.a", "ev.genesis", "out.t1.a", "ev.t1.s.a.b", ""} {
		s := session.New()
		m := messageOf(t, s, at, created[0])
		m.Subject = subject
		if err := s.Apply(m); !errors.Is(err, session.ErrNotASession) || s.Exists() {
			t.Errorf("a message of %q: %v", subject, err)
		}
	}
	s := session.New()
	foreign := messageOf(t, s, at, created[0])
	foreign.Envelope.Service = events.ServiceRunner
	var wrong *events.ForeignTypeError
	if err := s.Apply(foreign); !errors.As(err, &wrong) {
		t.Errorf("a message of another service: %v", err)
	}
}

func TestHistory(t *testing.T) {
	h := session.NewHistory()
	s := session.New()
	for i, p := range []session.Payload{
		session.Created{},
		session.MessageReceived{MessageID: "m-1", RunID: "r-1", Content: raw(`"one <1>"`)},
		session.MessageReceived{MessageID: "m-2", RunID: "r-2", Content: raw(`"two"`)},
		session.MessageReceived{MessageID: "m-3", RunID: "r-3", Content: raw(`"three"`)},
		session.RunStarted{RunID: "r-1"},
		session.RunMessageRecorded{RunID: "r-1", MessageID: "a-1", Message: raw(`{"id":"a-1"}`)},
		session.RunInterrupted{RunID: "r-1", State: raw(`{"s":1}`)},
		session.RunFinished{RunID: "r-2", Outcome: "cancelled"},
		session.RunStarted{RunID: "r-1b", ParentRunID: "r-1"},
		session.RunMessageRecorded{RunID: "r-1b", MessageID: "a-2", Message: raw(`{"id":"a-2"}`)},
		session.RunFinished{RunID: "r-1b", Outcome: "success", State: raw(`{"s":2}`)},
		session.RunStarted{RunID: "r-3"},
	} {
		m := messageOf(t, s, at.Add(time.Duration(i)*time.Minute), p)
		if err := errors.Join(s.Apply(m), h.Apply(m)); err != nil {
			t.Fatal(err)
		}
	}
	got := make([]string, 0, len(h.Messages))
	for _, m := range h.Messages {
		got = append(got, string(m))
	}
	want := []string{
		`{"id":"m-1","role":"user","content":"one <1>"}`, `{"id":"a-1"}`, `{"id":"a-2"}`, `{"id":"m-3","role":"user","content":"three"}`,
	}
	if !slices.Equal(got, want) || string(h.AgentState) != `{"s":2}` {
		t.Errorf("the conversation is\n%v\nwith state %s", got, h.AgentState)
	}
}
