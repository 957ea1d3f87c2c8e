package session

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/holdfast-io/holdfast/events"
)

// History is the fold that the next RunAgentInput is made of: the log owns the
// conversation. It is apart from State because only the runner needs it.
type History struct {
	// Messages are whole AG-UI message objects in the order of the conversation: a
	// user's message stands where its run started, not where it was queued.
	Messages []json.RawMessage
	// AgentState is the state that the last finished or interrupted run left; nil
	// before the first.
	AgentState json.RawMessage
	// Opened is how many messages there were when the open run had begun, those that
	// it answers included. What comes behind is that run's own.
	Opened int
	// Last is how the last run ended; nil before the first, and while one is open.
	Last *RunEnd

	queued map[string][]json.RawMessage // by run id
	// client maps the calls that a client runs to their ids in the conversation.
	client map[string]string
}

// RunEnd is how a run ended. Outcome is "success", "cancelled", "interrupt" or
// "failed", then with its Cause and Detail.
type RunEnd struct {
	RunID, Outcome, Cause, Detail string
}

// NewHistory gives the History of a session that doesn't exist yet.
func NewHistory() *History {
	return &History{queued: map[string][]json.RawMessage{}, client: map[string]string{}}
}

// Apply folds one message in.
func (h *History) Apply(m events.Message) error {
	for _, r := range m.Envelope.Events {
		p, err := Decode(r, m.Envelope.Service)
		if err != nil {
			return err
		}
		switch p := p.(type) {
		case MessageReceived:
			msg, err := events.Marshal(struct {
				ID      string          `json:"id"`
				Role    string          `json:"role"`
				Content json.RawMessage `json:"content"`
			}{p.MessageID, "user", p.Content})
			if err != nil {
				return fmt.Errorf("message %s: %w", p.MessageID, err)
			}
			h.queued[p.RunID] = append(h.queued[p.RunID], msg)
		case RunStarted:
			h.Messages = append(h.Messages, h.queued[p.RunID]...)
			delete(h.queued, p.RunID)
			h.Opened, h.Last = len(h.Messages), nil
		case RunMessageRecorded:
			h.Messages = append(h.Messages, p.Message)
		case RunInterrupted:
			h.keep(p.State)
			h.Last = &RunEnd{RunID: p.RunID, Outcome: "interrupt"}
		case RunFinished:
			delete(h.queued, p.RunID)
			h.keep(p.State)
			h.Last = &RunEnd{RunID: p.RunID, Outcome: p.Outcome}
		case RunFailed:
			h.Last = &RunEnd{RunID: p.RunID, Outcome: "failed", Cause: p.Cause, Detail: p.Detail}
		default:
			if err := h.call(p); err != nil {
				return err
			}
		}
	}
	return nil
}

func (h *History) keep(state json.RawMessage) {
	if len(state) > 0 {
		h.AgentState = state
	}
}

// Waiting are the messages of the runs that haven't started, by run.
func (h *History) Waiting(run string) []json.RawMessage { return h.queued[run] }

// call adds the result of a tool that the client runs, or why there is none: a tool
// call without a message that answers it is a conversation that models refuse.
func (h *History) call(p Payload) error {
	switch p := p.(type) {
	case CallProposed:
		if slices.Contains(p.Modes, ModeDelegate) {
			h.client[p.CallID] = p.AgentCallID
		}
	case CallDelegated:
		h.client[p.CallID] = p.ToolCallID
	case CallCompleted:
		return h.result(p.CallID, p.Nonce, p.Output, p.Error)
	case CallDecided:
		if p.Decision == "deny" {
			return h.noResult(p.CallID, "denied by the policy", p.Reason)
		}
	case CallDenied:
		return h.noResult(p.CallID, "denied", p.Reason)
	case CallExpired:
		return h.noResult(p.CallID, "nobody allowed it in time", "")
	case CallCancelled:
		return h.noResult(p.CallID, "cancelled", p.Cause)
	case CallSuperseded:
		return h.noResult(p.CallID, "superseded by another call", "")
	case CallLapsed:
		return h.noResult(p.CallID, "no result", p.Cause)
	default: // nothing else is part of the conversation
	}
	return nil
}

func (h *History) noResult(callID, what, why string) error {
	if why != "" {
		what += ": " + why
	}
	return h.result(callID, events.HashID(events.PrefixMessage, callID, "no result"), what, what)
}

// result adds a tool's message for a call that is the client's.
func (h *History) result(callID, messageID, content, failure string) error {
	toolCall, ok := h.client[callID]
	if !ok {
		return nil
	}
	delete(h.client, callID)
	msg, err := events.Marshal(struct {
		ID         string `json:"id"`
		Role       string `json:"role"`
		Content    string `json:"content"`
		ToolCallID string `json:"toolCallId"`
		Error      string `json:"error,omitempty"`
	}{messageID, "tool", content, toolCall, failure})
	if err != nil {
		return fmt.Errorf("result of call %s: %w", callID, err)
	}
	h.Messages = append(h.Messages, msg)
	return nil
}
