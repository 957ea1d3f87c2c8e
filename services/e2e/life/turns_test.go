package life_test

import (
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

func suspended(t *testing.T, h *harness.Holdfast, body api.CreateSession) *api.Session {
	t.Helper()
	s := h.CreateOf("alice", body)
	if body.Message != "" {
		finished(h, s.ID, firstRun(h, s.ID))
	}
	if _, err := h.Client("alice").SuspendSessionWithResponse(h.Context(), s.ID, nil); err != nil {
		t.Fatal(err)
	}
	return s
}

// The message and the resume are one fact: neither is there without the other.
func messageResumes(t *testing.T, h *harness.Holdfast) {
	s := suspended(t, h, api.CreateSession{Runtime: free, Message: "echo kept > note"})
	h.AwaitPhase(s.ID, api.SessionPhaseSuspended)
	run := h.Send("alice", s.ID, "cat note")
	if said := finished(h, s.ID, run); !strings.Contains(said, "kept\n") {
		t.Errorf("said %q", said)
	}
	facts := h.Facts(s.ID)
	for i, f := range facts {
		if m, ok := f.Payload.(session.MessageReceived); ok && m.RunID == run {
			resume, ok := facts[i+1].Payload.(session.ResumeRequested)
			if !ok || resume.Cause != "message" || facts[i+1].Message.Seq != f.Message.Seq {
				t.Errorf("after the message comes %s", facts[i+1].Type)
			}
		}
	}
}

// A suspend that is under way is finished, then the session is resumed for the
// message that came meanwhile.
func messageWhileSuspending(t *testing.T, h *harness.Holdfast) {
	variant(h, "stubborn", func(r *api.RuntimeSpec) {
		// Something of it ignores the request to end, so that suspending takes a while.
		r.Sandbox.Command = []string{"/bin/sh", "-c", "trap '' TERM; /holdfast/sandboxd shell-agent & sleep 600"}
	})
	s := suspended(t, h, api.CreateSession{Runtime: "stubborn", Message: "echo kept > note"})
	if now := h.Session(s.ID); now.Phase != api.SessionPhaseSuspending {
		t.Fatalf("it is %s already", now.Phase)
	}
	run := h.Send("alice", s.ID, "cat note")
	if said := finished(h, s.ID, run); !strings.Contains(said, "kept\n") {
		t.Errorf("said %q", said)
	}
	facts := h.Facts(s.ID)
	order := []string{}
	for _, f := range facts {
		switch f.Type {
		case "session.suspend-requested", "session.resume-requested", "workload.suspended", "workload.resumed":
			order = append(order, f.Type)
		}
	}
	if got := strings.Join(order, " "); got != "session.suspend-requested session.resume-requested workload.suspended workload.resumed" {
		t.Errorf("in order: %s", got)
	}
}

// asking makes a session of runtime shell whose run waits for a person.
func asking(t *testing.T, h *harness.Holdfast) (*api.Session, api.Approval) {
	t.Helper()
	s := h.Create("alice", "touch asked\nls")
	a := h.AwaitQuestion(s.ID)
	h.AwaitRun(s.ID, a.RunID, api.RunStateInterrupted)
	return s, a
}

func messageBehindQuestion(t *testing.T, h *harness.Holdfast) {
	s, a := asking(t, h)
	second := h.Send("alice", s.ID, "echo second")
	h.Approve("bob", a)
	finished(h, s.ID, second)
	started := harness.Of[session.RunStarted](h.Facts(s.ID))
	if len(started) != 3 || started[1].ParentRunID != a.RunID || started[2].RunID != second {
		t.Fatalf("started: %+v", started)
	}
	if said := finished(h, s.ID, started[1].RunID); !strings.Contains(said, "$ touch asked\nexit 0\n$ ls\nasked\n") {
		t.Errorf("the continuation said %q", said)
	}
}

func messageRejected(t *testing.T, h *harness.Holdfast) {
	s, a := asking(t, h)
	_, err := h.Client("alice").SendMessageWithResponse(h.Context(), s.ID, nil, api.SendMessage{Content: "ls", WhenBusy: api.WhenBusyReject})
	harness.Refused(t, err, api.CodeRunBusy)
	h.Approve("bob", a)
	h.Await(s.ID, "no run is open", func(s *api.Session) bool { return s.Run == "" })
	if _, err := h.Client("alice").SendMessageWithResponse(h.Context(), s.ID, nil, api.SendMessage{Content: "ls", WhenBusy: api.WhenBusyReject}); err != nil {
		t.Errorf("reject on a session that isn't busy: %v", err)
	}
}

// The open run is cancelled, its command killed, and the message's run comes next.
func messageCancels(t *testing.T, h *harness.Holdfast) {
	s := h.CreateOf("alice", api.CreateSession{Runtime: free, Message: "sleep 60\ntouch too-far"})
	first := firstRun(h, s.ID)
	h.AwaitFact(s.ID, "the command runs", func(f []harness.Fact) bool { return len(harness.Of[session.CallStarted](f)) == 1 })
	r, err := h.Client("alice").SendMessageWithResponse(h.Context(), s.ID, nil, api.SendMessage{Content: "ls", WhenBusy: api.WhenBusyCancel})
	if err != nil {
		t.Fatal(err)
	}
	if said := finished(h, s.ID, r.JSON202.RunID); strings.Contains(said, "too-far") {
		t.Errorf("what was cancelled went on: %q", said)
	}
	h.AwaitRun(s.ID, first, api.RunStateCancelled)
}

func cancelOpen(t *testing.T, h *harness.Holdfast) {
	s := h.CreateOf("alice", api.CreateSession{Runtime: free, Message: "echo begun\nsleep 60\ntouch too-far"})
	run := firstRun(h, s.ID)
	h.AwaitFact(s.ID, "the command runs", func(f []harness.Fact) bool { return len(harness.Of[session.CallStarted](f)) == 2 })
	for range 2 { // the second changes nothing
		if _, err := h.Client("alice").CancelRunWithResponse(h.Context(), s.ID, run, nil); err != nil {
			t.Fatal(err)
		}
	}
	h.AwaitRun(s.ID, run, api.RunStateCancelled)
	if said := finished(h, s.ID, h.Send("alice", s.ID, "pgrep sleep || echo none; ls")); !strings.Contains(said, "none\n") || strings.Contains(said, "too-far") {
		t.Errorf("after the cancel: %q", said)
	}
	_, err := h.Client("alice").CancelRunWithResponse(h.Context(), s.ID, "r-"+strings.Repeat("a", 20), nil)
	harness.Refused(t, err, api.CodeNotFound)
}

// What a parked run asked is cancelled with it, and can't be answered any more.
func cancelParked(t *testing.T, h *harness.Holdfast) {
	s, a := asking(t, h)
	if _, err := h.Client("alice").CancelRunWithResponse(h.Context(), s.ID, a.RunID, nil); err != nil {
		t.Fatal(err)
	}
	h.AwaitRun(s.ID, a.RunID, api.RunStateCancelled)
	h.Await(s.ID, "nobody is asked any more", func(s *api.Session) bool { return s.Waiting == 0 })
	_, err := h.Decide("bob", a, api.AnswerApprove, "")
	if p := harness.Refused(t, err, api.CodeIllegalTransition); p.Phase != string(api.CallStateCancelled) {
		t.Errorf("refused as %q", p.Phase)
	}
	if said := finished(h, s.ID, h.Send("alice", s.ID, "ls")); strings.Contains(said, "asked") {
		t.Errorf("what was cancelled ran: %q", said)
	}
}

func cancelQueued(t *testing.T, h *harness.Holdfast) {
	s, a := asking(t, h)
	second := h.Send("alice", s.ID, "echo second")
	third := h.Send("alice", s.ID, "echo third")
	if _, err := h.Client("alice").CancelRunWithResponse(h.Context(), s.ID, second, nil); err != nil {
		t.Fatal(err)
	}
	h.AwaitRun(s.ID, second, api.RunStateCancelled)
	h.Approve("bob", a)
	finished(h, s.ID, third)
	for _, r := range harness.Of[session.RunStarted](h.Facts(s.ID)) {
		if r.RunID == second {
			t.Error("the cancelled run was started")
		}
	}
}
