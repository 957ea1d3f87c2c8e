package view

import (
	"encoding/json"
	"strings"
	"time"
)

// Message is one message of the conversation: what people sent, and the completed
// messages of the agent.
type Message struct {
	ID      string `json:"id"`
	Session string `json:"session"`
	RunID   string `json:"runId"`
	// Role is AG-UI's.
	Role      string `json:"role"`
	Content   string `json:"content"`
	Requester string `json:"requester,omitempty"`
	// ToolCalls are those of an assistant's message, ToolCallID what a tool's
	// message answers.
	ToolCalls  []json.RawMessage `json:"toolCalls,omitempty"`
	ToolCallID string            `json:"toolCallId,omitempty"`
	Time       time.Time         `json:"time"`
	N          uint64            `json:"n"`
}

// RunState is where a run stands, in the API's words.
type RunState string

// The states of a run.
const (
	RunQueued      RunState = "queued"
	RunStarted     RunState = "started"
	RunInterrupted RunState = "interrupted"
	RunFinished    RunState = "finished"
	RunFailed      RunState = "failed"
	RunCancelled   RunState = "cancelled"
)

// Run is one turn of the agent. Calls are what an interrupted run waits for.
type Run struct {
	ID          string   `json:"id"`
	Session     string   `json:"session"`
	ParentRunID string   `json:"parentRunId,omitempty"`
	State       RunState `json:"state"`
	Requester   string   `json:"requester,omitempty"`
	Cause       string   `json:"cause,omitempty"`
	// Detail is the beginning of what the failure's event says; see [Masker.Detail].
	Detail    string     `json:"detail,omitempty"`
	Calls     []string   `json:"calls,omitempty"`
	StartedAt *time.Time `json:"startedAt,omitempty"`
	EndedAt   *time.Time `json:"endedAt,omitempty"`
	N         uint64     `json:"n"`
}

// MaxDetail is how many characters of a failure's detail a list shows. The event has
// all of it.
const MaxDetail = 2000

// Detail gives the beginning of a detail that an agent may have worded, masked and made
// visible; "…" stands for what is left out.
func (m Masker) Detail(s string) string {
	shown := []rune(Visible(m.Text(s)))
	if len(shown) <= MaxDetail {
		return string(shown)
	}
	return string(shown[:MaxDetail-1]) + "…"
}

// aguiMessage is what of an AG-UI message object is shown.
type aguiMessage struct {
	Content    json.RawMessage   `json:"content"`
	ToolCalls  []json.RawMessage `json:"toolCalls"`
	ToolCallID string            `json:"toolCallId"`
}

// Say fills in content and tool calls from a whole AG-UI message object, masked.
// A message that isn't an object is shown as its text.
func (m *Message) Say(mask Masker, object json.RawMessage) {
	var a aguiMessage
	if err := json.Unmarshal(object, &a); err != nil {
		m.Content = Visible(mask.Text(string(object)))
		return
	}
	m.Content, m.ToolCallID = text(mask, a.Content), a.ToolCallID
	for _, c := range a.ToolCalls {
		m.ToolCalls = append(m.ToolCalls, mask.JSON(c))
	}
}

// SayText fills in content alone: a string, or an array of AG-UI's content parts.
func (m *Message) SayText(mask Masker, content json.RawMessage) { m.Content = text(mask, content) }

// text gives the readable text of an AG-UI content: a string, or the text parts
// of an array, others by their type.
func text(mask Masker, content json.RawMessage) string {
	if len(content) == 0 || string(content) == "null" {
		return ""
	}
	var s string
	if json.Unmarshal(content, &s) == nil {
		return Visible(mask.Text(s))
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(content, &parts) != nil {
		return Visible(mask.Text(string(content)))
	}
	var b strings.Builder
	for i, p := range parts {
		if i > 0 {
			b.WriteByte('\n')
		}
		if p.Text == "" && p.Type != "text" {
			b.WriteString("[" + p.Type + "]")
			continue
		}
		b.WriteString(p.Text)
	}
	return Visible(mask.Text(b.String()))
}
