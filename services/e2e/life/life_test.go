package life_test

import (
	"testing"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// free is a runtime like shell whose policy lets everything through; with a warm
// pool, as most are.
const free = "free"

func freely(h *harness.Holdfast) {
	h.Policy(api.PolicySpec{Name: free, Default: api.PolicyEffectAllow})
	h.Runtime(free, func(r *api.RuntimeSpec) { r.Policy, r.WarmPool.Size = free, 1 })
}

// variant applies a runtime like free but for what change does.
func variant(h *harness.Holdfast, name string, change func(*api.RuntimeSpec)) {
	h.Runtime(name, func(r *api.RuntimeSpec) {
		r.Policy = free
		change(r)
	})
}

// finished waits until a run is finished and gives what the agent said.
func finished(h *harness.Holdfast, id, run string) string {
	h.AwaitRun(id, run, api.RunStateFinished)
	return harness.Said(h.Facts(id), run)
}

// firstRun is the run of the message that a session was created with.
func firstRun(h *harness.Holdfast, id string) string {
	return harness.Of[session.MessageReceived](h.Facts(id))[0].RunID
}

// ended waits until a session has ended as it should and nothing of it is left.
func ended(t *testing.T, h *harness.Holdfast, id string, outcome api.SessionOutcome) *api.Session {
	t.Helper()
	s := h.AwaitPhase(id, api.SessionPhaseEnded)
	if s.Outcome != outcome {
		t.Errorf("ended as %s (%s), want %s", s.Outcome, s.Cause, outcome)
	}
	if !h.Nothing(id) {
		t.Errorf("something of the session is left: %+v", h.Sandboxes(id))
	}
	return s
}

// The tests of one program share it; each has sessions, and where it needs them
// runtimes, of its own.
func TestLife(t *testing.T) {
	h := harness.Start(t, harness.SharedPostgres(t))
	freely(h)
	for name, test := range map[string]func(*testing.T, *harness.Holdfast){
		"create waits until it is ready":            createWaits,
		"an agent that starts slowly":               slowStart,
		"suspend and resume":                        suspendAndResume,
		"extend":                                    extend,
		"terminate":                                 terminate,
		"terminate while a sandbox is claimed":      terminateWhileClaiming,
		"illegal moves":                             illegalMoves,
		"in use":                                    inUse,
		"idle suspends":                             idleSuspends,
		"idle ends":                                 idleEnds,
		"too old":                                   tooOld,
		"a command that isn't there":                noSuchCommand,
		"never ready":                               neverReady,
		"a message resumes":                         messageResumes,
		"a message while suspending":                messageWhileSuspending,
		"a message behind a question":               messageBehindQuestion,
		"a message that doesn't wait":               messageRejected,
		"a message that cancels":                    messageCancels,
		"cancel an open run":                        cancelOpen,
		"cancel a parked run":                       cancelParked,
		"cancel a queued run":                       cancelQueued,
		"a sandbox killed from outside":             lost,
		"a sandbox killed from outside, in a run":   lostInARun,
		"a sandbox killed from outside, onLoss end": lostForGood,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, h.In(t))
		})
	}
}
