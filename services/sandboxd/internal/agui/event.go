package agui

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// The event types that Holdfast itself reads or writes.
const (
	TypeRunStarted    = "RUN_STARTED"
	TypeRunFinished   = "RUN_FINISHED"
	TypeRunError      = "RUN_ERROR"
	TypeTextStart     = "TEXT_MESSAGE_START"
	TypeTextContent   = "TEXT_MESSAGE_CONTENT"
	TypeTextEnd       = "TEXT_MESSAGE_END"
	TypeToolStart     = "TOOL_CALL_START"
	TypeToolArgs      = "TOOL_CALL_ARGS"
	TypeToolEnd       = "TOOL_CALL_END"
	TypeToolResult    = "TOOL_CALL_RESULT"
	TypeStateSnapshot = "STATE_SNAPSHOT"
	TypeStateDelta    = "STATE_DELTA"
	TypeTextChunk     = "TEXT_MESSAGE_CHUNK"
	TypeToolChunk     = "TOOL_CALL_CHUNK"

	typeReasoningStart   = "REASONING_MESSAGE_START"
	typeReasoningContent = "REASONING_MESSAGE_CONTENT"
	typeReasoningEnd     = "REASONING_MESSAGE_END"
	typeReasoningChunk   = "REASONING_MESSAGE_CHUNK"
)

// Outcome is how a RUN_FINISHED ended.
type Outcome struct {
	Type       string      `json:"type"`
	Interrupts []Interrupt `json:"interrupts,omitempty"`
}

// Interrupt is a question that a run ended with.
type Interrupt struct {
	ID         string `json:"id"`
	Reason     string `json:"reason"`
	Message    string `json:"message,omitempty"`
	ToolCallID string `json:"toolCallId,omitempty"`
}

// RunInput is the part of RunAgentInput that Holdfast's own side reads.
type RunInput struct {
	ThreadID    string          `json:"threadId"`
	RunID       string          `json:"runId"`
	ParentRunID string          `json:"parentRunId,omitempty"`
	State       json.RawMessage `json:"state,omitempty"`
	Messages    []Message       `json:"messages,omitempty"`
	Resume      []Resume        `json:"resume,omitempty"`
}

// Message is one message of the history. Content is a string, or an array of
// parts for a user's message.
type Message struct {
	ID      string          `json:"id"`
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content,omitempty"`
}

// The states of a [Resume].
const (
	ResumeResolved  = "resolved"
	ResumeCancelled = "cancelled"
)

// Resume answers one interrupt of the run before.
type Resume struct {
	InterruptID string          `json:"interruptId"`
	Status      string          `json:"status"`
	Payload     json.RawMessage `json:"payload,omitempty"`
}

// Text joins the text of a message's content; parts that aren't text are skipped.
func (m Message) Text() (string, error) {
	if len(m.Content) == 0 {
		return "", nil
	}
	var plain string
	if json.Unmarshal(m.Content, &plain) == nil {
		return plain, nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(m.Content, &parts); err != nil {
		return "", fmt.Errorf("content of message %.64q: %w", m.ID, err)
	}
	var text strings.Builder
	for _, p := range parts {
		if p.Type == "text" {
			text.WriteString(p.Text)
		}
	}
	return text.String(), nil
}

// RunStarted makes the event that opens a run.
func RunStarted(threadID, runID string) []byte {
	return Encode(map[string]string{"type": TypeRunStarted, "threadId": threadID, "runId": runID})
}

// RunFinished makes the event that ends a run in order.
func RunFinished(threadID, runID string, outcome Outcome) []byte {
	return Encode(struct {
		Type     string  `json:"type"`
		ThreadID string  `json:"threadId"`
		RunID    string  `json:"runId"`
		Outcome  Outcome `json:"outcome"`
	}{TypeRunFinished, threadID, runID, outcome})
}

// RunError makes the event that ends a run which failed. The code is
// machine-readable, kebab-case.
func RunError(code, message string) []byte {
	return Encode(map[string]string{"type": TypeRunError, "code": code, "message": message})
}

// Encode makes an event of a value that JSON can always hold. Text stays as it
// is, without the escapes that only HTML would need.
func Encode(v any) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("agui: encode %T: %v", v, err))
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}
