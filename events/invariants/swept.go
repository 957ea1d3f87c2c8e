package invariants

import (
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/sweep"
)

// sweptTracker tracks one command to remove strays: what came of each follows once that it
// was asked for.
type sweptTracker struct{ state *sweep.State }

func newSweptTracker() *sweptTracker { return &sweptTracker{state: sweep.New()} }

func (t *sweptTracker) message(m events.Message, found report) {
	open, requested, over := len(t.state.Open), 0, 0
	for _, r := range m.Envelope.Events {
		if r.Type == sweep.TypeRequested {
			requested++
		} else {
			over++
		}
	}
	if err := t.state.Apply(m); err != nil {
		found(Types, "%v", err)
		return
	}
	if len(t.state.Open) != open+requested-over {
		found(Life, "a stray was asked for twice, or removed unasked")
	}
}
