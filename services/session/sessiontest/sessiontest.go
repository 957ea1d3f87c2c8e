// Package sessiontest opens the session service's decider to the simulation of all
// services (services/e2e/simulation). It is for tests and adds nothing of its own.
package sessiontest

import "github.com/holdfast-io/holdfast/services/session/internal/decider"

// The commands of the session service.
type (
	Create       = decider.Create
	Send         = decider.Send
	Suspend      = decider.Suspend
	Resume       = decider.Resume
	Extend       = decider.Extend
	Terminate    = decider.Terminate
	NoteActivity = decider.NoteActivity
	WhenBusy     = decider.WhenBusy
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
