package decider

import (
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

// Decide takes the result of a delegated call once. The same result again changes
// nothing; one for a call that isn't the client's to run, or not any more, is
// refused.
func (c Deliver) Decide(s *session.State, now time.Time) ([]events.Record, error) {
	call := c.call(s)
	switch {
	case call == nil:
		return nil, problem.Newf(api.CodeNotFound, "there is no tool call %q of the client in this session", c.ToolCallID)
	case call.Completed != nil && c.same(call.Completed):
		return nil, nil
	case call.State != session.CallStateDelegated || s.Ending:
		return nil, problem.Newf(api.CodeIllegalTransition, "the tool call is %s and takes no result", call.State).In(string(call.State))
	case overdue(call, now):
		return nil, problem.New(api.CodeApprovalExpired, "the time to bring the result of the tool call has passed").In(string(call.State))
	}
	return records(session.CallCompleted{CallID: call.ID, Nonce: c.MessageID, Output: c.Content, Error: c.Error})
}

// call is the newest under the id: an agent that uses one twice means its last.
func (c Deliver) call(s *session.State) *session.Call {
	for _, id := range slices.Backward(s.CallOrder) {
		if call := s.Calls[id]; call.ForClient() && call.AgentCallID == c.ToolCallID {
			return call
		}
	}
	return nil
}

// same says that this message, or one that says the same, has come before.
func (c Deliver) same(done *session.CallCompleted) bool {
	return done.Nonce == c.MessageID || done.Output == c.Content && done.Error == c.Error
}
