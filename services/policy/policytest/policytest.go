// Package policytest opens the policy service's decider to the simulation of all
// services (services/e2e/simulation). It is for tests and adds nothing of its own.
package policytest

import (
	"github.com/holdfast-io/holdfast/services/policy/internal/decider"
	"github.com/holdfast-io/holdfast/services/policy/internal/rules"
)

// The commands of the policy service, and what a policy says.
type (
	// Propose says what an agent wants to do.
	Propose = decider.Propose
	// Answer is a person's decision.
	Answer = decider.Answer
	// Start lets a call go, once.
	Start = decider.Start
	// Complete reports what came of it.
	Complete = decider.Complete
	// Policy is the revision that decides.
	Policy = decider.Policy
	// Call is what a rule looks at.
	Call = rules.Call
	// Verdict is what a policy says.
	Verdict = rules.Verdict
)

// What the service does by itself.
var (
	Settle     = decider.Settle
	Due        = decider.Due
	Interested = decider.Interested
)
