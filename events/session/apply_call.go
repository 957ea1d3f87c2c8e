package session

import "github.com/holdfast-io/holdfast/events"

func (s *State) evolveCall(meta events.Meta, p Payload) {
	switch p := p.(type) {
	case CallProposed:
		root := p.RunID
		if s.Run != nil && s.Run.ID == p.RunID {
			root = s.Run.Root
		}
		s.Calls[p.CallID] = &Call{
			ID: p.CallID, AgentCallID: p.AgentCallID, RunID: p.RunID, Root: root, Tool: p.Tool, Args: p.Args, ArgsHash: p.ArgsHash,
			Requester: p.Requester, Modes: p.Modes, State: CallStateProposed, ProposedAt: meta.Time, ProposedN: meta.N,
			At: meta.Time, N: meta.N,
		}
		s.CallOrder = append(s.CallOrder, p.CallID)
		s.open++
	case CallDecided:
		s.moveCall(meta, p.CallID, decidedState(p.Decision), func(c *Call) {
			c.Decision, c.Rule, c.Policy, c.Revision = p.Decision, p.Rule, p.Policy, p.Revision
			c.Enforcement, c.Reason, c.ExecuteBy = p.Enforcement, p.Reason, p.ExecuteBy
		})
	case CallHumanConfirmRequired:
		s.moveCall(meta, p.CallID, CallStatePending, func(c *Call) { c.Asked = &p })
	case CallVoteCast:
		s.moveCall(meta, p.CallID, "", func(c *Call) {
			c.Answer = &Answer{Decision: p.Decision, By: p.By, Comment: p.Comment, At: meta.Time, ArgsHash: p.ArgsHash}
		})
	case CallAnswerRefused:
		s.moveCall(meta, p.CallID, "", func(c *Call) { c.Refusals++ })
	case CallApproved:
		s.moveCall(meta, p.CallID, CallStateApproved, func(c *Call) {
			c.ExecuteBy = p.ExecuteBy
			if c.Answer == nil { // the rule allows at the deadline
				c.Answer = &Answer{Decision: "approve", By: p.By, At: meta.Time, ArgsHash: p.ArgsHash}
			}
		})
	case CallDenied:
		s.moveCall(meta, p.CallID, CallStateDenied, func(c *Call) {
			if c.Answer == nil {
				c.Answer = &Answer{Decision: "deny", By: p.By, Comment: p.Reason, At: meta.Time, ArgsHash: c.ArgsHash}
			}
		})
	case CallExpired:
		s.moveCall(meta, p.CallID, CallStateExpired, func(*Call) {})
	case CallCancelled:
		s.moveCall(meta, p.CallID, CallStateCancelled, func(c *Call) { c.Reason = p.Cause })
	case CallSuperseded:
		s.moveCall(meta, p.CallID, CallStateSuperseded, func(*Call) {})
	case CallStarted:
		s.moveCall(meta, p.CallID, CallStateStarted, func(c *Call) {
			c.Nonce, c.StartedIn, c.StartedAt = p.Nonce, p.RunID, meta.Time
		})
	case CallDelegated:
		s.moveCall(meta, p.CallID, CallStateDelegated, func(c *Call) { c.Delegated, c.ExecuteBy = true, p.Deadline })
	case CallCompleted:
		s.moveCall(meta, p.CallID, CallStateCompleted, func(c *Call) { c.Completed = &p })
	case CallLapsed:
		s.moveCall(meta, p.CallID, CallStateLapsed, func(c *Call) { c.Reason = p.Kind })
	default: // nothing else is of its concern
	}
}

func decidedState(decision string) CallState {
	switch decision {
	case "allow":
		return CallStateAllowed
	case "deny":
		return CallStateDenied
	}
	return CallStateProposed // asked: human-confirm-required follows in the same envelope
}

// moveCall changes a call and keeps the counts; to "" leaves its state.
func (s *State) moveCall(meta events.Meta, id string, to CallState, change func(*Call)) {
	c := s.Calls[id]
	if c == nil {
		return // a log that names an unknown call; the invariants' checker reports it
	}
	change(c)
	if to == "" || to == c.State {
		return
	}
	if c.State == CallStatePending {
		s.pending--
	}
	if to == CallStatePending {
		s.pending++
	}
	if to.Final() && !c.State.Final() {
		s.open--
	}
	c.State, c.At, c.N = to, meta.Time, meta.N
}
