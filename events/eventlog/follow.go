package eventlog

import (
	"context"
	"fmt"

	"github.com/holdfast-io/holdfast/events"
)

// Follower keeps aggregates up to date along a tail of the stream, for whoever
// needs the state as of each message: the projector and the gateway's hub. It
// reads at most what the cache lacks. It is used by one goroutine, the tail's.
type Follower[A Aggregate] struct {
	store *Store[A]
	cache *cache[A]
}

// NewFollower makes a Follower over the same Config as a Store.
func NewFollower[A Aggregate](cfg Config[A]) *Follower[A] {
	s := NewStore(cfg)
	return &Follower[A]{store: s, cache: s.cache}
}

// Follow gives the aggregate as of m, the next message of its subject on the
// tail. A repeated message (a tail that started again) is loaded anew, as of
// that message. The state is shared: only read it, before the next call.
func (f *Follower[A]) Follow(ctx context.Context, m events.Message) (A, error) {
	e, ok := f.cache.Get(m.Subject)
	if !ok || e.seq != m.Envelope.Prev {
		var err error
		if e, err = f.before(ctx, m); err != nil {
			var none A
			return none, err
		}
	}
	if err := e.apply(m); err != nil {
		f.cache.Remove(m.Subject)
		var none A
		return none, err
	}
	f.cache.Add(m.Subject, e)
	return e.state, nil
}

// Cached says whether the aggregate before m is in memory, so that following it
// costs no read.
func (f *Follower[A]) Cached(m events.Message) bool {
	e, ok := f.cache.Peek(m.Subject)
	return ok && e.seq == m.Envelope.Prev || m.Envelope.Prev == 0
}

// before loads the aggregate as of the message before m.
func (f *Follower[A]) before(ctx context.Context, m events.Message) (*entry[A], error) {
	if m.Envelope.Prev == 0 {
		return f.store.empty(), nil
	}
	last, err := f.store.cfg.Log.Get(ctx, m.Envelope.Prev)
	if err != nil {
		return nil, fmt.Errorf("%s: message before %d: %w", m.Subject, m.Seq, err)
	}
	return f.store.upTo(ctx, m.Subject, nil, last)
}
