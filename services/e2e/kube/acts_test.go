package kube_test

import (
	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// policies applies "default", which asks about everything, and "open", which allows it.
func (in *installation) policies() {
	in.t.Helper()
	in.Policy(api.PolicySpec{Name: "default", Default: "ask"})
	in.Policy(api.PolicySpec{Name: "open", Default: "allow"})
}

// shell applies a runtime whose agent runs what it is told, in a volume of the session,
// and that keeps so many warm; change makes it another.
func (in *installation) shell(name string, warm int, change ...func(*api.RuntimeSpec)) {
	in.t.Helper()
	in.Runtime(name, func(r *api.RuntimeSpec) {
		r.Sandbox.Image, r.WarmPool.Size = shellImage, warm
		r.Sandbox.Resources = api.Resources{Requests: api.Requests{CPU: "10m", Memory: "32Mi"}, Limits: api.Limits{Memory: "128Mi"}}
		r.Timeouts.DrainGrace = "1s"
		for _, c := range change {
			c(r)
		}
	})
	if warm > 0 {
		in.poolHas(name, int32(warm))
	}
}

// allowing has what the agent wants to do be done without a question.
func allowing(r *api.RuntimeSpec) { r.Policy = "open" }

// suspend puts a session away.
func (in *installation) suspend(id string) {
	in.t.Helper()
	if _, err := in.Client("alice").SuspendSessionWithResponse(in.Context(), id, nil); err != nil {
		in.t.Fatalf("suspend: %v", err)
	}
	in.AwaitPhase(id, api.SessionPhaseSuspended)
}

// end ends a session.
func (in *installation) end(id string) {
	in.t.Helper()
	if _, err := in.Client("alice").TerminateSessionWithResponse(in.Context(), id, nil, api.TerminateSession{}); err != nil {
		in.t.Fatalf("terminate: %v", err)
	}
	in.AwaitPhase(id, api.SessionPhaseEnded)
}

// remove takes a runtime away, and with it its pool.
func (in *installation) remove(runtime string) {
	in.t.Helper()
	if _, err := in.Client("admin").RemoveRuntimeWithResponse(in.Context(), runtime, nil); err != nil {
		in.t.Fatalf("remove runtime %s: %v", runtime, err)
	}
}

// tell sends a message, waits until its run is over, and gives what the agent said.
func (in *installation) tell(id, message string) string {
	in.t.Helper()
	run := in.Send("alice", id, message)
	in.AwaitRun(id, run, api.RunStateFinished)
	return harness.Said(in.Facts(id), run)
}
