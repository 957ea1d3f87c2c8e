package rest

import (
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/projections/view"
)

// sessionOf, approvalOf and the others write a view as the generated type. Both
// are the same JSON; going by JSON would cost each item of each list twice over.
func sessionOf(v view.Session) api.Session {
	return api.Session{
		ID: v.ID, Tenant: v.Tenant, Owner: v.Owner,
		Runtime: api.RuntimeRef{Name: v.Runtime.Name, Revision: v.Runtime.Revision},
		Phase:   api.SessionPhase(v.Phase), Outcome: api.SessionOutcome(v.Outcome), Cause: v.Cause,
		Waiting: v.Waiting, Generation: v.Generation, Isolation: v.Isolation, Run: v.Run, Parent: v.Parent,
		Labels: v.Labels, LayersMs: v.LayersMs, CreatedAt: v.CreatedAt, N: v.N, Seq: v.Seq,
		Deadlines: api.Deadlines{
			Idle: at(v.Deadlines.Idle), Max: at(v.Deadlines.Max), Claim: at(v.Deadlines.Claim),
			Approval: at(v.Deadlines.Approval), Execution: at(v.Deadlines.Execution),
		},
	}
}

func approvalOf(v view.Approval) api.Approval {
	out := api.Approval{
		ID: v.ID, Session: v.Session, RunID: v.RunID, Tool: v.Tool, Args: v.Args, ArgsHash: v.ArgsHash,
		State: api.CallState(v.State), Policy: v.Policy, Revision: v.Revision, Rule: v.Rule, Message: v.Message,
		Risk: api.Risk(v.Risk), Approvers: v.Approvers, Enforcement: api.Enforcement(v.Enforcement), Isolation: v.Isolation,
		Requester: v.Requester, Deadline: at(v.Deadline), N: v.N,
	}
	if d := v.Decision; d != nil {
		out.Decision = api.Decision{By: d.By, At: d.At, Decision: api.Answer(d.Answer), Reason: d.Reason}
	}
	return out
}

func messageOf(v view.Message) api.Message {
	return api.Message{
		ID: v.ID, Session: v.Session, RunID: v.RunID, Role: v.Role, Content: v.Content, Requester: v.Requester,
		ToolCalls: v.ToolCalls, ToolCallID: v.ToolCallID, Time: v.Time, N: v.N,
	}
}

func runOf(v view.Run) api.Run {
	return api.Run{
		ID: v.ID, Session: v.Session, ParentRunID: v.ParentRunID, State: api.RunState(v.State), Requester: v.Requester,
		Cause: v.Cause, Detail: v.Detail, Calls: v.Calls, StartedAt: at(v.StartedAt), EndedAt: at(v.EndedAt), N: v.N,
	}
}

func frameOf(v view.Frame) api.Frame {
	return api.Frame{Cursor: v.Cursor, Session: v.Session, N: v.N, Time: v.Time, Kind: api.FrameKind(v.Kind), Data: v.Data}
}

// each applies one of the above to a list, never giving null.
func each[From, To any](items []From, convert func(From) To) []To {
	out := make([]To, len(items))
	for i, item := range items {
		out[i] = convert(item)
	}
	return out
}

// at is a time that may be absent; the generated types say so by the zero time.
func at(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

func auditOf(v view.AuditEntry) api.AuditEntry {
	return api.AuditEntry{
		Seq: v.Seq, N: v.N, Tenant: v.Tenant, Kind: api.AuditEntryKind(v.Kind), Subject: v.Subject, Time: v.Time,
		Type: v.Type, V: v.V, Actor: v.Actor, Service: string(v.Service), Command: v.Command, Cause: v.Cause,
		Outcome: string(v.Outcome), Enforcement: api.Enforcement(v.Enforcement), Data: v.Data,
	}
}
