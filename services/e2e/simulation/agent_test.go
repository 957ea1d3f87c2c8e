package simulation

import (
	"encoding/json"
	"fmt"

	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/policy"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/policy/policytest"
	"github.com/holdfast-io/holdfast/services/runner/runnertest"
)

// running is the open run, where the agent and a living runner can go on with it.
func (w *world) running() *session.Run {
	st := w.state()
	if st.Run == nil || st.Run.Instance != w.instance {
		return nil
	}
	if b := w.driver.boxes[st.Run.Generation]; b == nil || !b.running || b.pod != st.Run.PodUID {
		return nil
	}
	return st.Run
}

var agent = events.Actor{Kind: events.ActorAgent, ID: "agent"}

// speak records a message, perhaps twice: a runner that took over reads the spool
// from the beginning.
func (w *world) speak(t *rapid.T) {
	run := w.running()
	if run == nil {
		t.Skip("no run")
	}
	w.k[run.ID]++
	id := fmt.Sprintf("m-%d", rapid.IntRange(1, 3).Draw(t, "message"))
	w.must(w.do(events.ServiceRunner, own(events.ServiceRunner), runnertest.Record(w.instance, session.RunMessageRecorded{
		RunID: run.ID, MessageID: id, Role: "assistant", Message: json.RawMessage(`{"id":"m","role":"assistant"}`), K: w.k[run.ID],
	})))
}

// propose asks for a call. Few agent's ids and arguments make repetitions and
// changed minds likely.
func (w *world) propose(t *rapid.T) {
	w.proposeWith(t, rapid.SampledFrom([]policy.Effect{policy.Allow, policy.Deny, policy.Ask}).Draw(t, "effect"))
}

// park proposes what people are asked about, and parks on it.
func (w *world) park(t *rapid.T) {
	w.proposeWith(t, policy.Ask)
	w.finishRun()
}

func (w *world) proposeWith(t *rapid.T, effect policy.Effect) {
	run := w.running()
	if run == nil {
		t.Skip("no run")
	}
	args, hash, err := events.CanonicalArgs(fmt.Appendf(nil, `{"command":"%d"}`, rapid.IntRange(1, 3).Draw(t, "command")))
	if err != nil {
		t.Fatal(err)
	}
	agentID := fmt.Sprintf("%s-%d", run.Root, rapid.IntRange(1, 4).Draw(t, "call"))
	verdict := policytest.Verdict{
		Effect: effect, Rule: "drawn",
		Ask: policy.AskFor{
			ExcludeRequester: rapid.Bool().Draw(t, "exclude"), Deadline: events.Duration(minutes(t, 1, 60)),
			OnDeadline: rapid.SampledFrom([]policy.Effect{policy.Allow, policy.Deny}).Draw(t, "on deadline"), ExecuteWithin: events.Duration(minutes(t, 1, 60)),
			NeverExpire: rapid.Bool().Draw(t, "never expire"),
		},
	}
	_ = w.do(events.ServicePolicy, agent, policytest.Propose{
		CallID: events.CallID("s-aaaaaaaaaaaaaaaaaaaa", agentID, "shell", hash), AgentCallID: agentID, RunID: run.ID,
		Tool: "shell", Args: args, Hash: hash, Modes: []string{"hold", "park"},
		Policy: policytest.Policy{Name: "p", Revision: 1, Evaluate: func(policytest.Call) (policytest.Verdict, error) { return verdict, nil }},
	}.Decide) // refused while the session ends
}

// call draws one of the session's calls.
func (w *world) call(t *rapid.T) *session.Call {
	st := w.state()
	if len(st.CallOrder) == 0 {
		t.Skip("no call")
	}
	return st.Calls[rapid.SampledFrom(st.CallOrder).Draw(t, "id")]
}

// start starts a call, whether it may be or not.
func (w *world) start(t *rapid.T) {
	run, call := w.running(), w.call(t)
	if run == nil {
		t.Skip("no run")
	}
	_ = w.do(events.ServicePolicy, agent, policytest.Start{
		CallID: call.ID, RunID: run.ID, Hash: call.ArgsHash, Nonce: rapid.SampledFrom([]string{"one", "two"}).Draw(t, "nonce"),
	}.Decide)
}

// complete reports a call, whether it was started or not.
func (w *world) complete(t *rapid.T) {
	run, call := w.running(), w.call(t)
	if run == nil {
		t.Skip("no run")
	}
	_ = w.do(events.ServicePolicy, agent, policytest.Complete{RunID: run.ID, Result: session.CallCompleted{
		CallID: call.ID, Nonce: rapid.SampledFrom([]string{"one", "two"}).Draw(t, "nonce"),
	}}.Decide)
}

// finishRun ends the open run as a good agent does: it parks on what is pending.
func (w *world) finishRun() {
	run := w.running()
	if run == nil {
		return
	}
	k := w.k[run.ID]
	var pending []string
	for _, id := range w.state().CallOrder {
		if c := w.state().Calls[id]; c.State == session.CallStatePending && c.Root == run.Root {
			pending = append(pending, id)
		}
	}
	step := runnertest.Finish(w.instance, session.RunFinished{RunID: run.ID, LastK: k, Outcome: "success"})
	switch {
	case run.CancelRequested:
		step = runnertest.Finish(w.instance, session.RunFinished{RunID: run.ID, LastK: k, Outcome: "cancelled"})
	case len(pending) > 0:
		step = runnertest.Interrupt(w.instance, session.RunInterrupted{RunID: run.ID, LastK: k, Calls: pending})
	}
	w.must(w.do(events.ServiceRunner, own(events.ServiceRunner), step))
}

// failRun ends it badly, or parks it on nothing.
func (w *world) failRun(t *rapid.T) {
	run := w.running()
	if run == nil {
		t.Skip("no run")
	}
	step := runnertest.Fail(w.instance, session.RunFailed{RunID: run.ID, LastK: w.k[run.ID], Cause: "agent-error"})
	if rapid.Bool().Draw(t, "interrupted for nothing") {
		step = runnertest.Interrupt(w.instance, session.RunInterrupted{RunID: run.ID, LastK: w.k[run.ID], Calls: []string{"s-a.c-unknown"}})
	}
	w.must(w.do(events.ServiceRunner, own(events.ServiceRunner), step))
}
