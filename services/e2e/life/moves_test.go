package life_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

func createWaits(t *testing.T, h *harness.Holdfast) {
	s := h.CreateOf("alice", api.CreateSession{Runtime: free, Labels: api.Labels{"team": "search"}})
	if s.Phase != api.SessionPhaseReady || s.Generation != 1 || s.Owner != "user:alice" || s.Labels["team"] != "search" {
		t.Errorf("created as %+v", s)
	}
	if s.Isolation == "" || s.Deadlines.Idle.IsZero() || s.Deadlines.Max.IsZero() {
		t.Errorf("isolation %q, deadlines %+v", s.Isolation, s.Deadlines)
	}
	for _, layer := range []string{"bind", "entrypoint"} {
		if _, ok := s.LayersMs[layer]; !ok {
			t.Errorf("the time of layer %s isn't recorded: %v", layer, s.LayersMs)
		}
	}
	ready := harness.One[session.Ready](h, s.ID)
	if ready.Isolation != s.Isolation || ready.PodUID == "" || ready.SandboxUID == "" || ready.Path == "" {
		t.Errorf("ready: %+v", ready)
	}
}

// An entrypoint has until the claim's deadline to answer.
func slowStart(t *testing.T, h *harness.Holdfast) {
	variant(h, "late", func(r *api.RuntimeSpec) {
		r.Sandbox.Command = []string{"/bin/sh", "-c", "sleep 3; exec /holdfast/sandboxd shell-agent"}
	})
	s := h.CreateOf("alice", api.CreateSession{Runtime: "late", Message: "echo there"})
	if s.Phase != api.SessionPhaseReady || s.LayersMs["entrypoint"] < 2500 {
		t.Errorf("created as %s, layers %v", s.Phase, s.LayersMs)
	}
	finished(h, s.ID, firstRun(h, s.ID))
}

func suspendAndResume(t *testing.T, h *harness.Holdfast) {
	alice := h.Client("alice")
	s := h.CreateOf("alice", api.CreateSession{Runtime: free, Message: "echo kept > note\ncd sub || mkdir sub && cd sub\nexport WHO=me"})
	finished(h, s.ID, firstRun(h, s.ID))
	if _, err := alice.SuspendSessionWithResponse(h.Context(), s.ID, nil); err != nil {
		t.Fatal(err)
	}
	h.AwaitPhase(s.ID, api.SessionPhaseSuspended)
	for _, box := range h.Sandboxes(s.ID) {
		if box.Process.PID != 0 || box.State != "suspended" {
			t.Errorf("a suspended session has a process: %+v", box)
		}
	}
	prefer := "wait=30"
	r, err := alice.ResumeSessionWithResponse(h.Context(), s.ID, &api.ResumeSessionParams{Prefer: &prefer})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.JSON202; got.Phase != api.SessionPhaseReady || got.Generation != 1 {
		t.Errorf("resumed as %s, generation %d", got.Phase, got.Generation)
	}
	said := finished(h, s.ID, h.Send("alice", s.ID, "cat ../note && echo $WHO && basename $PWD"))
	if !strings.Contains(said, "kept\nme\nsub\n") {
		t.Errorf("after the resume: %q", said)
	}
	before, after := harness.One[session.Ready](h, s.ID), harness.One[session.Resumed](h, s.ID)
	if after.Generation != before.Generation || after.PodUID == before.PodUID {
		t.Errorf("resumed as generation %d pod %s, was %d %s", after.Generation, after.PodUID, before.Generation, before.PodUID)
	}
}

func extend(t *testing.T, h *harness.Holdfast) {
	alice := h.Client("alice")
	s := h.CreateOf("alice", api.CreateSession{Runtime: free, MaxDuration: "1h", IdleTimeout: "5m"})
	r, err := alice.ExtendSessionWithResponse(h.Context(), s.ID, nil, api.ExtendSession{Max: "2h", Idle: "10m"})
	if err != nil {
		t.Fatal(err)
	}
	if by := r.JSON200.Deadlines.Max.Sub(s.Deadlines.Max); by < 55*time.Minute || by > 65*time.Minute {
		t.Errorf("the maximum age moved by %s", by)
	}
	if by := r.JSON200.Deadlines.Idle.Sub(s.Deadlines.Idle); by < 4*time.Minute || by > 6*time.Minute {
		t.Errorf("the idle deadline moved by %s", by)
	}
	for _, earlier := range []api.ExtendSession{{Max: "1m"}, {Idle: "1m"}} {
		_, err := alice.ExtendSessionWithResponse(h.Context(), s.ID, nil, earlier)
		harness.Refused(t, err, api.CodeInvalidRequest)
	}
}

func terminate(t *testing.T, h *harness.Holdfast) {
	alice := h.Client("alice")
	s := h.CreateOf("alice", api.CreateSession{Runtime: free, Message: "sleep 60"})
	h.AwaitFact(s.ID, "the command runs", func(f []harness.Fact) bool { return len(harness.Of[session.CallStarted](f)) == 1 })
	body := api.TerminateSession{Reason: "no longer needed"}
	if _, err := alice.TerminateSessionWithResponse(h.Context(), s.ID, nil, body); err != nil {
		t.Fatal(err)
	}
	if got := ended(t, h, s.ID, api.SessionOutcomeTerminated); !strings.Contains(got.Cause, body.Reason) || got.Waiting != 0 || got.Run != "" {
		t.Errorf("ended: %+v", got)
	}
	if _, err := alice.TerminateSessionWithResponse(h.Context(), s.ID, nil, body); err != nil {
		t.Errorf("a second terminate: %v", err)
	}
	_, err := alice.SendMessageWithResponse(h.Context(), s.ID, nil, api.SendMessage{Content: "ls"})
	if p := harness.Refused(t, err, api.CodeSessionEnded); p.Phase != "ended" {
		t.Errorf("refused in phase %q", p.Phase)
	}
}

// A sandbox that is on its way when its session is terminated is removed, however
// far it has come.
func terminateWhileClaiming(t *testing.T, h *harness.Holdfast) {
	variant(h, "slow", func(r *api.RuntimeSpec) { r.Sandbox.Command = []string{"/bin/sleep", "600"} })
	alice := h.Client("alice")
	r, err := alice.CreateSessionWithResponse(h.Context(), nil, api.CreateSession{Runtime: "slow"})
	if err != nil {
		t.Fatal(err)
	}
	id := r.JSON201.ID
	harness.Eventually(t, "a sandbox is being made", func() bool { return len(h.Sandboxes(id)) > 0 })
	if _, err := alice.TerminateSessionWithResponse(h.Context(), id, nil, api.TerminateSession{}); err != nil {
		t.Fatal(err)
	}
	ended(t, h, id, api.SessionOutcomeTerminated)
	if was := harness.Of[session.Ready](h.Facts(id)); len(was) > 0 {
		t.Errorf("it became ready: %+v", was)
	}
}

func illegalMoves(t *testing.T, h *harness.Holdfast) {
	alice := h.Client("alice")
	s := h.CreateOf("alice", api.CreateSession{Runtime: free})
	refused := func(err error, phase api.SessionPhase, moves ...string) {
		t.Helper()
		p := harness.Refused(t, err, api.CodeIllegalTransition)
		slices.Sort(p.Allowed)
		if p.Phase != string(phase) || !slices.Equal(p.Allowed, moves) {
			t.Errorf("refused in phase %s with %v, want %s with %v", p.Phase, p.Allowed, phase, moves)
		}
	}
	_, err := alice.ResumeSessionWithResponse(h.Context(), s.ID, nil)
	refused(err, api.SessionPhaseReady, "extend", "message", "suspend", "terminate")
	if _, err := alice.SuspendSessionWithResponse(h.Context(), s.ID, nil); err != nil {
		t.Fatal(err)
	}
	h.AwaitPhase(s.ID, api.SessionPhaseSuspended)
	n := h.Session(s.ID).N
	_, err = alice.SuspendSessionWithResponse(h.Context(), s.ID, nil)
	refused(err, api.SessionPhaseSuspended, "extend", "message", "resume", "terminate")
	if now := h.Session(s.ID).N; now != n {
		t.Errorf("a refused move took the session from n %d to %d", n, now)
	}
	_, err = alice.SuspendSessionWithResponse(h.Context(), "s-"+strings.Repeat("a", 20), nil)
	harness.Refused(t, err, api.CodeNotFound)
}

// A sandbox isn't suspended while a run is open in it.
func inUse(t *testing.T, h *harness.Holdfast) {
	alice := h.Client("alice")
	s := h.CreateOf("alice", api.CreateSession{Runtime: free, Message: "sleep 60"})
	run := firstRun(h, s.ID)
	h.AwaitRun(s.ID, run, api.RunStateStarted)
	_, err := alice.SuspendSessionWithResponse(h.Context(), s.ID, nil)
	harness.Refused(t, err, api.CodeSessionInUse)
	if _, err := alice.CancelRunWithResponse(h.Context(), s.ID, run, nil); err != nil {
		t.Fatal(err)
	}
	h.AwaitRun(s.ID, run, api.RunStateCancelled)
	if _, err := alice.SuspendSessionWithResponse(h.Context(), s.ID, nil); err != nil {
		t.Errorf("suspend after the run: %v", err)
	}
	h.AwaitPhase(s.ID, api.SessionPhaseSuspended)
}
