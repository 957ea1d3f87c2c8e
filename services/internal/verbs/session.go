package verbs

import (
	"encoding/json"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
)

// The verbs of the session service.
const (
	Create       = "create"
	Send         = "send"
	Suspend      = "suspend"
	Resume       = "resume"
	Extend       = "extend"
	Terminate    = "terminate"
	NoteActivity = "note-activity"
)

// CreateBody is the body of Create; the session's id is the request's.
type CreateBody struct {
	Runtime     string            `json:"runtime"`
	Message     json.RawMessage   `json:"message,omitempty"`
	Config      json.RawMessage   `json:"config,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Parent      string            `json:"parent,omitempty"`
	IdleTimeout *events.Duration  `json:"idleTimeout,omitempty"`
	MaxDuration *events.Duration  `json:"maxDuration,omitempty"`
	// BodyHash is over the client's body, to tell another one under the same key.
	BodyHash string `json:"bodyHash,omitempty"`
}

// CreateResult answers Create.
type CreateResult struct {
	Session string `json:"session"`
	RunID   string `json:"runId,omitempty"`
	Created bool   `json:"created"`
}

// SendBody is the body of Send: Content, or the Messages of one run with ids of
// their own. WhenBusy is queue (where empty), reject or cancel. Tools are those
// that the client runs itself. RunID, if it isn't empty, names the run.
type SendBody struct {
	Content  json.RawMessage `json:"content,omitempty"`
	Messages []UserMessage   `json:"messages,omitempty"`
	RunID    string          `json:"runId,omitempty"`
	Tools    []session.Tool  `json:"tools,omitempty"`
	WhenBusy string          `json:"whenBusy,omitempty"`
	BodyHash string          `json:"bodyHash,omitempty"`
}

// UserMessage is a person's message with its id.
type UserMessage struct {
	ID      string          `json:"id"`
	Content json.RawMessage `json:"content"`
}

// SendResult answers Send.
type SendResult struct {
	MessageID string `json:"messageId"`
	RunID     string `json:"runId"`
}

// ExtendBody is the body of Extend: durations from now.
type ExtendBody struct {
	Max  *events.Duration `json:"max,omitempty"`
	Idle *events.Duration `json:"idle,omitempty"`
}

// TerminateBody is the body of Terminate.
type TerminateBody struct {
	Reason string `json:"reason,omitempty"`
}

// ActivityBody is the body of NoteActivity; the zero time releases.
type ActivityBody struct {
	Holder string    `json:"holder"`
	Until  time.Time `json:"until"`
}
