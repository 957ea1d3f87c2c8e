// Package workloadtest opens the workload service's decider to the simulation of
// all services (services/e2e/simulation). It is for tests and adds nothing of its
// own.
package workloadtest

import "github.com/holdfast-io/holdfast/services/workload/internal/decider"

// Action is what the service does next to a sandbox.
type Action = decider.Action

// The actions.
const (
	Nothing = decider.Nothing
	Request = decider.Request
	Claim   = decider.Claim
	Ready   = decider.Ready
	Suspend = decider.Suspend
	Resume  = decider.Resume
	Release = decider.Release
	Verify  = decider.Verify
	Clear   = decider.Clear
)

// ErrOvertaken refuses a step where the session has moved on.
var ErrOvertaken = decider.ErrOvertaken

// The plan, and what is appended of carried-out effects.
var (
	Plan        = decider.Plan
	RequestNext = decider.RequestNext
	Claimed     = decider.Claimed
	BecameReady = decider.BecameReady
	Resumed     = decider.Resumed
	Suspended   = decider.Suspended
	Released    = decider.Released
	Failed      = decider.Failed
	Lost        = decider.Lost
	Due         = decider.Due
	Interested  = decider.Interested
)
