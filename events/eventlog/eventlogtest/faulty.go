package eventlogtest

import (
	"context"
	"sync/atomic"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
)

// faulty is a log whose reads are counted and whose appends and reads can be made
// to end otherwise.
type faulty struct {
	eventlog.Log
	// onAppend is asked instead of the log where it is set.
	onAppend func(ctx context.Context, subject string, env events.Envelope) (uint64, error)
	onLast   func() error
	gets     atomic.Int64
	lasts    atomic.Int64
}

// Append implements eventlog.Log.
func (f *faulty) Append(ctx context.Context, subject string, env events.Envelope) (uint64, error) {
	if f.onAppend != nil {
		return f.onAppend(ctx, subject, env)
	}
	return f.Log.Append(ctx, subject, env)
}

// Last implements eventlog.Log.
func (f *faulty) Last(ctx context.Context, subject string) (events.Message, bool, error) {
	f.lasts.Add(1)
	if f.onLast != nil {
		if err := f.onLast(); err != nil {
			return events.Message{}, false, err
		}
	}
	return f.Log.Last(ctx, subject)
}

// Get implements eventlog.Log.
func (f *faulty) Get(ctx context.Context, seq uint64) (events.Message, error) {
	f.gets.Add(1)
	return f.Log.Get(ctx, seq)
}

// restored is a log as an older copy of it would be: it ends at a sequence.
type restored struct {
	eventlog.Log
	last uint64
}

// Last implements eventlog.Log.
func (r restored) Last(ctx context.Context, subject string) (events.Message, bool, error) {
	m, ok, err := r.Log.Last(ctx, subject)
	for ok && err == nil && m.Seq > r.last {
		if m.Envelope.Prev == 0 {
			return events.Message{}, false, nil
		}
		m, err = r.Log.Get(ctx, m.Envelope.Prev)
	}
	return m, ok, err
}

// Get implements eventlog.Log.
func (r restored) Get(ctx context.Context, seq uint64) (events.Message, error) {
	if seq > r.last {
		return events.Message{}, eventlog.ErrNotFound
	}
	return r.Log.Get(ctx, seq)
}

// copyOf is an eventlog.Copy of what it is given.
type copyOf struct {
	messages []events.Message
	err      error
	asked    int
}

// Envelopes implements eventlog.Copy.
func (c *copyOf) Envelopes(context.Context, string, string) ([]events.Message, error) {
	c.asked++
	return c.messages, c.err
}
