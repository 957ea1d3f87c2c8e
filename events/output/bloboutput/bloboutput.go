// Package bloboutput is an output stream whose events may be of any size: one that is
// too large for a message is kept as a blob in the stream OUTPUT itself, as long as the
// batch that refers to it, and whoever reads the batch gets it back in its place.
//
// It wraps any output.Stream. Where the blob can't be fetched now a tail waits, for
// nobody may go on without it. Where it has aged out a moment before its batch, or is
// damaged, an event of AG-UI's type CUSTOM with the name "holdfast.lost" stands in its
// place: the numbers of a run's events stay contiguous, and the viewer is told.
package bloboutput

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/blob"
	"github.com/holdfast-io/holdfast/events/internal/stream"
	"github.com/holdfast-io/holdfast/events/output"
)

// Stream is an output.Stream on another.
type Stream struct {
	output.Stream // Info is its own
	blobs         blob.Store
}

var _ output.Stream = (*Stream)(nil)

// New makes a Stream over one that takes small batches only.
func New(s output.Stream, blobs blob.Store) *Stream { return &Stream{Stream: s, blobs: blobs} }

// Publish implements output.Stream. Errors besides: *blob.UnavailableError.
func (s *Stream) Publish(ctx context.Context, tenant, session string, b output.Batch) (uint64, error) {
	subject, err := events.OutputSubject(tenant, session)
	if err != nil {
		return 0, err
	}
	if err := b.Validate(); err != nil {
		return 0, err
	}
	if b, err = s.spill(ctx, blob.OwnerOf(subject), b); err != nil {
		return 0, err
	}
	return s.Stream.Publish(ctx, tenant, session, b)
}

// Last implements output.Stream.
func (s *Stream) Last(ctx context.Context, tenant, session string) (output.Batch, uint64, bool, error) {
	b, seq, ok, err := s.Stream.Last(ctx, tenant, session)
	if err != nil || !ok {
		return b, seq, ok, err
	}
	b, err = s.whole(ctx, tenant, session, b)
	return b, seq, err == nil, err
}

// Tail implements output.Stream.
func (s *Stream) Tail(ctx context.Context, from uint64, handle func(output.Message) error) error {
	return s.Stream.Tail(ctx, from, func(m output.Message) error {
		pace := stream.NewPace()
		for {
			b, err := s.whole(ctx, m.Tenant, m.Session, m.Batch)
			if err == nil {
				m.Batch = b
				return handle(m)
			}
			if stop := pace.Wait(ctx); stop != nil {
				return fmt.Errorf("%w: %w", stop, err)
			}
		}
	})
}

// placeholder stands where an event is large.
var placeholder = json.RawMessage(`{}`)

// spill keeps what is too large as blobs.
func (s *Stream) spill(ctx context.Context, owner blob.Owner, b output.Batch) (output.Batch, error) {
	if len(b.Large) > 0 {
		return b, fmt.Errorf("%w: its large events are for the stream to make", output.ErrBatch)
	}
	all := b.Events
	for i, e := range all {
		if len(e) <= blob.Over {
			continue
		}
		ref, err := s.blobs.Put(ctx, owner, e)
		if errors.Is(err, events.ErrTooLarge) {
			return b, fmt.Errorf("%w: event %d: %w", output.ErrTooLarge, i, err)
		}
		if err != nil {
			return b, err
		}
		if len(b.Large) == 0 {
			b.Events = slices.Clone(all)
		}
		b.Events[i] = placeholder
		b.Large = append(b.Large, output.Large{At: i, Blob: ref})
	}
	return b, nil
}

// whole puts large events back. The error is a *blob.UnavailableError.
func (s *Stream) whole(ctx context.Context, tenant, session string, b output.Batch) (output.Batch, error) {
	if len(b.Large) == 0 {
		return b, nil
	}
	subject, err := events.OutputSubject(tenant, session)
	if err != nil {
		return b, err
	}
	b.Events = slices.Clone(b.Events) // a stream in memory gives its own
	for _, l := range b.Large {
		e, err := s.blobs.Get(ctx, blob.OwnerOf(subject), l.Blob)
		if lost, gone := errors.AsType[*events.LostError](err); gone {
			e, err = lostEvent(lost)
		}
		if err != nil {
			return b, err
		}
		b.Events[l.At] = e
	}
	b.Large = nil
	return b, nil
}

// lostEvent is what a viewer gets instead of an event that can't be had any more.
func lostEvent(lost *events.LostError) (json.RawMessage, error) {
	return events.Marshal(map[string]any{
		"type": "CUSTOM", "name": "holdfast.lost", "value": map[string]any{"size": lost.Blob.Size, "reason": lost.Error()},
	})
}
