// Package sessiontest opens the session service's decider to the simulation of all
// services (services/e2e/simulation). It is for tests and adds nothing of its own.
package sessiontest

import "github.com/holdfast-io/holdfast/services/session/internal/decider"

// The commands of the session service.
type (
	// Create starts a session.
	Create = decider.Create
	// Send queues a message.
	Send = decider.Send
	// Message is one of a Send's.
	Message = decider.Message
	// Suspend puts the sandbox away.
	Suspend = decider.Suspend
	// Resume wants it back.
	Resume = decider.Resume
	// Extend moves deadlines.
	Extend = decider.Extend
	// Terminate ends the session.
	Terminate = decider.Terminate
	// NoteActivity says that the sandbox is used.
	NoteActivity = decider.NoteActivity
	// WhenBusy says what a message does beside an open run.
	WhenBusy = decider.WhenBusy
)

// The ways to treat a busy session.
const (
	Queue       = decider.Queue
	Reject      = decider.Reject
	CancelFirst = decider.CancelFirst
)

// What the service does by itself.
var (
	Settle     = decider.Settle
	Due        = decider.Due
	Interested = decider.Interested
)
