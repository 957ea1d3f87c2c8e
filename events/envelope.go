package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Service names who appends. A service appends only its own types of event.
type Service string

// The services that write to EVENTS. Gateway and projector write nothing there.
const (
	ServiceSession   Service = "session"
	ServiceWorkload  Service = "workload"
	ServicePolicy    Service = "policy"
	ServiceRunner    Service = "runner"
	ServiceInstaller Service = "installer"
)

// ActorKind says what sort of actor caused a command.
type ActorKind string

// Only a person can vote on a call.
const (
	ActorPerson  ActorKind = "person"
	ActorAgent   ActorKind = "agent"
	ActorService ActorKind = "service"
)

// Actor is who caused a command: a person by name, an agent by its session, or
// a service by its own name when it reacts or a deadline passes.
type Actor struct {
	Kind ActorKind `json:"kind"`
	ID   string    `json:"id"`
}

// String gives "kind:id", as the audit log shows it.
func (a Actor) String() string { return string(a.Kind) + ":" + a.ID }

// Blob points at contents that are kept beside a stream, for they are too large to
// be kept in it: by their lower-case hex SHA-256 and their size in bytes. Whose
// they are isn't part of it: that is said by the place where the reference stands,
// so that none can lead into another session (package blob).
type Blob struct {
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

// Record is one event as stored: its type ("session.created"), the version of
// its payload, and the payload.
type Record struct {
	Type string `json:"type"`
	V    int    `json:"v"`
	// Data is left out where it is in the envelope's Blob. Readers of the log get it
	// whole, or Lost.
	Data json.RawMessage `json:"data,omitempty"`
	// Lost says why Data, which was in a blob, can't be had for good.
	Lost error `json:"-"`
}

// Contents gives the payload. The error is a *LostError.
func (r Record) Contents() (json.RawMessage, error) {
	switch {
	case r.Lost != nil:
		return nil, r.Lost
	case len(r.Data) == 0:
		return nil, &LostError{Reason: "were not fetched"}
	}
	return r.Data, nil
}

// Envelope is the body of one message on EVENTS: all events of one command.
type Envelope struct {
	// Command is the command's id; at most once on a subject.
	Command string  `json:"command"`
	Actor   Actor   `json:"actor"`
	Service Service `json:"service"`
	// Cause is the command or "seq:<n>" of the event that led to this command.
	Cause string `json:"cause,omitempty"`
	// N is the version of the first event, contiguous from 1 on the subject.
	N uint64 `json:"n"`
	// Prev is the stream sequence of the subject's message before; 0 for none.
	Prev uint64 `json:"prev"`
	// Time is when it was decided. It stays when a log is restored.
	Time time.Time `json:"time"`
	// Trace is a W3C traceparent.
	Trace string `json:"trace,omitempty"`
	// Kid names the key that sealed the contents. Reserved; empty means in clear.
	Kid string `json:"kid,omitempty"`
	// Blob holds a JSON array with the data of those events that have none here, in
	// their order; nil where all have.
	Blob   *Blob    `json:"blob,omitempty"`
	Events []Record `json:"events"`
}

// Whole says whether the data of every event is here.
func (e Envelope) Whole() bool {
	for _, r := range e.Events {
		if len(r.Data) == 0 {
			return false
		}
	}
	return true
}

// LastN is the version of the envelope's last event.
func (e Envelope) LastN() uint64 { return e.N + uint64(len(e.Events)) - 1 }

// Types lists the types of the envelope's events in order, comma separated: the
// value of [HeaderTypes].
func (e Envelope) Types() string {
	types := make([]string, len(e.Events))
	for i, r := range e.Events {
		types[i] = r.Type
	}
	return strings.Join(types, ",")
}

// HeaderTypes is the message header that names the envelope's event types, so
// that a reactor can pass over what isn't its own without decoding.
const HeaderTypes = "Holdfast-Types"

// MaxEnvelopeBytes bounds an encoded envelope: under NATS' default maximum of
// 1 MiB with room for headers.
const MaxEnvelopeBytes = 1<<20 - 16<<10

// ErrEnvelope is wrapped by every error of [DecodeEnvelope] and Validate.
var ErrEnvelope = errors.New("malformed envelope")

// Validate checks the shape that every stored envelope has.
func (e Envelope) Validate() error {
	switch {
	case e.Command == "" || len(e.Command) > 200:
		return fmt.Errorf("%w: command id has to have 1 to 200 characters", ErrEnvelope)
	case e.Service == "":
		return fmt.Errorf("%w: no service", ErrEnvelope)
	case e.Actor.Kind == "" || e.Actor.ID == "":
		return fmt.Errorf("%w: no actor", ErrEnvelope)
	case e.N == 0:
		return fmt.Errorf("%w: n counts from 1", ErrEnvelope)
	case (e.N == 1) != (e.Prev == 0):
		return fmt.Errorf("%w: n %d does not fit prev %d", ErrEnvelope, e.N, e.Prev)
	case e.Time.IsZero():
		return fmt.Errorf("%w: no time", ErrEnvelope)
	case len(e.Events) == 0:
		return fmt.Errorf("%w: no events", ErrEnvelope)
	}
	for i, r := range e.Events {
		if r.Type == "" || r.V < 1 || len(r.Data) == 0 && e.Blob == nil || string(r.Data) == "null" {
			return fmt.Errorf("%w: event %d needs type, version and data", ErrEnvelope, i)
		}
	}
	return nil
}

// Encode gives the bytes to store. They are what is hashed, copied and audited.
func (e Envelope) Encode() ([]byte, error) {
	if err := e.Validate(); err != nil {
		return nil, err
	}
	b, err := Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEnvelope, err)
	}
	if len(b) > MaxEnvelopeBytes {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(b), MaxEnvelopeBytes)
	}
	return b, nil
}

// Marshal is json.Marshal without the escapes for HTML: what is hashed and
// approved ("a > b && c") stands in the log as it was, byte for byte.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// ErrTooLarge is wrapped when an envelope exceeds [MaxEnvelopeBytes].
var ErrTooLarge = errors.New("envelope too large")

// DecodeEnvelope reads what Encode wrote. Unknown fields are kept out, unknown
// types of event are not its concern.
func DecodeEnvelope(b []byte) (Envelope, error) {
	var e Envelope
	if err := json.Unmarshal(b, &e); err != nil {
		return Envelope{}, fmt.Errorf("%w: %w", ErrEnvelope, err)
	}
	if err := e.Validate(); err != nil {
		return Envelope{}, err
	}
	return e, nil
}

// Message is an envelope where it stands in the log. Raw is what Envelope was
// decoded from; don't change it.
type Message struct {
	Subject  string
	Seq      uint64
	Envelope Envelope
	Raw      []byte
}

// Meta is what is known of a decoded event besides its payload.
type Meta struct {
	N       uint64
	Seq     uint64
	Index   int
	Time    time.Time
	Service Service
	Actor   Actor
	Command string
	Cause   string
}

// MetaAt gives the Meta of the message's i-th event.
func (m Message) MetaAt(i int) Meta {
	e := m.Envelope
	return Meta{
		N: e.N + uint64(i), Seq: m.Seq, Index: i, Time: e.Time,
		Service: e.Service, Actor: e.Actor, Command: e.Command, Cause: e.Cause,
	}
}
