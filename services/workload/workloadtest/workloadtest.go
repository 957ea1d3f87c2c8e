// Package workloadtest opens parts of the workload service to tests of several services
// together: its decider to the simulation of all (services/e2e/simulation), and what it
// answers a Pod that presents its bind to the gateway's tests, which say what Kubernetes
// says of the Pod. It adds nothing of its own.
package workloadtest

import (
	"github.com/holdfast-io/holdfast/services/internal/command"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
	"github.com/holdfast-io/holdfast/services/workload/internal/app"
	"github.com/holdfast-io/holdfast/services/workload/internal/decider"
)

// AppConfig is of what executes the service's commands.
type AppConfig = app.Config

// ErrUnproven is a Reviewer's, where a token proves no Pod.
var ErrUnproven = app.ErrUnproven

// RedeemBind answers the verb of that name.
func RedeemBind(c AppConfig) command.Handler { return app.New(c).Handlers()[verbs.RedeemBind] }

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
