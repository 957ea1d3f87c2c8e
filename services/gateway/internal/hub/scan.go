package hub

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/output"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/projections/view"
)

// errTooFar says that reading through the stream would cost too much.
var errTooFar = errors.New("too far back to be read from the stream")

// errDone ends a tail that has read what it was for.
var errDone = errors.New("read to the end")

// slot waits until this read through a stream may begin.
func (h *Hub) slot(ctx context.Context) (done func(), err error) {
	select {
	case h.scans <- struct{}{}:
		return func() { <-h.scans }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// walk makes a session's frames with n above after from the log: back along prev
// from the message at seq.
func (h *Hub) walk(ctx context.Context, subject string, after, seq uint64) ([]view.Frame, error) {
	done, err := h.slot(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	var messages []events.Message
	for seq > 0 {
		m, err := h.cfg.Log.Get(ctx, seq)
		if err != nil {
			return nil, fmt.Errorf("%s: walk to %d: %w", subject, seq, err)
		}
		if m.Subject != subject || m.Envelope.N == 0 || m.Envelope.Prev >= m.Seq {
			return nil, &eventlog.ChainError{Subject: subject, Seq: m.Seq, Detail: "not a message of the chain"}
		}
		if m.Envelope.LastN() <= after {
			break
		}
		if messages = append(messages, m); len(messages) > h.cfg.ScanMessages {
			return nil, errTooFar
		}
		seq = m.Envelope.Prev
	}
	slices.Reverse(messages)
	follower := h.newFollower(1)
	var frames []view.Frame
	for _, m := range messages {
		m, err := h.cfg.Log.Whole(ctx, m)
		if err != nil {
			return nil, err
		}
		st, err := follower.Follow(ctx, m)
		if err != nil {
			return nil, err
		}
		for _, f := range view.Frames(st, m) {
			if f.N > after {
				frames = append(frames, f)
			}
		}
	}
	return frames, nil
}

// newFollower makes a follower for one read.
func (h *Hub) newFollower(size int) *eventlog.Follower[*session.State] {
	return eventlog.NewFollower(eventlog.Config[*session.State]{
		Log: h.cfg.Log, New: session.New, Copy: h.cfg.Copy, Epoch: h.cfg.Epoch, CacheSize: size,
	})
}

// scanOutput reads a session's batches in (after, to] from the stream itself.
func (h *Hub) scanOutput(ctx context.Context, key sessionKey, after, to uint64) ([]output.Message, error) {
	if to <= after {
		return nil, nil
	}
	if to-after > uint64(h.cfg.ScanMessages) {
		return nil, errTooFar
	}
	done, err := h.slot(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	var batches []output.Message
	err = h.cfg.Output.Tail(ctx, after+1, func(m output.Message) error {
		if m.Seq <= to && m.Tenant == key.tenant && m.Session == key.session {
			batches = append(batches, m)
		}
		if m.Seq >= to {
			return errDone
		}
		return nil
	})
	if !errors.Is(err, errDone) {
		return nil, err
	}
	return batches, nil
}
