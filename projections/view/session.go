package view

import (
	"maps"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
)

// Session is a session as the API shows it.
type Session struct {
	ID      string             `json:"id"`
	Tenant  string             `json:"tenant"`
	Owner   string             `json:"owner"`
	Runtime session.RuntimeRef `json:"runtime"`
	Phase   session.Phase      `json:"phase"`
	// Outcome is set once the session has ended, Cause where it ends, failed or
	// lost its sandbox.
	Outcome session.Outcome `json:"outcome,omitempty"`
	Cause   string          `json:"cause,omitempty"`
	// Waiting counts the calls that wait for a person.
	Waiting    int    `json:"waiting"`
	Generation uint64 `json:"generation"`
	Isolation  string `json:"isolation"`
	// Run is the open run, or the parked one that answers will continue.
	Run       string            `json:"run,omitempty"`
	Parent    string            `json:"parent,omitempty"`
	Labels    map[string]string `json:"labels"`
	Deadlines Deadlines         `json:"deadlines"`
	// LayersMs says how long each layer of getting the sandbox ready took.
	LayersMs  map[string]int64 `json:"layersMs,omitempty"`
	CreatedAt time.Time        `json:"createdAt"`
	N         uint64           `json:"n"`
	Seq       uint64           `json:"seq"`
}

// Deadlines say when something happens by itself; nil is never. Of several of a
// kind it is the nearest.
type Deadlines struct {
	Idle      *time.Time `json:"idle,omitempty"`
	Max       *time.Time `json:"max,omitempty"`
	Claim     *time.Time `json:"claim,omitempty"`
	Approval  *time.Time `json:"approval,omitempty"`
	Execution *time.Time `json:"execution,omitempty"`
}

// SessionOf shows a session as its state says. It copies what it takes, so the
// view stays valid when the state moves on.
func SessionOf(st *session.State) Session {
	mask := ForSession(st)
	v := Session{
		ID: st.ID, Tenant: st.Tenant, Owner: Person(st.Owner), Runtime: st.Runtime, Phase: st.Phase(),
		Waiting: st.Waiting(), Generation: st.Workload.Generation, Isolation: st.Workload.Isolation,
		Parent: st.Parent, Labels: maps.Clone(st.Labels), Deadlines: deadlinesOf(st),
		LayersMs: maps.Clone(st.Workload.LayersMs), CreatedAt: st.CreatedAt, N: st.N, Seq: st.Seq,
	}
	if v.Labels == nil {
		v.Labels = map[string]string{}
	}
	for k, label := range v.Labels {
		v.Labels[k] = mask.Text(label)
	}
	switch {
	case st.Run != nil:
		v.Run = st.Run.ID
	case st.Interrupted != nil:
		v.Run = st.Interrupted.RunID
	}
	switch {
	case st.Ending || st.Ended:
		v.Cause = Visible(mask.Text(st.EndCause))
	case st.Workload.Status == session.WorkloadFailed, st.Workload.Status == session.WorkloadLost:
		v.Cause = Visible(mask.Text(st.Workload.Cause))
	}
	if st.Ended {
		v.Outcome = st.EndOutcome
	}
	return v
}

func deadlinesOf(st *session.State) Deadlines {
	var v Deadlines
	nearest := func(t **time.Time, at time.Time) {
		if *t == nil || at.Before(**t) {
			*t = &at
		}
	}
	for _, d := range st.Deadlines() {
		switch d.Kind {
		case session.DeadlineIdle:
			nearest(&v.Idle, d.At)
		case session.DeadlineMax:
			nearest(&v.Max, d.At)
		case session.DeadlineClaim:
			nearest(&v.Claim, d.At)
		case session.DeadlineApproval:
			nearest(&v.Approval, d.At)
		case session.DeadlineExecution:
			nearest(&v.Execution, d.At)
		case session.DeadlineWaiting, session.DeadlineDrain: // what becomes of a sandbox, no promise to a client
		}
	}
	return v
}

// Principal writes an actor as the API does: user:<name>, agent:<session> or
// service:<name>.
func Principal(a events.Actor) string {
	switch a.Kind {
	case events.ActorPerson:
		return withPrefix("user:", a.ID)
	case events.ActorAgent:
		return withPrefix("agent:", a.ID)
	case events.ActorService:
		return withPrefix("service:", a.ID)
	}
	return a.String()
}

// ByDeadline is who approves a call whose rule allows it when nobody has answered.
const ByDeadline = "deadline"

// Person writes somebody whom events keep by name, as owner, requester or voter,
// as the API does: user:<name>. Nobody stays nobody, and what the deadline decides
// is the policy service's.
func Person(name string) string {
	switch name {
	case "":
		return ""
	case ByDeadline:
		return Principal(events.Actor{Kind: events.ActorService, ID: string(events.ServicePolicy)})
	}
	return Principal(events.Actor{Kind: events.ActorPerson, ID: name})
}

// withPrefix adds a prefix that an id may have already.
func withPrefix(prefix, id string) string {
	if len(id) > len(prefix) && id[:len(prefix)] == prefix {
		return id
	}
	return prefix + id
}
