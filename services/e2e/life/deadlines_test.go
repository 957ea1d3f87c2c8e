package life_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

func idleSuspends(t *testing.T, h *harness.Holdfast) {
	variant(h, "dozes", func(r *api.RuntimeSpec) { r.Timeouts.Idle = "1s" })
	s := h.CreateOf("alice", api.CreateSession{Runtime: "dozes"})
	h.AwaitPhase(s.ID, api.SessionPhaseSuspended)
	if cause := harness.One[session.SuspendRequested](h, s.ID).Cause; cause != "idle" {
		t.Errorf("suspended for %q", cause)
	}
	finished(h, s.ID, h.Send("alice", s.ID, "true"))
}

func idleEnds(t *testing.T, h *harness.Holdfast) {
	variant(h, "leaves", func(r *api.RuntimeSpec) { r.Timeouts.Idle, r.OnIdle = "1s", api.OnIdleEnd })
	s := h.CreateOf("alice", api.CreateSession{Runtime: "leaves", Message: "echo done"})
	ended(t, h, s.ID, api.SessionOutcomeCompleted)
	if said := harness.Said(h.Facts(s.ID), firstRun(h, s.ID)); !strings.Contains(said, "done\n") {
		t.Errorf("it ended before its run: %q", said)
	}
}

func tooOld(t *testing.T, h *harness.Holdfast) {
	s := h.CreateOf("alice", api.CreateSession{Runtime: free, MaxDuration: "2s", Message: "sleep 60"})
	ended(t, h, s.ID, api.SessionOutcomeExpired)
	if at := harness.One[session.Expired](h, s.ID).MaxAt; time.Now().Before(at) {
		t.Errorf("expired before its time, %s", at)
	}
}

func noSuchCommand(t *testing.T, h *harness.Holdfast) {
	variant(h, "absent", func(r *api.RuntimeSpec) {
		r.Sandbox.Command, r.Timeouts.Claim = []string{"/no/such/program"}, "10s"
	})
	s := h.CreateOf("alice", api.CreateSession{Runtime: "absent", Message: "never read"})
	if got := ended(t, h, s.ID, api.SessionOutcomeFailed); !strings.Contains(got.Cause, "entrypoint-failed") {
		t.Errorf("it failed for %q", got.Cause)
	}
	if run := h.Runs(s.ID)[0]; run.State != api.RunStateCancelled {
		t.Errorf("the run of its message is %s", run.State)
	}
}

func neverReady(t *testing.T, h *harness.Holdfast) {
	variant(h, "mute", func(r *api.RuntimeSpec) {
		r.Sandbox.Command, r.Timeouts.Claim = []string{"/bin/sleep", "600"}, "2s"
	})
	s := h.CreateOf("alice", api.CreateSession{Runtime: "mute"})
	if got := ended(t, h, s.ID, api.SessionOutcomeFailed); !strings.Contains(got.Cause, "claim-timeout") {
		t.Errorf("it failed for %q", got.Cause)
	}
	f := harness.One[session.Failed](h, s.ID)
	if f.Generation != 1 || f.Detail == "" {
		t.Errorf("failed: %+v", f)
	}
}

// What is due while everything is down happens at the start, and what was accepted
// before goes on.
func TestDeadlineWhileDown(t *testing.T) {
	t.Parallel()
	h := harness.Start(t, harness.SharedPostgres(t))
	freely(h)
	old := h.CreateOf("alice", api.CreateSession{Runtime: free, MaxDuration: "3s"})
	idle := h.CreateOf("alice", api.CreateSession{Runtime: free, IdleTimeout: "3s"})
	key, body := "the-same-key", api.CreateSession{Runtime: free, Message: "echo kept > note"}
	create := func(body api.CreateSession) (*apiclient.CreateSessionResponse, error) {
		return h.Client("alice").CreateSessionWithResponse(h.Context(), &api.CreateSessionParams{IdempotencyKey: &key}, body)
	}
	made, err := create(body)
	if err != nil || made.JSON201 == nil {
		t.Fatalf("create: %v", err)
	}
	young := made.JSON201
	finished(h, young.ID, firstRun(h, young.ID))
	h.Stop()
	harness.Eventually(t, "the deadlines have passed", func() bool {
		return time.Now().After(old.Deadlines.Max) && time.Now().After(idle.Deadlines.Idle)
	})
	h.Begin()
	ended(t, h, old.ID, api.SessionOutcomeExpired)
	// The same request under the same key finds what it made, another one nothing.
	if again, err := create(body); err != nil || again.JSON200 == nil || again.JSON200.ID != young.ID {
		t.Errorf("the same create after the restart: %+v, %v", again, err)
	}
	body.Message = "another"
	_, err = create(body)
	harness.Refused(t, err, api.CodeIdempotencyConflict)
	// Stopping took its sandbox; so it isn't idle but lost, and has none.
	h.AwaitPhase(idle.ID, api.SessionPhaseSuspended)
	if said := finished(h, young.ID, h.Send("alice", young.ID, "cat note")); !strings.Contains(said, "kept\n") {
		t.Errorf("after the restart: %q", said)
	}
	for _, s := range []*api.Session{old, idle, young} {
		if of := harness.Of[session.Created](h.Facts(s.ID)); len(of) != 1 {
			t.Errorf("session %s was created %d times", s.ID, len(of))
		}
	}
}
