package life_test

import (
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// kill kills a session's sandbox and waits until that is known.
func kill(h *harness.Holdfast, id string) session.Lost {
	h.KillSandbox(id, harness.One[session.Ready](h, id).PodUID)
	h.AwaitFact(id, "the loss is known", func(f []harness.Fact) bool { return len(harness.Of[session.Lost](f)) == 1 })
	return harness.One[session.Lost](h, id)
}

// After a loss nothing happens until a run is due; that one has a sandbox of the
// next generation, which says whether the files came along.
func lost(t *testing.T, h *harness.Holdfast) {
	s := h.CreateOf("alice", api.CreateSession{Runtime: free, Message: "echo kept > note"})
	finished(h, s.ID, firstRun(h, s.ID))
	if l := kill(h, s.ID); l.Generation != 1 || !l.WorkspaceKept {
		t.Errorf("lost: %+v", l)
	}
	if now := h.AwaitPhase(s.ID, api.SessionPhaseSuspended); now.Cause == "" {
		t.Error("a lost session doesn't say why it has no sandbox")
	}
	if said := finished(h, s.ID, h.Send("alice", s.ID, "cat note")); !strings.Contains(said, "kept\n") {
		t.Errorf("after the loss: %q", said)
	}
	if now := h.Session(s.ID); now.Generation != 2 {
		t.Errorf("generation %d", now.Generation)
	}
	harness.Eventually(t, "nothing is left of the first generation", func() bool {
		boxes := h.Sandboxes(s.ID)
		return len(boxes) == 1 && boxes[0].Generation == 2
	})
}

func lostInARun(t *testing.T, h *harness.Holdfast) {
	s := h.CreateOf("alice", api.CreateSession{Runtime: free, Message: "sleep 60"})
	run := firstRun(h, s.ID)
	h.AwaitFact(s.ID, "the command runs", func(f []harness.Fact) bool { return len(harness.Of[session.CallStarted](f)) == 1 })
	kill(h, s.ID)
	if r := h.AwaitRun(s.ID, run, api.RunStateFailed); !strings.Contains(r.Cause, "workload-lost") {
		t.Errorf("the run failed for %q", r.Cause)
	}
	h.AwaitFact(s.ID, "the call of the dead run lapses", func(f []harness.Fact) bool {
		l := harness.Of[session.CallLapsed](f)
		return len(l) == 1 && l[0].Kind == "unfinished"
	})
	finished(h, s.ID, h.Send("alice", s.ID, "echo alive"))
}

func lostForGood(t *testing.T, h *harness.Holdfast) {
	variant(h, "fragile", func(r *api.RuntimeSpec) { r.OnLoss = api.OnLossEnd })
	s := h.CreateOf("alice", api.CreateSession{Runtime: "fragile"})
	kill(h, s.ID)
	if got := ended(t, h, s.ID, api.SessionOutcomeFailed); !strings.Contains(got.Cause, "lost") {
		t.Errorf("it ended for %q", got.Cause)
	}
}
