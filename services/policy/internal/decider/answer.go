package decider

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/projections/view"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

// Decide takes the first valid answer. The same answer by the same person again
// changes nothing; every other answer is refused and the refusal recorded. The
// deadline is checked here: an answer after it also expires the call.
func (c Answer) Decide(s *session.State, now time.Time) ([]events.Record, error) {
	call := s.Calls[c.CallID]
	if call == nil {
		return nil, notFound() // an unknown id appends nothing
	}
	if call.Answer != nil && call.Answer.By == c.By && call.Answer.Decision == c.Decision && c.Hash == call.ArgsHash {
		return nil, nil
	}
	if refusal := c.refusal(s, call, now); refusal != nil {
		return c.refuse(s, call, now, refusal)
	}
	vote := session.CallVoteCast{CallID: c.CallID, By: c.By, Decision: c.Decision, Comment: c.Comment, ArgsHash: c.Hash}
	if c.Decision == Deny {
		return records(vote, session.CallDenied{CallID: c.CallID, By: c.By, Reason: c.Comment})
	}
	return records(append([]session.Payload{vote}, approve(call, c.By, now)...)...)
}

// refusal says why the answer doesn't count; nil where it does.
func (c Answer) refusal(s *session.State, call *session.Call, now time.Time) *problem.Error {
	switch {
	case call.Asked == nil:
		return problem.New(api.CodeIllegalTransition, "nobody was asked about this call: the policy decided it").In(string(call.State))
	case !c.mayAnswer(call):
		return problem.Newf(api.CodeNotAnApprover, "the rule asks %s; you are %s",
			strings.Join(approversOf(call), ", "), strings.Join(c.claims(), ", "))
	case call.Asked.ExcludeRequester && c.By == call.Requester:
		return problem.New(api.CodeRequesterExcluded, "whoever wrote to the run may not answer for it; ask another approver")
	case c.Hash != call.ArgsHash:
		return problem.New(api.CodeArgsChanged, "the hash is not that of the call's arguments; read the approval again and answer what it shows")
	case call.Answer != nil:
		return AlreadyDecided(call)
	case call.State == session.CallStateExpired || expired(call, now):
		return problem.New(api.CodeApprovalExpired, "the deadline to answer has passed").In(string(session.CallStateExpired))
	case call.State != session.CallStatePending || s.Ending || s.Ended:
		return problem.Newf(api.CodeIllegalTransition, "the question is settled: %s", call.State).In(string(call.State))
	}
	return nil
}

func expired(call *session.Call, now time.Time) bool {
	return call.State == session.CallStatePending && !call.Asked.Deadline.IsZero() && !now.Before(call.Asked.Deadline)
}

// AlreadyDecided refuses an answer that came after another, which it names.
func AlreadyDecided(call *session.Call) *problem.Error {
	winner, err := json.Marshal(struct {
		By       string    `json:"by"`
		At       time.Time `json:"at"`
		Decision string    `json:"decision"`
		Reason   string    `json:"reason,omitempty"`
	}{view.Person(call.Answer.By), call.Answer.At, call.Answer.Decision, call.Answer.Comment})
	p := problem.New(api.CodeAlreadyDecided, "another answer counts already").In(string(call.State))
	if err == nil {
		p.Winner = winner
	}
	return p
}

// refuse records the refused answer and, where the deadline has passed unnoticed,
// what it decides.
func (c Answer) refuse(s *session.State, call *session.Call, now time.Time, refusal *problem.Error) ([]events.Record, error) {
	if s.Ended || call.Refusals >= MaxRefusals {
		return nil, refusal
	}
	payloads := []session.Payload{session.CallAnswerRefused{
		CallID: c.CallID, By: c.By, Decision: c.Decision, ArgsHash: c.Hash, Code: string(refusal.Code),
	}}
	if expired(call, now) {
		payloads = append(payloads, atDeadline(call, now)...)
	}
	rs, err := records(payloads...)
	if err != nil {
		return nil, err
	}
	return rs, refusal
}

// approversOf are those whom the rule asks: everybody with the role approver or
// admin where it names none.
func approversOf(call *session.Call) []string {
	if len(call.Asked.Approvers) > 0 {
		return call.Asked.Approvers
	}
	return []string{"role:approver", "role:admin"}
}

// claims are the names under which a rule may ask this person.
func (c Answer) claims() []string {
	claims := make([]string, 0, 1+len(c.Roles)+len(c.Groups))
	claims = append(claims, "user:"+c.By)
	for _, r := range c.Roles {
		claims = append(claims, "role:"+r)
	}
	for _, g := range c.Groups {
		claims = append(claims, "group:"+g)
	}
	return claims
}

// mayAnswer says whether the rule lets this person answer: one of its approvers,
// or with none named everybody whose role is approver or admin.
func (c Answer) mayAnswer(call *session.Call) bool {
	approvers := approversOf(call)
	return slices.ContainsFunc(c.claims(), func(claim string) bool { return slices.Contains(approvers, claim) })
}

// atDeadline is what the rule says of a question that nobody answered.
func atDeadline(call *session.Call, now time.Time) []session.Payload {
	if call.Asked.OnDeadline == "allow" {
		return approve(call, view.ByDeadline, now)
	}
	return []session.Payload{session.CallExpired{CallID: call.ID, Deadline: call.Asked.Deadline}}
}

// approve lets the call be executed. One of the client's tools is the client's from
// then on.
func approve(call *session.Call, by string, now time.Time) []session.Payload {
	until := now.Add(call.Asked.ExecuteWithin.D())
	payloads := []session.Payload{session.CallApproved{CallID: call.ID, By: by, ArgsHash: call.ArgsHash, ExecuteBy: until}}
	if call.ForClient() {
		payloads = append(payloads, session.CallDelegated{
			CallID: call.ID, ToolCallID: call.AgentCallID, RunID: call.RunID, Deadline: until,
		})
	}
	return payloads
}
