package decider_test

import (
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/policy"
	"github.com/holdfast-io/holdfast/events/session"
	given "github.com/holdfast-io/holdfast/services/internal/decidertest"
	"github.com/holdfast-io/holdfast/services/policy/internal/decider"
)

func deliver(message, content string) decide {
	return decider.Deliver{ToolCallID: "a-1", MessageID: message, Content: content}.Decide
}

// offering is a run whose client offers tools.
func offering(names ...string) given.Past {
	m := given.Queued("r-1").(session.MessageReceived)
	for _, n := range names {
		m.Tools = append(m.Tools, session.Tool{Name: n})
	}
	return given.Ready.And(m, given.Started("r-1"))
}

// A tool of the client is the client's to run, once the policy or people let it.
func TestDelegate(t *testing.T) {
	t.Parallel()
	forClient := func(p decider.Policy) decide {
		c := propose(p)
		c.Tool, c.Modes = "pick", []string{session.ModeDelegate}
		return c.Decide
	}
	own := session.CallProposed{CallID: call, AgentCallID: "a-1", RunID: "r-1", Tool: "pick", ArgsHash: hash, Modes: []string{"park"}}
	proposed := own
	proposed.Modes = []string{session.ModeDelegate}
	asked := offering("pick").And(proposed, session.CallDecided{CallID: call, Decision: "ask"}, question)
	thenAllow := question
	thenAllow.OnDeadline = "allow"
	for name, tc := range map[string]struct {
		past   given.Past
		decide decide
		after  time.Duration
		want   string
	}{
		"allowed":                    {offering("pick"), forClient(says(policy.Allow)), 0, "call.proposed call.decided call.delegated"},
		"denied":                     {offering("pick"), forClient(says(policy.Deny)), 0, "call.proposed call.decided"},
		"asked":                      {offering("pick"), forClient(says(policy.Ask)), 0, "call.proposed call.decided call.human-confirm-required"},
		"again":                      {asked, forClient(says(policy.Ask)), 0, "nothing"},
		"not offered":                {offering("paint"), forClient(says(policy.Allow)), 0, "[illegal-transition]"},
		"offered by nobody":          {given.Running, forClient(says(policy.Allow)), 0, "[illegal-transition]"},
		"approved":                   {asked, answer(decider.Approve, "bob").Decide, 0, "call.vote-cast call.approved call.delegated"},
		"refused by people":          {asked, answer(decider.Deny, "bob").Decide, 0, "call.vote-cast call.denied"},
		"the agent asked itself":     {offering("pick").And(own, session.CallDecided{CallID: call, Decision: "allow", ExecuteBy: until}), forClient(says(policy.Allow)), 0, "call.delegated"},
		"it did, too long ago":       {offering("pick").And(own, session.CallDecided{CallID: call, Decision: "allow", ExecuteBy: until}), forClient(says(policy.Allow)), within, "[illegal-transition]"},
		"it did, and was refused":    {offering("pick").And(own, session.CallDecided{CallID: call, Decision: "deny"}), forClient(says(policy.Allow)), 0, "[illegal-transition]"},
		"a result too late":          {delegated, deliver("m-1", "blue"), within, "[approval-expired]"},
		"a result of another":        {delegated, decider.Deliver{ToolCallID: "a-9"}.Decide, 0, "[not-found]"},
		"a result while ending":      {delegated.And(session.Terminated{}), deliver("m-1", "blue"), 0, "[illegal-transition]"},
		"a result before the answer": {asked, deliver("m-1", "blue"), 0, "[illegal-transition]"},
		"lapsing":                    {delegated, decider.Due(session.Deadline{Kind: session.DeadlineExecution, Key: call}), within, "call.lapsed"},
		"allowed at the deadline": {
			offering("pick").And(proposed, session.CallDecided{CallID: call, Decision: "ask"}, thenAllow),
			decider.Due(session.Deadline{Kind: session.DeadlineApproval, Key: call}), deadline, "call.approved call.delegated",
		},
		"the run is over":   {delegated.And(session.RunFinished{RunID: "r-1", Outcome: "cancelled"}), decider.Settle, 0, "call.lapsed"},
		"the session ends":  {delegated.And(session.Terminated{}), decider.Settle, 0, "call.lapsed"},
		"the run is parked": {delegated.And(session.RunInterrupted{RunID: "r-1", Calls: []string{call}}), decider.Settle, 0, "nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := given.Outcome(tc.decide(given.Given(t, tc.past), given.Start.Add(tc.after))); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

// The id of a call that the client had before names no new one: a run that waited for
// it would go on at once, without a result, and call it again.
func TestDelegateUnderAnOldID(t *testing.T) {
	t.Parallel()
	proposed := session.CallProposed{CallID: call, AgentCallID: "a-1", RunID: "r-1", Tool: "pick", ArgsHash: hash, Modes: []string{session.ModeDelegate}}
	lets := []session.Payload{
		proposed,
		session.CallDecided{CallID: call, Decision: "allow", ExecuteBy: until},
		session.CallDelegated{CallID: call, ToolCallID: "a-1", RunID: "r-1", Deadline: until},
	}
	parked := session.RunInterrupted{RunID: "r-1", Calls: []string{call}}
	brought := session.CallCompleted{CallID: call, Nonce: "m-1", Output: "blue"}
	goneOn := session.RunStarted{RunID: "r-2", ParentRunID: "r-1", Instance: "i-1", Generation: 1, PodUID: "pod-1"}
	next := given.Queued("r-2").(session.MessageReceived)
	next.Tools = []session.Tool{{Name: "pick"}}
	for name, tc := range map[string]struct {
		past given.Past
		run  string
		want string
	}{
		"the same run again, let":       {offering("pick").And(lets...), "r-1", "nothing"},
		"the same run again, refused":   {offering("pick").And(proposed, session.CallDecided{CallID: call, Decision: "deny"}), "r-1", "nothing"},
		"the same run, brought already": {offering("pick").And(lets...).And(brought), "r-1", "nothing"},
		"a continuation":                {offering("pick").And(lets...).And(parked, brought, goneOn), "r-2", "[illegal-transition]"},
		"another run, never closed":     {offering("pick").And(lets...).And(session.RunFinished{RunID: "r-1", Outcome: "cancelled"}, next, given.Started("r-2")), "r-2", "[illegal-transition]"},
		"another run":                   {offering("pick").And(lets...).And(brought, session.RunFinished{RunID: "r-1", Outcome: "success"}, next, given.Started("r-2")), "r-2", "[illegal-transition]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := propose(says(policy.Allow))
			c.Tool, c.Modes, c.RunID = "pick", []string{session.ModeDelegate}, tc.run
			if got := given.Outcome(c.Decide(given.Given(t, tc.past), given.Start)); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

// A question about a tool of the client's is one that a run is parked on: nobody holds
// for its answer.
func TestDelegateParks(t *testing.T) {
	t.Parallel()
	c := propose(says(policy.Ask))
	c.Tool, c.Modes = "pick", []string{session.ModeDelegate}
	records, err := c.Decide(given.Given(t, offering("pick")), given.Start)
	if err != nil || len(records) != 3 {
		t.Fatalf("%d events, %v", len(records), err)
	}
	asked, err := session.Decode(records[2], events.ServicePolicy)
	if q, ok := asked.(session.CallHumanConfirmRequired); !ok || q.Mode != decider.ModePark {
		t.Errorf("%+v, %v", asked, err)
	}
}
