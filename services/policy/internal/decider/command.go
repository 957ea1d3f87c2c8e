package decider

import (
	"encoding/json"
	"time"

	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/policy/internal/rules"
)

// Enforcement grades of a decision, shown on every prompt and audit row.
const (
	// EnforcementAsked: the agent asks and obeys.
	EnforcementAsked = "asked"
)

// Modes of waiting for a person.
const (
	ModeHold = "hold"
	ModePark = "park"
)

// Policy is the revision that decides, compiled. Evaluate is pure.
type Policy struct {
	Name     string
	Revision uint64
	Evaluate func(rules.Call) (rules.Verdict, error)
}

// Propose says what an agent wants to do. Args are canonical and Hash is over
// them; CallID is deterministic in both.
type Propose struct {
	CallID, AgentCallID string
	RunID               string
	Tool                string
	Args                json.RawMessage
	Hash                string
	Modes               []string
	Policy              Policy
}

// Answer is a person's decision on a call. Only people vote.
type Answer struct {
	CallID        string
	Decision      string // approve or deny
	Hash          string
	Comment       string
	By            string
	Roles, Groups []string
}

// The two answers.
const (
	Approve = "approve"
	Deny    = "deny"
)

// Start says that the agent is about to do it, under a nonce of this attempt.
type Start struct {
	CallID, RunID, Hash, Nonce string
}

// Complete reports what came of a started call.
type Complete struct {
	RunID  string
	Result session.CallCompleted
}

// Deliver brings the result of a call that was delegated to the client. MessageID is
// that of the message that it comes in.
type Deliver struct {
	ToolCallID, MessageID string
	Content, Error        string
}

// RecentDenial is how long a person's no to the same tool and arguments answers
// a new proposal without asking again.
const RecentDenial = 10 * time.Minute

// MaxRefusals is how many refused answers of a call are recorded; a flood beyond
// is only counted by metrics.
const MaxRefusals = 20

// MaxOpenCalls bounds the calls of a session that aren't final.
const MaxOpenCalls = 100
