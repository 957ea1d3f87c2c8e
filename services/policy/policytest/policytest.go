// Package policytest opens the policy service's decider to the simulation of all
// services (services/e2e/simulation). It is for tests and adds nothing of its own.
package policytest

import (
	"github.com/holdfast-io/holdfast/services/policy/internal/decider"
	"github.com/holdfast-io/holdfast/services/policy/internal/rules"
)

// The commands of the policy service, and what a policy says.
type (
	Propose  = decider.Propose
	Answer   = decider.Answer
	Start    = decider.Start
	Complete = decider.Complete
	Policy   = decider.Policy
	Call     = rules.Call
	Verdict  = rules.Verdict
)

// What the service does by itself.
var (
	Settle     = decider.Settle
	Due        = decider.Due
	Interested = decider.Interested
)
