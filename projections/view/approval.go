package view

import (
	"encoding/json"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
)

// Approval is the question that a call puts to people, and what came of it. Its
// id is the call's.
type Approval struct {
	ID      string `json:"id"`
	Session string `json:"session"`
	RunID   string `json:"runId"`
	Tool    string `json:"tool"`
	// Args are the exact arguments in canonical form (RFC 8785) but for what is
	// masked; ArgsHash is over the unmasked ones.
	Args      json.RawMessage   `json:"args"`
	ArgsHash  string            `json:"argsHash"`
	State     session.CallState `json:"state"`
	Policy    string            `json:"policy"`
	Revision  uint64            `json:"revision"`
	Rule      string            `json:"rule"`
	Message   string            `json:"message,omitempty"`
	Risk      string            `json:"risk,omitempty"`
	Approvers []string          `json:"approvers,omitempty"`
	// Enforcement is "mediated" or "asked".
	Enforcement string `json:"enforcement"`
	Isolation   string `json:"isolation"`
	Requester   string `json:"requester"`
	// Deadline for the answer; nil is for ever.
	Deadline *time.Time `json:"deadline,omitempty"`
	Decision *Decision  `json:"decision,omitempty"`
	N        uint64     `json:"n"`
}

// Decision is what settled a question. Answer is "approve" or "deny", empty where
// it was settled without one.
type Decision struct {
	By     string    `json:"by"`
	At     time.Time `json:"at"`
	Answer string    `json:"decision,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// Call is how a call stands, without what it is about.
type Call struct {
	ID    string            `json:"id"`
	State session.CallState `json:"state"`
	N     uint64            `json:"n"`
}

// CallOf shows a call of the session.
func CallOf(c *session.Call) Call { return Call{ID: c.ID, State: c.State, N: c.N} }

// ApprovalOf shows the question of a call of the session. For a call that was
// never asked about, it shows the same without a question's terms.
func ApprovalOf(st *session.State, c *session.Call) Approval {
	return approvalOf(ForSession(st), st, c)
}

func approvalOf(mask Masker, st *session.State, c *session.Call) Approval {
	v := Approval{
		ID: c.ID, Session: st.ID, RunID: c.RunID, Tool: Visible(c.Tool),
		Args: mask.Args(c.Args), ArgsHash: c.ArgsHash, State: c.State,
		Policy: c.Policy, Revision: c.Revision, Rule: c.Rule, Enforcement: c.Enforcement,
		Isolation: st.Workload.Isolation, Requester: Person(c.Requester), N: c.N, Decision: decisionOf(mask, c),
	}
	if q := c.Asked; q != nil {
		v.Message, v.Risk, v.Approvers = Visible(mask.Text(q.Message)), q.Risk, q.Approvers
		v.Isolation = q.Isolation // what was in force when people were asked
		if !q.Deadline.IsZero() {
			at := q.Deadline
			v.Deadline = &at
		}
	}
	return v
}

func decisionOf(mask Masker, c *session.Call) *Decision {
	if !c.State.Answered() || c.Asked == nil {
		return nil
	}
	if a := c.Answer; a != nil {
		return &Decision{By: Person(a.By), At: a.At, Answer: a.Decision, Reason: Visible(mask.Text(a.Comment))}
	}
	d := &Decision{By: Principal(events.Actor{Kind: events.ActorService, ID: string(events.ServicePolicy)}), At: c.At}
	switch c.State {
	case session.CallStateExpired:
		d.Reason = "nobody answered in time"
	case session.CallStateSuperseded:
		d.Reason = "the agent asked again with other arguments"
	case session.CallStateProposed, session.CallStateAllowed, session.CallStatePending, session.CallStateApproved,
		session.CallStateDenied, session.CallStateCancelled, session.CallStateStarted, session.CallStateDelegated, session.CallStateCompleted,
		session.CallStateLapsed:
		d.Reason = Visible(mask.Text(c.Reason))
	}
	return d
}
