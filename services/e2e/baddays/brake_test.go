package baddays_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
	"github.com/holdfast-io/holdfast/services/internal/broker"
)

// At 85 % of the log's limit only what ends something passes; the rest is refused,
// says so, and leaves nothing. What was waiting goes on by itself when there is room.
func TestStorageBrake(t *testing.T) {
	t.Parallel()
	h := harness.Start(t, harness.SharedPostgres(t))
	_, js := as(t, h, broker.UserInstaller)
	var asking [3]*api.Session
	var questions [3]api.Approval
	for i := range asking {
		asking[i] = h.Create("alice", "rm -rf build")
		questions[i] = h.AwaitQuestion(asking[i].ID)
	}
	// Long words, so that a tenth of the log is room enough for all the ends.
	freely(h)
	idle := h.CreateOf("alice", api.CreateSession{Runtime: "free", Message: "echo " + strings.Repeat("x", 60_000)})
	h.AwaitFact(idle.ID, "its run is over", runs(1))

	limitLog(t, js, 0.9)
	harness.Eventually(t, "the brake is set", func() bool { return part(t, h, "storage").Degraded })
	if r := readiness(t, h); !r.Ready {
		t.Errorf("not ready, so nobody could end anything: %+v", r)
	}
	if !strings.Contains(string(get(t, h, "/metrics", "admin")), "holdfast_storage_braking 1") {
		t.Error("no metric says that the brake is set")
	}

	before := last(t, h)
	_, err := h.Client("alice").CreateSessionWithResponse(h.Context(), nil, api.CreateSession{Runtime: "shell"})
	low(t, err)
	_, err = h.Client("alice").SendMessageWithResponse(h.Context(), idle.ID, nil, api.SendMessage{Content: "pwd"})
	low(t, err)
	_, err = h.Decide("bob", questions[0], api.AnswerApprove, "")
	low(t, err)
	if after := last(t, h); after != before {
		t.Errorf("what was refused was appended: the log went from %d to %d", before, after)
	}

	if status, err := h.Decide("bob", questions[1], api.AnswerDeny, ""); err != nil || status != 201 {
		t.Errorf("deny: %d, %v", status, err)
	}
	if _, err := h.Client("alice").SuspendSessionWithResponse(h.Context(), idle.ID, nil); err != nil {
		t.Errorf("suspend: %v", err)
	}
	h.AwaitPhase(idle.ID, api.SessionPhaseSuspended)
	if _, err := h.Client("alice").TerminateSessionWithResponse(h.Context(), asking[2].ID, nil, api.TerminateSession{}); err != nil {
		t.Errorf("terminate: %v", err)
	}
	h.AwaitPhase(asking[2].ID, api.SessionPhaseEnded)

	limitLog(t, js, 0)
	harness.Eventually(t, "the brake is off", func() bool { return !part(t, h, "storage").Degraded })
	h.Approve("bob", questions[0])
	h.Send("alice", idle.ID, "pwd")
	h.AwaitFact(asking[0].ID, "the run after the approval is over", runs(1))
	h.AwaitFact(asking[1].ID, "the run that waited for room is over", runs(1))
	h.AwaitFact(idle.ID, "the run after the next message is over", runs(2))
}

// low wants a refusal for lack of room that says when to come back.
func low(t *testing.T, err error) {
	t.Helper()
	harness.Refused(t, err, api.CodeStorageLow)
	if refused, ok := errors.AsType[*api.Error](err); !ok || refused.RetryAfter < time.Second {
		t.Errorf("it doesn't say when to try again: %v", err)
	}
}

// last is the log's last sequence.
func last(t *testing.T, h *harness.Holdfast) uint64 {
	t.Helper()
	log, closeLog, err := h.OpenLog(h.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer closeLog()
	info, err := log.Info(h.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info.LastSeq
}
