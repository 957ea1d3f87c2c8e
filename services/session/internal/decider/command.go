package decider

import (
	"encoding/json"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
)

// Create starts a session under the terms of a runtime's revision.
type Create struct {
	Owner    string
	Runtime  session.RuntimeRef
	Terms    session.Terms
	Config   json.RawMessage
	Labels   map[string]string
	Parent   string
	BodyHash string
	// Message, if there is one, is queued in the same envelope.
	Message *Send
}

// WhenBusy says what a message does while a run is open.
type WhenBusy string

// The ways to treat a busy session; queue is the default.
const (
	Queue  WhenBusy = "queue"
	Reject WhenBusy = "reject"
	// CancelFirst queues too; the runner is asked to cancel the open run.
	CancelFirst WhenBusy = "cancel"
)

// Message is one message of a user.
type Message struct {
	ID      string
	Content json.RawMessage
}

// Send queues a user's messages, at least one, as one run.
type Send struct {
	Messages  []Message
	RunID     string
	Requester string
	// Tools are those that the client runs itself.
	Tools    []session.Tool
	WhenBusy WhenBusy
	BodyHash string
}

// Suspend wants the sandbox put away at a client's request.
type Suspend struct{}

// Resume wants it back at a client's request.
type Resume struct{}

// Extend moves the maximum age or the idle timeout, each counted from now.
type Extend struct {
	Max, Idle *events.Duration
}

// Terminate ends the session.
type Terminate struct{ Reason string }

// NoteActivity says that Holder uses the sandbox until a time; zero releases.
type NoteActivity struct {
	Holder string
	Until  time.Time
}
