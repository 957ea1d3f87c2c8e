// Package sweep holds the events of a sweep by hand: somebody has strays removed, which
// are things that exist and that the log has no use for. So none of it has a subject of
// its own; each command to remove some has one, ev.<tenant>.sweep.<id>, where what was
// asked for is appended before anything is removed, and what came of it after. The
// workload service alone appends here.
package sweep

import (
	"encoding/json"
	"fmt"

	"github.com/holdfast-io/holdfast/events"
)

// Types of event on ev.<tenant>.sweep.<id>.
const (
	TypeRequested = "stray.removal-requested"
	TypeRemoved   = "stray.removed"
	TypeFailed    = "stray.removal-failed"
)

// Stray is which one it is: a sandbox, template, pool or volume, by its UID.
type Stray struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// Payload is the data of an event of a sweep.
//
//sumtype:decl
type Payload interface{ eventType() string }

// Requested says that somebody wants a stray removed, and why it is one. What it says of
// a session or a runtime is what was written on it.
type Requested struct {
	Stray
	Why        string `json:"why"`
	Session    string `json:"session,omitempty"`
	Generation uint64 `json:"generation,omitempty"`
	Runtime    string `json:"runtime,omitempty"`
	Revision   uint64 `json:"revision,omitempty"`
	Epoch      string `json:"epoch,omitempty"`
}

// Removed says that it was removed, or was gone by itself.
type Removed struct{ Stray }

// Failed says that it couldn't be removed.
type Failed struct {
	Stray
	Detail string `json:"detail"`
}

func (Requested) eventType() string { return TypeRequested }
func (Removed) eventType() string   { return TypeRemoved }
func (Failed) eventType() string    { return TypeFailed }

// Records are the payloads as they are appended.
func Records(payloads ...Payload) ([]events.Record, error) {
	records := make([]events.Record, len(payloads))
	for i, p := range payloads {
		data, err := events.Marshal(p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.eventType(), err)
		}
		records[i] = events.Record{Type: p.eventType(), V: 1, Data: data}
	}
	return records, nil
}

// decode reads an event's payload.
func decode(r events.Record, by events.Service) (Payload, error) {
	if by != events.ServiceWorkload {
		return nil, &events.ForeignTypeError{Type: r.Type, Service: by, Owner: events.ServiceWorkload}
	}
	if r.V != 1 {
		return nil, &events.UnknownTypeError{Type: r.Type, V: r.V}
	}
	switch r.Type {
	case TypeRequested:
		return read[Requested](r)
	case TypeRemoved:
		return read[Removed](r)
	case TypeFailed:
		return read[Failed](r)
	}
	return nil, &events.UnknownTypeError{Type: r.Type, V: r.V}
}

func read[P Payload](r events.Record) (Payload, error) {
	var p P
	data, err := r.Contents()
	if err == nil {
		err = json.Unmarshal(data, &p)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Type, err)
	}
	return p, nil
}

// State is the fold: what was asked for, and isn't said yet what came of.
type State struct{ Open map[Stray]bool }

// New gives an empty State.
func New() *State { return &State{Open: map[Stray]bool{}} }

// Apply folds one message in. Errors are *events.ForeignTypeError,
// *events.UnknownTypeError and *events.LostError, or say which payload can't be read.
func (s *State) Apply(m events.Message) error {
	for _, r := range m.Envelope.Events {
		p, err := decode(r, m.Envelope.Service)
		if err != nil {
			return err
		}
		switch p := p.(type) {
		case Requested:
			s.Open[p.Stray] = true
		case Removed:
			delete(s.Open, p.Stray)
		case Failed:
			delete(s.Open, p.Stray)
		}
	}
	return nil
}
