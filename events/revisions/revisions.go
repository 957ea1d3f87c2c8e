// Package revisions is the fold that runtimes and policies share: a named thing
// that is applied in immutable revisions and may be removed. A revision's number
// is the n of its applied event.
package revisions

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/events"
)

// Applied is the payload of an applied event.
type Applied[S any] struct {
	Spec S `json:"spec"`
}

// Removed is the payload of a removed event: the thing is gone for new uses,
// what was pinned stays readable.
type Removed struct{}

// Revision is one applied spec.
type Revision[S any] struct {
	Number  uint64
	Spec    S
	Applied time.Time
	By      events.Actor
}

// Types names the two types of event of a kind of thing and who appends them.
type Types struct {
	Applied, Removed string
	Owner            events.Service
}

// State is the fold.
type State[S any] struct {
	Revisions []Revision[S]
	Removed   bool
	types     Types
}

// New gives an empty State for the types.
func New[S any](types Types) *State[S] { return &State[S]{types: types} }

// Current is the newest revision; ok is false when there is none or the thing
// was removed.
func (s *State[S]) Current() (Revision[S], bool) {
	if s.Removed || len(s.Revisions) == 0 {
		return Revision[S]{}, false
	}
	return s.Revisions[len(s.Revisions)-1], true
}

// Revision finds one by its number, also after a removal.
func (s *State[S]) Revision(n uint64) (Revision[S], bool) {
	i := slices.IndexFunc(s.Revisions, func(r Revision[S]) bool { return r.Number == n })
	if i < 0 {
		return Revision[S]{}, false
	}
	return s.Revisions[i], true
}

// Apply folds one message in. Errors are *events.ForeignTypeError,
// *events.UnknownTypeError and *events.LostError, or say which payload can't be read.
func (s *State[S]) Apply(m events.Message) error {
	for i, r := range m.Envelope.Events {
		if m.Envelope.Service != s.types.Owner {
			return &events.ForeignTypeError{Type: r.Type, Service: m.Envelope.Service, Owner: s.types.Owner}
		}
		switch {
		case r.Type == s.types.Applied && r.V == 1:
			data, err := r.Contents()
			if err != nil {
				return fmt.Errorf("%s: %w", r.Type, err)
			}
			var p Applied[S]
			if err := json.Unmarshal(data, &p); err != nil {
				return fmt.Errorf("%s: %w", r.Type, err)
			}
			meta := m.MetaAt(i)
			s.Revisions = append(s.Revisions, Revision[S]{Number: meta.N, Spec: p.Spec, Applied: meta.Time, By: meta.Actor})
			s.Removed = false
		case r.Type == s.types.Removed && r.V == 1:
			s.Removed = true
		default:
			return &events.UnknownTypeError{Type: r.Type, V: r.V}
		}
	}
	return nil
}

// ApplyRecord is the record of a new revision.
func (s *State[S]) ApplyRecord(spec S) (events.Record, error) {
	data, err := events.Marshal(Applied[S]{Spec: spec})
	if err != nil {
		return events.Record{}, fmt.Errorf("%s: %w", s.types.Applied, err)
	}
	return events.Record{Type: s.types.Applied, V: 1, Data: data}, nil
}

// RemoveRecord is the record of a removal.
func (s *State[S]) RemoveRecord() events.Record {
	return events.Record{Type: s.types.Removed, V: 1, Data: json.RawMessage(`{}`)}
}
