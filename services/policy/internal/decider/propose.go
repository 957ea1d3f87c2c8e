package decider

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/policy"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/policy/internal/rules"
)

func records(payloads ...session.Payload) ([]events.Record, error) {
	return session.Records(events.ServicePolicy, payloads...)
}

// Decide asks the policy and records its word, allow too. A replayed proposal
// finds its call and asks nothing.
func (c Propose) Decide(s *session.State, now time.Time) ([]events.Record, error) {
	if err := openRun(s, c.RunID); err != nil {
		return nil, err
	}
	if c.delegates() && !offered(s.Run.Tools, c.Tool) {
		return nil, problem.Newf(api.CodeIllegalTransition, "the client of this run doesn't offer a tool %q", c.Tool)
	}
	if call := s.Calls[c.CallID]; call != nil {
		return c.again(s, call, now)
	}
	if s.OpenCalls() >= MaxOpenCalls {
		return nil, problem.Newf(api.CodeQuotaExceeded, "%d calls of this session are open; finish some first", MaxOpenCalls)
	}
	v, err := c.verdict(s, now)
	if err != nil {
		return nil, problem.New(api.CodeInvalidRequest, err.Error()).At("/args", "has to be an object")
	}
	payloads := append(c.supersede(s), session.CallProposed{
		CallID: c.CallID, AgentCallID: c.AgentCallID, RunID: c.RunID, Tool: c.Tool, Args: c.Args, ArgsHash: c.Hash,
		Requester: s.Run.Requester, Modes: c.Modes,
	})
	decided := session.CallDecided{
		CallID: c.CallID, Decision: string(v.Effect), Rule: v.Rule, Policy: c.Policy.Name, Revision: c.Policy.Revision,
		Enforcement: EnforcementAsked, Reason: v.Reason,
	}
	if v.Effect == policy.Allow {
		decided.ExecuteBy = now.Add(v.Ask.ExecuteWithin.D())
	}
	payloads = append(payloads, decided)
	if v.Effect == policy.Allow && c.delegates() {
		payloads = append(payloads, c.delegated(decided.ExecuteBy))
	}
	if v.Effect == policy.Ask {
		payloads = append(payloads, c.question(s, v, now))
	}
	return records(payloads...)
}

// delegates says that the client runs the tool.
func (c Propose) delegates() bool { return slices.Contains(c.Modes, session.ModeDelegate) }

func offered(tools []session.Tool, name string) bool {
	return slices.ContainsFunc(tools, func(t session.Tool) bool { return t.Name == name })
}

func (c Propose) delegated(until time.Time) session.CallDelegated {
	return session.CallDelegated{CallID: c.CallID, ToolCallID: c.AgentCallID, RunID: c.RunID, Deadline: until}
}

// again finds that the call was proposed before. One that the agent asked for itself,
// and was let, goes to the client all the same where it is the client's tool. One that
// the client had before is another call under an id that isn't new: a run that waits
// for it would go on at once, without a result, and most likely call it again.
func (c Propose) again(s *session.State, call *session.Call, now time.Time) ([]events.Record, error) {
	may := call.State == session.CallStateAllowed || call.State == session.CallStateApproved
	over := call.Root != s.Run.Root || call.RunID != c.RunID && call.State.Final()
	switch {
	case c.delegates() && call.ForClient() && over:
		return nil, problem.Newf(api.CodeIllegalTransition,
			"the id %q was that of the same call in an earlier run: each call needs one of its own", c.AgentCallID).In(string(call.State))
	case !c.delegates() || call.ForClient():
		return nil, nil
	case !may || overdue(call, now):
		return nil, problem.Newf(api.CodeIllegalTransition,
			"the agent asked for this call itself and it is %s: it can't be handed to the client", call.State).In(string(call.State))
	}
	return records(c.delegated(call.ExecuteBy))
}

// openRun refuses what doesn't come from the session's open run.
func openRun(s *session.State, runID string) error {
	switch {
	case !s.Exists():
		return notFound()
	case s.Ending || s.Ended:
		return problem.New(api.CodeSessionEnded, "the session is over; nothing more is started in it").In(string(s.Phase()))
	case s.Run == nil || s.Run.ID != runID:
		return problem.Newf(api.CodeIllegalTransition, "run %q is not the session's open run", runID).In(string(s.Phase()))
	}
	return nil
}

func (c Propose) verdict(s *session.State, now time.Time) (rules.Verdict, error) {
	labels := map[string]any{}
	for k, v := range s.Labels {
		labels[k] = v
	}
	v, err := c.Policy.Evaluate(rules.Call{
		Tool: c.Tool, Args: c.Args, Isolation: s.Workload.Isolation, Now: now,
		Session: map[string]any{"id": s.ID, "owner": s.Owner, "labels": labels},
		Runtime: map[string]any{"name": s.Runtime.Name, "revision": int64(s.Runtime.Revision)},
		Agent:   map[string]any{"run": c.RunID},
		User:    map[string]any{"id": s.Run.Requester},
	})
	if err != nil || v.Effect != policy.Ask {
		return v, err
	}
	if denied := c.deniedRecently(s, now); denied != nil {
		return rules.Verdict{
			Effect: policy.Deny, Rule: v.Rule,
			Reason: fmt.Sprintf("%s denied the same call at %s", denied.Answer.By, denied.At.Format(time.RFC3339)),
		}, nil
	}
	return v, nil
}

// deniedRecently finds a person's no to the same tool and arguments.
func (c Propose) deniedRecently(s *session.State, now time.Time) *session.Call {
	for _, id := range slices.Backward(s.CallOrder) {
		call := s.Calls[id]
		if call.State == session.CallStateDenied && call.Answer != nil && call.Tool == c.Tool &&
			call.ArgsHash == c.Hash && now.Sub(call.At) < RecentDenial {
			return call
		}
	}
	return nil
}

// supersede closes a question that the same agent call asked with other arguments.
func (c Propose) supersede(s *session.State) []session.Payload {
	var payloads []session.Payload
	for _, id := range s.CallOrder {
		call := s.Calls[id]
		if call.AgentCallID == c.AgentCallID && call.State == session.CallStatePending {
			payloads = append(payloads, session.CallSuperseded{CallID: id, By: c.CallID})
		}
	}
	return payloads
}

func (c Propose) question(s *session.State, v rules.Verdict, now time.Time) session.CallHumanConfirmRequired {
	q := session.CallHumanConfirmRequired{
		CallID: c.CallID, Mode: ModeHold, Approvers: v.Ask.Approvers, ExcludeRequester: v.Ask.ExcludeRequester,
		OnDeadline: string(v.Ask.OnDeadline), ExecuteWithin: v.Ask.ExecuteWithin, Risk: v.Ask.Risk,
		Message: rules.Message(v.Ask.Message, c.Args), Isolation: s.Workload.Isolation,
	}
	if slices.Contains(c.Modes, ModePark) || c.delegates() { // its run ends and waits
		q.Mode = ModePark
	}
	if !v.Ask.NeverExpire {
		q.Deadline = now.Add(v.Ask.Deadline.D())
	}
	return q
}

func notFound() error {
	return problem.New(api.CodeNotFound, "there is no such session or call in this tenant")
}
