package session

import (
	"encoding/json"
	"fmt"

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
	queued     map[string]json.RawMessage // by run id
}

// NewHistory gives the History of a session that doesn't exist yet.
func NewHistory() *History { return &History{queued: map[string]json.RawMessage{}} }

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
			h.queued[p.RunID] = msg
		case RunStarted:
			if msg, ok := h.queued[p.RunID]; ok {
				h.Messages = append(h.Messages, msg)
				delete(h.queued, p.RunID)
			}
		case RunMessageRecorded:
			h.Messages = append(h.Messages, p.Message)
		case RunInterrupted:
			h.keep(p.State)
		case RunFinished:
			delete(h.queued, p.RunID)
			h.keep(p.State)
		default: // nothing else is part of the conversation
		}
	}
	return nil
}

func (h *History) keep(state json.RawMessage) {
	if len(state) > 0 {
		h.AgentState = state
	}
}
