package decider

import (
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

// Decide lets the agent go at most once: the event is in the log before it is
// told. The same nonce gets the same answer while the call is under way.
func (c Start) Decide(s *session.State, now time.Time) ([]events.Record, error) {
	call := s.Calls[c.CallID]
	if call == nil {
		return nil, notFound()
	}
	if err := openRun(s, c.RunID); err != nil {
		return nil, err
	}
	switch {
	case c.Nonce == "":
		return nil, problem.New(api.CodeInvalidRequest, "a start needs a nonce of its own").At("/nonce", "is empty")
	case call.State == session.CallStateStarted && call.Nonce == c.Nonce && call.ArgsHash == c.Hash:
		return nil, nil
	case call.State == session.CallStateStarted || call.State == session.CallStateCompleted:
		return nil, problem.New(api.CodeAlreadyStarted, "the call was started before; it is executed at most once").In(string(call.State))
	case call.Root != s.Run.Root:
		return nil, problem.New(api.CodeIllegalTransition, "the call belongs to another run").In(string(call.State))
	case c.Hash != call.ArgsHash:
		return nil, problem.New(api.CodeArgsChanged, "the arguments are not those that were decided; propose the new ones")
	case call.State != session.CallStateAllowed && call.State != session.CallStateApproved:
		return nil, problem.Newf(api.CodeIllegalTransition, "a call that is %s can't be started", call.State).In(string(call.State))
	case !call.ExecuteBy.IsZero() && !now.Before(call.ExecuteBy):
		return nil, problem.New(api.CodeApprovalExpired, "the time to start the call has passed; propose it again").In(string(call.State))
	}
	return records(session.CallStarted{CallID: c.CallID, RunID: c.RunID, Nonce: c.Nonce, ArgsHash: c.Hash})
}

// Decide takes the result of a started call once.
func (c Complete) Decide(s *session.State, _ time.Time) ([]events.Record, error) {
	call := s.Calls[c.Result.CallID]
	switch {
	case call == nil:
		return nil, notFound()
	case call.State == session.CallStateCompleted && call.Nonce == c.Result.Nonce:
		return nil, nil
	case call.State != session.CallStateStarted:
		return nil, problem.Newf(api.CodeIllegalTransition, "a call that is %s can't be completed", call.State).In(string(call.State))
	case call.Nonce != c.Result.Nonce || call.StartedIn != c.RunID:
		return nil, problem.New(api.CodeAlreadyStarted, "the call was started under another nonce or run").In(string(call.State))
	}
	return records(c.Result)
}

// Settle closes what can't go on: questions of an ending session or of a chain
// of runs that is over, and calls that such a chain left without a start or a
// result.
func Settle(s *session.State, _ time.Time) ([]events.Record, error) {
	if !s.Exists() || s.Ended || s.OpenCalls() == 0 {
		return nil, nil
	}
	var payloads []session.Payload
	for _, id := range s.CallOrder {
		if p := closing(s, s.Calls[id]); p != nil {
			payloads = append(payloads, p)
		}
	}
	if len(payloads) == 0 {
		return nil, nil
	}
	return records(payloads...)
}

func closing(s *session.State, call *session.Call) session.Payload {
	dead := !s.ChainOpen(call.Root)
	if call.State.Final() || (!dead && !s.Ending) {
		return nil
	}
	cause := "run is over"
	if s.Ending {
		cause = "session is ending"
	}
	switch call.State {
	case session.CallStatePending, session.CallStateProposed:
		return session.CallCancelled{CallID: call.ID, Cause: cause}
	case session.CallStateAllowed, session.CallStateApproved:
		return session.CallLapsed{CallID: call.ID, Kind: "unstarted", Cause: cause}
	case session.CallStateDelegated:
		return session.CallLapsed{CallID: call.ID, Kind: "unfinished", Cause: cause}
	case session.CallStateStarted:
		if dead { // else the run may still report it
			return session.CallLapsed{CallID: call.ID, Kind: "unfinished", Cause: cause}
		}
	case session.CallStateDenied, session.CallStateExpired, session.CallStateCancelled,
		session.CallStateSuperseded, session.CallStateCompleted, session.CallStateLapsed:
	}
	return nil
}

// Due decides a deadline of a call that has passed; it is checked here again.
func Due(d session.Deadline) func(*session.State, time.Time) ([]events.Record, error) {
	return func(s *session.State, now time.Time) ([]events.Record, error) {
		call := s.Calls[d.Key]
		if call == nil || s.Ending || s.Ended {
			return nil, nil
		}
		switch {
		case d.Kind == session.DeadlineApproval && expired(call, now):
			return records(atDeadline(call, now)...)
		case d.Kind == session.DeadlineExecution && overdue(call, now) && call.State == session.CallStateDelegated:
			return records(session.CallLapsed{CallID: call.ID, Kind: "unfinished", Cause: "the client brought no result in time"})
		case d.Kind == session.DeadlineExecution && overdue(call, now):
			return records(session.CallLapsed{CallID: call.ID, Kind: "unstarted", Cause: "not started in time"})
		}
		return nil, nil
	}
}

func overdue(call *session.Call, now time.Time) bool {
	waits := []session.CallState{session.CallStateAllowed, session.CallStateApproved, session.CallStateDelegated}
	return slices.Contains(waits, call.State) && !call.ExecuteBy.IsZero() && !now.Before(call.ExecuteBy)
}
