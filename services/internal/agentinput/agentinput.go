// Package agentinput folds a session into the RunAgentInput (AG-UI 1.0) of its
// open run: the log owns the history, clients bring only new messages. The runner
// hands it to sandboxd, the gateway to agents that ask for it.
package agentinput

import (
	"encoding/json"
	"fmt"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/policy"
	"github.com/holdfast-io/holdfast/events/session"
)

// Thread is the fold of a session with its conversation. It is an
// eventlog.Aggregate.
type Thread struct {
	*session.State
	History *session.History
}

// NewThread gives the Thread of a session that doesn't exist yet.
func NewThread() *Thread { return &Thread{State: session.New(), History: session.NewHistory()} }

// Apply folds one message in.
func (t *Thread) Apply(m events.Message) error {
	if err := t.State.Apply(m); err != nil {
		return err
	}
	return t.History.Apply(m)
}

// input is AG-UI's RunAgentInput. threadId is the session's id.
type input struct {
	ProtocolVersion string            `json:"protocolVersion"`
	ThreadID        string            `json:"threadId"`
	RunID           string            `json:"runId"`
	ParentRunID     string            `json:"parentRunId,omitempty"`
	State           json.RawMessage   `json:"state"`
	Messages        []json.RawMessage `json:"messages"`
	Tools           []tool            `json:"tools"`
	Context         []struct{}        `json:"context"`
	ForwardedProps  struct{}          `json:"forwardedProps"`
	Resume          []resume          `json:"resume,omitempty"`
}

// tool is AG-UI's: one that the client runs itself.
type tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
}

type resume struct {
	InterruptID string   `json:"interruptId"`
	Status      string   `json:"status"`
	Payload     *payload `json:"payload,omitempty"`
	// Metadata says why, where the answer is no answer: expired, cancelled.
	Metadata map[string]string `json:"metadata,omitempty"`
}

type payload struct {
	Approved bool   `json:"approved"`
	Reason   string `json:"reason,omitempty"`
}

// Build gives the input of the open run; nil where no run is open. Its messages are
// the whole conversation, or, where that has more than [MaxHistory] bytes, the newest
// part of it behind a message that says so.
func Build(t *Thread) (json.RawMessage, error) {
	run := t.Run
	if run == nil {
		return nil, nil
	}
	in := input{
		ProtocolVersion: "1.0", ThreadID: t.ID, RunID: run.ID, ParentRunID: run.Parent,
		State: t.History.AgentState, Tools: []tool{}, Context: []struct{}{},
	}
	if len(in.State) == 0 {
		in.State = json.RawMessage(`{}`)
	}
	var err error
	if in.Messages, err = newest(t.History.Messages, MaxHistory); err != nil {
		return nil, fmt.Errorf("input of run %s: %w", run.ID, err)
	}
	for _, offered := range run.Tools {
		in.Tools = append(in.Tools, tool(offered))
	}
	for _, id := range run.Resumes {
		if c := t.Calls[id]; c != nil && c.ForClient() {
			continue // its answer is a message: the tool's
		}
		in.Resume = append(in.Resume, resumeOf(id, t.Calls[id]))
	}
	raw, err := events.Marshal(in) // escaped for HTML it could be six times as long
	if err != nil {
		return nil, fmt.Errorf("input of run %s: %w", run.ID, err)
	}
	return raw, nil
}

// resumeOf words a call's end as AG-UI does: approved and denied, by a person or by
// the policy alone, are resolved; expired, cancelled and superseded are cancelled.
func resumeOf(id string, c *session.Call) resume {
	r := resume{InterruptID: id, Status: "cancelled"}
	if c == nil {
		return r
	}
	r.Metadata = map[string]string{"state": string(c.State)}
	switch {
	case c.Answer != nil:
		r.Payload = &payload{Approved: c.Answer.Decision == "approve", Reason: c.Answer.Comment}
	case c.Decision == string(policy.Allow) || c.Decision == string(policy.Deny):
		r.Payload = &payload{Approved: c.Decision == string(policy.Allow), Reason: c.Reason}
	default:
		return r
	}
	r.Status = "resolved"
	return r
}
