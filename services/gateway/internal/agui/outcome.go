package agui

import (
	"encoding/json"
	"time"

	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/projections/view"
)

// outcome is that of a RUN_FINISHED.
type outcome struct {
	Type       string      `json:"type"`
	Pending    []string    `json:"pendingToolCallIds,omitempty"`
	Interrupts []interrupt `json:"interrupts,omitempty"`
}

func success(pending []string) outcome { return outcome{Type: "success", Pending: pending} }

func cancelled() outcome { return outcome{Type: "cancelled"} }

func interrupted(open []interrupt) outcome { return outcome{Type: "interrupt", Interrupts: open} }

// interrupt is AG-UI's: a question to people. Its id is the call's.
type interrupt struct {
	ID             string         `json:"id"`
	Reason         string         `json:"reason"`
	Message        string         `json:"message"`
	ToolCallID     string         `json:"toolCallId"`
	ResponseSchema map[string]any `json:"responseSchema"`
	ExpiresAt      string         `json:"expiresAt,omitempty"`
	Metadata       metadata       `json:"metadata"`
}

// metadata survives AG-UI's clients, so it has what a person should see before an
// answer: all of it from us, none of it in the agent's words.
type metadata struct {
	Holdfast view.Approval `json:"holdfast"`
}

// interruptOf words an open question.
func interruptOf(s *session.State, c *session.Call) interrupt {
	a := view.ApprovalOf(s, c)
	i := interrupt{
		ID: c.ID, Reason: "tool_call", Message: a.Message, ToolCallID: c.AgentCallID, ResponseSchema: responseSchema(a.ArgsHash),
		Metadata: metadata{Holdfast: a},
	}
	if i.Message == "" {
		i.Message = "The agent wants to run " + a.Tool + "."
	}
	if a.Deadline != nil {
		i.ExpiresAt = a.Deadline.UTC().Format(time.RFC3339)
	}
	return i
}

// responseSchema is what an answer to a question about these arguments looks like.
func responseSchema(hash string) map[string]any {
	return map[string]any{
		"type": "object", "required": []string{"approved"}, "additionalProperties": false,
		"properties": map[string]any{
			"approved": map[string]any{"type": "boolean", "description": "whether the call may be run, exactly as shown"},
			"argsHash": map[string]any{"const": hash, "description": "the SHA-256 of the arguments that were shown (RFC 8785)"},
			"comment":  map[string]any{"type": "string", "maxLength": maxComment, "description": "why; the agent is told"},
		},
	}
}

// awaited is what a thread waits for from outside; none of both where it is quiet or
// goes on by itself.
type awaited struct {
	interrupts []interrupt
	pending    []string
}

func (a awaited) any() bool { return len(a.interrupts)+len(a.pending) > 0 }

// awaitedBy lists what the parked run waits for, and the questions that an agent in
// an open run holds for.
func awaitedBy(s *session.State) awaited {
	var a awaited
	for _, id := range s.CallOrder {
		c := s.Calls[id]
		parked := s.Interrupted != nil && c.Root == s.Interrupted.Root
		held := s.Run != nil && c.RunID == s.Run.ID && c.Asked != nil && c.Asked.Mode == "hold"
		switch {
		case c.State == session.CallStatePending && (parked || held):
			a.interrupts = append(a.interrupts, interruptOf(s, c))
		case c.State == session.CallStateDelegated && parked:
			a.pending = append(a.pending, c.AgentCallID)
		}
	}
	return a
}

// outcome is the run's end that says so. Questions come first: AG-UI has no end that
// names both.
func (a awaited) outcome() outcome {
	if len(a.interrupts) > 0 {
		return interrupted(a.interrupts)
	}
	return success(a.pending)
}

// snapshot is the conversation for this client: its own messages under its own ids.
func (x *exchange) snapshot(parts ...[]json.RawMessage) []json.RawMessage {
	ours := make(map[string]string, len(x.in.Messages))
	for _, m := range x.in.Messages {
		ours[messageOf(x.id, m.ID)] = m.ID
	}
	var all []json.RawMessage
	for _, part := range parts {
		for _, m := range part {
			all = append(all, renamed(m, ours))
		}
	}
	return all
}

func renamed(m json.RawMessage, names map[string]string) json.RawMessage {
	var object map[string]json.RawMessage
	var id string
	if json.Unmarshal(m, &object) != nil || json.Unmarshal(object["id"], &id) != nil {
		return m
	}
	name, ok := names[id]
	if !ok {
		return m
	}
	quoted, err := json.Marshal(name)
	if err != nil {
		return m // a string is always JSON
	}
	object["id"] = quoted
	out, err := json.Marshal(object)
	if err != nil {
		return m
	}
	return out
}

// brought are the new messages and results of the request, as the log has them now.
func (x *exchange) brought() []json.RawMessage {
	var all []json.RawMessage
	add := func(m any) {
		if raw, err := json.Marshal(m); err == nil { // it was JSON when it came
			all = append(all, x.standing.mask.JSON(raw))
		}
	}
	for _, r := range x.news.results {
		add(struct {
			ID         string `json:"id"`
			Role       string `json:"role"`
			Content    string `json:"content"`
			ToolCallID string `json:"toolCallId"`
			Error      string `json:"error,omitempty"`
		}{r.MessageID, roleTool, r.Content, r.ToolCallID, r.Error})
	}
	for _, m := range x.news.messages {
		add(struct {
			ID      string          `json:"id"`
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		}{m.ID, roleUser, m.Content})
	}
	return all
}
