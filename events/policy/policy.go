// Package policy holds the events of a policy: ordered rules in CEL, in
// immutable revisions (the n of each policy.applied). The policy service alone
// appends here.
package policy

import (
	"encoding/json"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/revisions"
)

// Types of event on ev.<tenant>.policy.<name>.
const (
	TypeApplied = "policy.applied"
	TypeRemoved = "policy.removed"
)

// Effect is what a rule says.
type Effect string

// The effects. Ask needs a person.
const (
	Allow Effect = "allow"
	Deny  Effect = "deny"
	Ask   Effect = "ask"
)

// Spec is a policy as applied.
type Spec struct {
	Name string `json:"name"`
	// Default is the effect where no rule matches.
	Default Effect `json:"default"`
	Rules   []Rule `json:"rules,omitempty"`
	Tests   []Test `json:"tests,omitempty"`
}

// Rule is one of a policy's ordered rules; the first whose When holds decides.
type Rule struct {
	Name string `json:"name"`
	// When is CEL over tool, args, session, runtime, agent, user, isolation, now.
	When   string  `json:"when"`
	Then   Effect  `json:"then"`
	Reason string  `json:"reason,omitempty"`
	Ask    *AskFor `json:"ask,omitempty"`
}

// AskFor says whom to ask, until when, and what happens at the deadline.
type AskFor struct {
	// Approvers are "user:<name>", "group:<name>" or "role:<role>"; none means
	// everybody with the role approver.
	Approvers        []string `json:"approvers,omitempty"`
	ExcludeRequester bool     `json:"excludeRequester,omitempty"`
	// Deadline for the answer; 0 takes DefaultDeadline.
	Deadline events.Duration `json:"deadline,omitempty"`
	// OnDeadline is "deny" (where empty) or "allow".
	OnDeadline Effect `json:"onDeadline,omitempty"`
	// NeverExpire waits for an answer without a deadline.
	NeverExpire bool `json:"neverExpire,omitempty"`
	// ExecuteWithin bounds the time from approval to start; 0 takes DefaultExecuteWithin.
	ExecuteWithin events.Duration `json:"executeWithin,omitempty"`
	Risk          string          `json:"risk,omitempty"`
	Message       string          `json:"message,omitempty"`
}

// Defaults of AskFor.
const (
	DefaultDeadline      = events.Duration(24 * time.Hour)
	DefaultExecuteWithin = events.Duration(time.Hour)
)

// Test is an example that a policy carries; an apply runs it and is refused
// where it fails.
type Test struct {
	Name   string          `json:"name"`
	Call   TestCall        `json:"call"`
	User   json.RawMessage `json:"user,omitempty"`
	Expect Effect          `json:"expect"`
}

// TestCall is the call of a Test.
type TestCall struct {
	Tool string          `json:"tool"`
	Args json.RawMessage `json:"args"`
}

// State is the fold.
type State = revisions.State[Spec]

// Revision is one applied spec.
type Revision = revisions.Revision[Spec]

// New gives an empty State.
func New() *State {
	return revisions.New[Spec](revisions.Types{Applied: TypeApplied, Removed: TypeRemoved, Owner: events.ServicePolicy})
}
