// Package bloblog is a log whose envelopes may be of any size: data that is too
// large for a message is kept in a blob store, beside the log, and whoever reads gets
// it back in its place.
//
// It wraps any eventlog.Log. What it appends is at most one message and one blob:
//
//	Append ── data over 256 KiB ──▶ blob, named by the subject and its hash
//	       └─ envelope, with the blob's reference where the data was ──▶ log
//	Tail, Whole ◀── envelope ◀── the blob, its hash and size checked
//
// The chain of prev and n, and every hash over an envelope's raw bytes, cover the
// reference and by its hash the data. Raw stays what is stored.
//
// # When contents can't be had
//
// Where the blob store can't be reached, Append and Whole fail with a
// *blob.UnavailableError, and a tail waits until it can: whoever follows the log
// stands still rather than go on without something. Contents that are gone or damaged
// don't come back by waiting: the message is given with the events marked Lost. Every
// fold refuses those, so that session is faulted, by name, and the others go on.
package bloblog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/blob"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/internal/stream"
)

// CacheBytes is how much of the contents that a log lately read or wrote it keeps.
const CacheBytes = 64 << 20

// Log is an eventlog.Log on another.
type Log struct {
	eventlog.Log // its Last, Get and Info are this one's
	blobs        blob.Store
}

var _ eventlog.Log = (*Log)(nil)

// New makes a Log over one that takes small envelopes only.
func New(log eventlog.Log, blobs blob.Store) *Log {
	return &Log{Log: log, blobs: blob.Cached(blobs, CacheBytes)}
}

// Append implements eventlog.Log. A *blob.UnavailableError says that nothing is
// stored, now or later; a store of blobs without room is a log without room.
func (l *Log) Append(ctx context.Context, subject string, env events.Envelope) (uint64, error) {
	env, err := l.spill(ctx, subject, env)
	if err != nil {
		return 0, err
	}
	return l.Log.Append(ctx, subject, env)
}

// Tail implements eventlog.Log.
func (l *Log) Tail(ctx context.Context, from uint64, handle func(events.Message) error) error {
	return l.Log.Tail(ctx, from, func(m events.Message) error {
		pace := stream.NewPace()
		for {
			whole, err := l.Whole(ctx, m)
			if err == nil {
				return handle(whole)
			}
			if stop := pace.Wait(ctx); stop != nil {
				return fmt.Errorf("%w: %w", stop, err)
			}
		}
	})
}

// Whole implements eventlog.Log: it puts the data that is kept in a blob back into
// the message's events. The error is a *blob.UnavailableError; events whose data is
// gone for good come with Lost set instead.
func (l *Log) Whole(ctx context.Context, m events.Message) (events.Message, error) {
	if m.Envelope.Blob == nil || m.Envelope.Whole() {
		return m, nil
	}
	kept, err := l.fetch(ctx, m)
	lost, gone := errors.AsType[*events.LostError](err)
	if err != nil && !gone {
		return m, err
	}
	m.Envelope.Events = slices.Clone(m.Envelope.Events) // a log in memory gives its own
	for i := range m.Envelope.Events {
		r := &m.Envelope.Events[i]
		switch {
		case len(r.Data) > 0:
		case gone:
			r.Lost = lost
		default:
			r.Data, kept = kept[0], kept[1:]
		}
	}
	return m, nil
}

// fetch gives the data of the events that have none, in order.
func (l *Log) fetch(ctx context.Context, m events.Message) ([]json.RawMessage, error) {
	ref := *m.Envelope.Blob
	raw, err := l.blobs.Get(ctx, blob.OwnerOf(m.Subject), ref)
	if err != nil {
		if badName, ok := errors.AsType[*events.BadTokenError](err); ok { // not an aggregate's subject
			return nil, &events.LostError{Blob: ref, Reason: "have no owner: " + badName.Error()}
		}
		return nil, err
	}
	var kept []json.RawMessage
	if err := json.Unmarshal(raw, &kept); err != nil {
		return nil, &events.LostError{Blob: ref, Reason: "are not an array: " + err.Error()}
	}
	missing := 0
	for _, r := range m.Envelope.Events {
		if len(r.Data) == 0 {
			missing++
		}
	}
	if len(kept) != missing {
		return nil, &events.LostError{Blob: ref, Reason: fmt.Sprintf("are of %d events where %d belong", len(kept), missing)}
	}
	return kept, nil
}

// spill stores what is too large for the message, and gives the envelope to append:
// every data over blob.Over, and where that is not enough the largest of the rest.
func (l *Log) spill(ctx context.Context, subject string, env events.Envelope) (events.Envelope, error) {
	switch _, ok := events.ParseSubject(subject); {
	case env.Blob != nil:
		return env, fmt.Errorf("%w: its blob is for the log to make", events.ErrEnvelope)
	case !ok, !env.Whole():
		return env, nil // refused by the log itself
	}
	out := tooLarge(env)
	if len(out) == 0 {
		return env, nil
	}
	kept := make([]json.RawMessage, 0, len(out))
	env.Events = slices.Clone(env.Events)
	for i := range env.Events {
		if out[i] {
			kept = append(kept, env.Events[i].Data)
			env.Events[i].Data = nil
		}
	}
	raw, err := events.Marshal(kept)
	if err != nil {
		return env, fmt.Errorf("%w: %w", events.ErrEnvelope, err)
	}
	ref, err := l.blobs.Put(ctx, blob.OwnerOf(subject), raw)
	if errors.Is(err, blob.ErrNoRoom) {
		return env, &eventlog.NoRoomError{Subject: subject, Err: err}
	}
	if err != nil {
		return env, err
	}
	env.Blob = &ref
	return env, nil
}

// roomBytes is what stays of an envelope's bound for all but its data: the names,
// the reference, and for each event its type.
const roomBytes = 64 << 10

// tooLarge says which events' data goes to the blob.
func tooLarge(env events.Envelope) map[int]bool {
	out := map[int]bool{}
	size := 0
	for i, r := range env.Events {
		if len(r.Data) > blob.Over {
			out[i] = true
			continue
		}
		size += len(r.Data)
	}
	for size > events.MaxEnvelopeBytes-roomBytes {
		largest := -1
		for i, r := range env.Events {
			if !out[i] && (largest < 0 || len(r.Data) > len(env.Events[largest].Data)) {
				largest = i
			}
		}
		out[largest] = true
		size -= len(env.Events[largest].Data)
	}
	return out
}
