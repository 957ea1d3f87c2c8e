// Package runnertest opens the runner's decider to the simulation of all services
// (services/e2e/simulation). It is for tests and adds nothing of its own.
package runnertest

import "github.com/holdfast-io/holdfast/services/runner/internal/decider"

// ErrNotMine refuses a step of a run that is over or another instance's.
var ErrNotMine = decider.ErrNotMine

// The steps of a run, a client's cancel, and what the runner does by itself.
var (
	Settle     = decider.Settle
	TakeOver   = decider.TakeOver
	Record     = decider.Record
	Interrupt  = decider.Interrupt
	Finish     = decider.Finish
	Fail       = decider.Fail
	Cancel     = decider.Cancel
	Interested = decider.Interested
)
