package invariants

import (
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/policy"
	"github.com/holdfast-io/holdfast/events/runtime"
)

// revisedTracker tracks a runtime or a policy: applied, removed, applied again,
// by its one service.
type revisedTracker struct {
	applied, removed string
	owner            events.Service
	there            bool
}

func newRevisedTracker(agg events.Aggregate) *revisedTracker {
	if agg == events.AggregateRuntime {
		return &revisedTracker{applied: runtime.TypeApplied, removed: runtime.TypeRemoved, owner: events.ServiceWorkload}
	}
	return &revisedTracker{applied: policy.TypeApplied, removed: policy.TypeRemoved, owner: events.ServicePolicy}
}

func (t *revisedTracker) message(m events.Message, found report) {
	if m.Envelope.Service != t.owner {
		found(Types, "written by %s, but the subject belongs to %s", m.Envelope.Service, t.owner)
	}
	for _, r := range m.Envelope.Events {
		switch {
		case r.Type == t.applied && r.V == 1:
			t.there = true
		case r.Type == t.removed && r.V == 1:
			if !t.there {
				found(Life, "removed what was not there")
			}
			t.there = false
		default:
			found(Types, "%s version %d is not an event of this subject", r.Type, r.V)
		}
	}
}
