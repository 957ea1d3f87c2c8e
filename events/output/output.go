// Package output is what agents stream: batches of AG-UI events on
// out.<tenant>.<session>, kept for a bounded age beside the log. Token deltas may
// age out; completed messages and calls are events of the log.
//
// Each event has its k, contiguous from 1 in its run, given where the agent's
// output is spooled. The same k is the same event whoever publishes it: after a
// runner was replaced, or a reply was lost, a batch may come twice or be cut
// otherwise, so readers keep the last k of each run and drop what they have
// ([Batch.AfterK]). That is also why a batch carries no message id: the server
// would take a differently cut batch for a duplicate.
//
// [Stream] is the port; natsoutput implements it on JetStream, memoutput in
// memory, and one suite (outputtest) holds both to the same behaviour.
package output

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/events"
)

// MaxBatchBytes bounds an encoded batch.
const MaxBatchBytes = 768 << 10

// Errors that Encode and Decode wrap.
var (
	ErrBatch    = errors.New("malformed batch")
	ErrTooLarge = errors.New("batch too large")
)

// Batch is the body of one message: up to some 40 ms of one run's events.
type Batch struct {
	Run string `json:"run"`
	// FirstK and LastK number the first and last event within the run.
	FirstK uint64 `json:"firstK"`
	LastK  uint64 `json:"lastK"`
	// After is the session's version when the batch was written: readers hold it
	// until they have seen that version.
	After uint64    `json:"after"`
	Time  time.Time `json:"time"`
	// Events are whole AG-UI event objects.
	Events []json.RawMessage `json:"events"`
	// Large says which of them are kept beside the batch; there {} stands in their
	// place. Readers get them whole and never see this (package bloboutput).
	Large []Large `json:"large,omitempty"`
}

// Large is an event that is too large for its batch.
type Large struct {
	// At is its place in Events, from 0.
	At   int         `json:"at"`
	Blob events.Blob `json:"blob"`
}

// Validate checks the shape that every stored batch has.
func (b Batch) Validate() error {
	switch {
	case b.Run == "" || len(b.Run) > 200:
		return fmt.Errorf("%w: run id has to have 1 to 200 characters", ErrBatch)
	case len(b.Events) == 0:
		return fmt.Errorf("%w: no events", ErrBatch)
	case b.FirstK == 0 || b.LastK < b.FirstK || b.LastK-b.FirstK != uint64(len(b.Events))-1:
		return fmt.Errorf("%w: k from %d to %d does not number %d events", ErrBatch, b.FirstK, b.LastK, len(b.Events))
	case b.Time.IsZero():
		return fmt.Errorf("%w: no time", ErrBatch)
	}
	for _, l := range b.Large {
		if l.At < 0 || l.At >= len(b.Events) {
			return fmt.Errorf("%w: there is no event %d to be large", ErrBatch, l.At)
		}
	}
	for i, e := range b.Events {
		if !isObject(e) {
			return fmt.Errorf("%w: event %d is not a JSON object", ErrBatch, i)
		}
	}
	return nil
}

// isObject looks at the first byte only: whether it is JSON at all is for the
// encoder and the decoder.
func isObject(raw json.RawMessage) bool {
	for _, c := range raw {
		switch c {
		case ' ', '\t', '\r', '\n':
		default:
			return c == '{'
		}
	}
	return false
}

// Encode gives the bytes to store.
func (b Batch) Encode() ([]byte, error) {
	if err := b.Validate(); err != nil {
		return nil, err
	}
	raw, err := events.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBatch, err)
	}
	if len(raw) > MaxBatchBytes {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(raw), MaxBatchBytes)
	}
	return raw, nil
}

// Decode reads what Encode wrote.
func Decode(raw []byte) (Batch, error) {
	if len(raw) > MaxBatchBytes {
		return Batch{}, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(raw), MaxBatchBytes)
	}
	var b Batch
	if err := json.Unmarshal(raw, &b); err != nil {
		return Batch{}, fmt.Errorf("%w: %w", ErrBatch, err)
	}
	if err := b.Validate(); err != nil {
		return Batch{}, err
	}
	return b, nil
}

// AfterK gives what of the batch a reader lacks who has its run's events up to k;
// ok is false where that is nothing.
func (b Batch) AfterK(k uint64) (rest Batch, ok bool) {
	switch {
	case k >= b.LastK:
		return Batch{}, false
	case k >= b.FirstK:
		b.Events = b.Events[k-b.FirstK+1:]
		b.FirstK = k + 1
	}
	return b, true
}

// Message is a batch where it stands in the stream. Sequences grow but are not
// contiguous for a reader: what has aged out leaves a gap before the first.
type Message struct {
	Tenant, Session string
	Seq             uint64
	Batch           Batch
}

// Publisher writes batches.
type Publisher interface {
	// Publish stores a batch and gives its stream sequence. It sends again until it
	// is acknowledged or ctx ends, so the batch may be stored more than once, also
	// where an error comes back. Errors besides ctx's: ErrBatch, ErrTooLarge, a bad
	// tenant or session, the server's refusal.
	Publish(ctx context.Context, tenant, session string, b Batch) (seq uint64, err error)
}

// Stream is the port to what agents stream.
type Stream interface {
	Publisher
	// Last reads a session's newest batch that has not aged out; ok is false where
	// there is none.
	Last(ctx context.Context, tenant, session string) (b Batch, seq uint64, ok bool, err error)
	// Tail calls handle with every batch from sequence from on, or from the oldest
	// that is left, in order, and goes on with new ones until ctx ends or handle
	// returns an error, which it gives back. A sequence that isn't a batch is passed
	// over. Other errors: *TruncatedError and ErrNoStream.
	Tail(ctx context.Context, from uint64, handle func(Message) error) error
	// Info gives the sequences of the oldest and newest message; where there is
	// none, last is first-1.
	Info(ctx context.Context) (first, last uint64, err error)
}

// ErrNoStream says that the stream was never made, or was deleted.
var ErrNoStream = errors.New("there is no output stream: run 'holdfast install'")

// TruncatedError says that the stream ends before what was read of it earlier: it
// was made anew. Readers start over, with a gap.
type TruncatedError struct {
	// Next is the sequence that was to be read next, Last the stream's last.
	Next, Last uint64
}

// Error names both sequences.
func (e *TruncatedError) Error() string {
	return fmt.Sprintf("output ends at sequence %d but was read up to %d before", e.Last, e.Next-1)
}
