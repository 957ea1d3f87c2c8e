// Package transcript reads a run's AG-UI 1.0 events in order and says what of
// them is for the log: the messages that are complete, the agent's state, and how
// the run ended. What an agent streams piece by piece is its own affair until the
// piece is whole.
package transcript

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"github.com/holdfast-io/holdfast/events"
)

// What a run may make its reader hold: of one message, of all that is open at once,
// with the calls that are left to the client, and of the state, which each delta
// rewrites.
const (
	MaxMessage = 16 << 20
	MaxHeld    = 2 * MaxMessage
	// MaxUnanswered bounds the calls that may wait for the client: each is put to the
	// policy by itself.
	MaxUnanswered = 1000
	MaxState      = 256 << 10
)

// errTooLong and errStateTooLarge say which bound an agent broke.
var (
	errTooMuchOpen   = fmt.Errorf("messages and tool calls that are open, or wait for the client, may have at most %d bytes together", MaxHeld)
	errTooMany       = fmt.Errorf("at most %d tool calls may wait for the client", MaxUnanswered)
	errTooLong       = fmt.Errorf("a message may have at most %d bytes", MaxMessage)
	errStateTooLarge = fmt.Errorf("the state may have at most %d bytes", MaxState)
)

// Message is a completed AG-UI message object.
type Message struct {
	ID, Role string
	Raw      json.RawMessage
}

// Ending is how the agent ended its run.
type Ending struct {
	// Outcome is "success", "interrupt", "cancelled" or "error".
	Outcome string
	// Interrupts are the open ones as the agent worded them, Calls their ids.
	Interrupts json.RawMessage
	Calls      []string
	// Pending are the ids of the tool calls that the client is to run; nil where the
	// agent named none.
	Pending []string
	// Detail is the message of a RUN_ERROR.
	Detail string
}

// Transcript follows one run. Its zero value is not usable; see New.
type Transcript struct {
	state json.RawMessage
	texts map[string]*text
	calls map[string]*toolCall
	// offered are the tools that the client runs, unanswered the calls of those that
	// are whole and have no result, in order: a run may make any number of calls, and
	// the others needn't be held.
	offered    []string
	unanswered []ToolCall
	held       int // bytes of texts, calls and unanswered
	ending     *Ending
}

// ToolCall is a whole tool call as the agent said it. Args are what it streamed:
// nobody has checked that they are JSON.
type ToolCall struct {
	ID, Name, Args string
}

type text struct {
	role    string
	content strings.Builder
}

type toolCall struct {
	name, parent string
	args         strings.Builder
}

// New starts a transcript with the state that the run was given. offered are the names
// of the tools that its client runs.
func New(state json.RawMessage, offered ...string) *Transcript {
	return &Transcript{state: state, offered: offered, texts: map[string]*text{}, calls: map[string]*toolCall{}}
}

// State is the agent's state so far; nil where it never had one.
func (t *Transcript) State() json.RawMessage { return t.state }

// Unanswered are the run's calls of its client's tools that have no result, in their
// order.
func (t *Transcript) Unanswered() []ToolCall { return t.unanswered }

// Ending is set once the terminal event was read.
func (t *Transcript) Ending() *Ending { return t.ending }

// event has the fields of the AG-UI events that matter here.
type event struct {
	Type            string          `json:"type"`
	MessageID       string          `json:"messageId"`
	Role            string          `json:"role"`
	Delta           json.RawMessage `json:"delta"`
	ToolCallID      string          `json:"toolCallId"`
	ToolCallName    string          `json:"toolCallName"`
	ParentMessageID string          `json:"parentMessageId"`
	Content         json.RawMessage `json:"content"`
	Snapshot        json.RawMessage `json:"snapshot"`
	Message         string          `json:"message"`
	Outcome         *struct {
		Type       string          `json:"type"`
		Interrupts json.RawMessage `json:"interrupts"`
		Pending    []string        `json:"pendingToolCallIds"`
	} `json:"outcome"`
}

// Read takes the next event and gives the message that it completes, if any. An
// error says that the event can't be understood where it must be.
func (t *Transcript) Read(raw json.RawMessage) (*Message, error) {
	var e event
	if err := json.Unmarshal(raw, &e); err != nil {
		return nil, fmt.Errorf("event: %w", err)
	}
	switch e.Type {
	case "TEXT_MESSAGE_START":
		role := e.Role
		if role == "" {
			role = "assistant"
		}
		t.texts[e.MessageID] = &text{role: role}
	case "TEXT_MESSAGE_CONTENT":
		return nil, t.appendText(e)
	case "TEXT_MESSAGE_END":
		return t.endText(e)
	case "TOOL_CALL_START":
		t.calls[e.ToolCallID] = &toolCall{name: e.ToolCallName, parent: e.ParentMessageID}
	case "TOOL_CALL_ARGS":
		return nil, t.appendArgs(e)
	case "TOOL_CALL_END":
		return t.endCall(e)
	case "TOOL_CALL_RESULT":
		return t.toolResult(e)
	case "STATE_SNAPSHOT":
		return nil, t.keep(e.Snapshot)
	case "STATE_DELTA":
		return nil, t.patch(e.Delta)
	case "RUN_FINISHED":
		return nil, t.finish(e)
	case "RUN_ERROR":
		t.ending = &Ending{Outcome: "error", Detail: e.Message}
	}
	return nil, nil
}

func (t *Transcript) appendText(e event) error {
	m := t.texts[e.MessageID]
	if m == nil {
		return nil // sandboxd has checked the order; a stray piece is nobody's
	}
	return t.appendDelta(&m.content, e.Delta)
}

func (t *Transcript) appendArgs(e event) error {
	c := t.calls[e.ToolCallID]
	if c == nil {
		return nil
	}
	return t.appendDelta(&c.args, e.Delta)
}

func (t *Transcript) appendDelta(to *strings.Builder, delta json.RawMessage) error {
	var s string
	if err := json.Unmarshal(delta, &s); err != nil {
		return fmt.Errorf("delta has to be a string: %w", err)
	}
	if to.Len()+len(s) > MaxMessage {
		return errTooLong
	}
	if t.held += len(s); t.held > MaxHeld {
		return errTooMuchOpen
	}
	to.WriteString(s)
	return nil
}

func (t *Transcript) endText(e event) (*Message, error) {
	m := t.texts[e.MessageID]
	if m == nil {
		return nil, nil
	}
	delete(t.texts, e.MessageID)
	t.held -= m.content.Len()
	return message(e.MessageID, m.role, map[string]any{"content": m.content.String()})
}

func (t *Transcript) endCall(e event) (*Message, error) {
	c := t.calls[e.ToolCallID]
	if c == nil {
		return nil, nil
	}
	delete(t.calls, e.ToolCallID)
	if slices.Contains(t.offered, c.name) {
		if len(t.unanswered) == MaxUnanswered {
			return nil, errTooMany
		}
		t.unanswered = append(t.unanswered, ToolCall{ID: e.ToolCallID, Name: c.name, Args: c.args.String()})
	} else {
		t.held -= c.args.Len()
	}
	// A tool call is a part of an assistant's message; one of its own where the
	// agent named no parent, or where the parent's text was completed before it.
	id := "call-" + e.ToolCallID
	return message(id, "assistant", map[string]any{"toolCalls": []map[string]any{{
		"id": e.ToolCallID, "type": "function",
		"function": map[string]string{"name": c.name, "arguments": c.args.String()},
	}}})
}

func (t *Transcript) toolResult(e event) (*Message, error) {
	t.unanswered = slices.DeleteFunc(t.unanswered, func(c ToolCall) bool {
		if c.ID != e.ToolCallID {
			return false
		}
		t.held -= len(c.Args)
		return true
	})
	var content any
	if err := json.Unmarshal(e.Content, &content); err != nil {
		return nil, fmt.Errorf("content of a tool's result: %w", err)
	}
	return message(e.MessageID, "tool", map[string]any{"content": content, "toolCallId": e.ToolCallID})
}

func message(id, role string, fields map[string]any) (*Message, error) {
	fields["id"], fields["role"] = id, role
	raw, err := events.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("message %s: %w", id, err)
	}
	if len(raw) > MaxMessage { // its escapes count
		return nil, errTooLong
	}
	return &Message{ID: id, Role: role, Raw: raw}, nil
}

func (t *Transcript) patch(delta json.RawMessage) error {
	patch, err := jsonpatch.DecodePatch(delta)
	if err != nil {
		return fmt.Errorf("state delta: %w", err)
	}
	state := t.state
	if len(state) == 0 {
		state = json.RawMessage(`{}`)
	}
	// A copy of the whole into itself doubles it, so copies are bounded too.
	options := jsonpatch.NewApplyOptions()
	options.AccumulatedCopySizeLimit = MaxState
	if state, err = patch.ApplyWithOptions(state, options); err != nil {
		return fmt.Errorf("state delta: %w", err)
	}
	return t.keep(state)
}

func (t *Transcript) keep(state json.RawMessage) error {
	if len(state) > MaxState {
		return errStateTooLarge
	}
	t.state = state
	return nil
}

func (t *Transcript) finish(e event) error {
	t.ending = &Ending{Outcome: "success"}
	if e.Outcome == nil || e.Outcome.Type == "" {
		return nil
	}
	t.ending.Outcome, t.ending.Pending = e.Outcome.Type, e.Outcome.Pending
	if e.Outcome.Type != "interrupt" {
		return nil
	}
	var open []struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(e.Outcome.Interrupts, &open); err != nil {
		return fmt.Errorf("interrupts: %w", err)
	}
	t.ending.Interrupts = e.Outcome.Interrupts
	for _, i := range open {
		t.ending.Calls = append(t.ending.Calls, i.ID)
	}
	return nil
}
