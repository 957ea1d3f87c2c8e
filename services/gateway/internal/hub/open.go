package hub

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/output"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/projections/view"
)

// madeFrames is what a message shows, or that its session can't be folded.
type madeFrames struct {
	frames []view.Frame
	broken bool
}

// foldAttempts is how often a session is loaded that can't be, before its viewers
// are told: others wait meanwhile.
const foldAttempts = 5

// frames makes the frames of the next message of the tail.
func (h *Hub) frames(ctx context.Context, m events.Message) (madeFrames, error) {
	for attempt := 1; ; attempt++ {
		st, err := h.follower.Follow(ctx, m)
		switch {
		case err == nil:
			return madeFrames{frames: view.Frames(st, m)}, nil
		case ctx.Err() != nil:
			return madeFrames{}, ctx.Err()
		case faulted(err) || attempt == foldAttempts:
			h.cfg.Logger.Warn("session can't be followed", "subject", m.Subject, "seq", m.Seq, "err", err)
			return madeFrames{broken: true}, nil
		}
		select {
		case <-ctx.Done():
			return madeFrames{}, ctx.Err()
		case <-time.After(time.Duration(attempt) * 100 * time.Millisecond):
		}
	}
}

// faulted says that reading again would end the same.
func faulted(err error) bool {
	_, chain := errors.AsType[*eventlog.ChainError](err)
	_, unknown := errors.AsType[*events.UnknownTypeError](err)
	_, foreign := errors.AsType[*events.ForeignTypeError](err)
	return chain || unknown || foreign || errors.Is(err, eventlog.ErrNotFound)
}

// openAttempts is how often a session and its output are read until both stand still: where
// an agent speaks without a pause, an event may be shown before what was said before it.
const openAttempts = 5

// openTimeout bounds opening a topic, and what a viewer waits for at attach.
const openTimeout = 5 * time.Second

// acquire gives the topic of a session, opened; release it afterwards. Errors are
// those of Sessions, not-found among them, and of OUTPUT.
func (h *Hub) acquire(ctx context.Context, tenant, id string) (*topic, error) {
	key := sessionKey{tenant, id}
	h.mu.Lock()
	t, found := h.topics[key]
	if !found {
		t = &topic{hub: h, key: key, ready: make(chan struct{}), loading: true}
		h.topics[key] = t
	}
	t.refs++
	h.mu.Unlock()
	if !found {
		// Not in the caller's time: another may have come to wait for it.
		go func() { //nolint:contextcheck // see above
			ctx, cancel := context.WithTimeout(h.ctx, openTimeout)
			defer cancel()
			t.err = t.open(ctx)
			close(t.ready)
		}()
	}
	select {
	case <-t.ready:
	case <-ctx.Done():
		h.release(t)
		return nil, ctx.Err()
	}
	if t.err != nil {
		h.release(t)
		return nil, t.err
	}
	return t, nil
}

// release gives a topic back; without anybody it is gone.
func (h *Hub) release(t *topic) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.refs--; t.refs == 0 && h.topics[t.key] == t {
		delete(h.topics, t.key)
	}
}

// open finds out where the session stands. The topic is in the hub's map already,
// so whatever is newer than what is read here comes by the tails.
func (t *topic) open(ctx context.Context) error {
	subject, err := events.SessionSubject(t.key.tenant, t.key.session)
	if err != nil {
		subject = "" // Sessions says not-found
	}
	last, out, found, err := t.newest(ctx)
	if err != nil {
		return err
	}
	ended := false
	for attempt := 1; ; attempt++ {
		// Read after the output, so that no batch of it names an event that is newer.
		if err := t.hub.cfg.Sessions.Session(ctx, t.key.tenant, t.key.session, func(s *session.State) error {
			t.n, t.seq, t.mask, t.created, ended = s.N, s.Seq, view.ForSession(s), s.CreatedAt, s.Ended
			return nil
		}); err != nil {
			return err
		}
		if attempt == openAttempts && !ended {
			break
		}
		// And before it, so that the output that an event names is there, too; of a session
		// that has ended it is complete then.
		before := out
		if last, out, found, err = t.newest(ctx); err != nil {
			return err
		}
		if ended || out == before {
			break
		}
	}
	if err := t.hub.awaitOutput(ctx, out); err != nil {
		return unavailable(err)
	}
	if found {
		t.seen.anchor(last)
		t.seen.k = max(t.seen.k, t.highestK(last.Run, out))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.subject, t.out, t.ending, t.over, t.loading = subject, out, ended, ended, false
	for _, come := range t.early {
		come()
	}
	t.early = nil
	return nil
}

// newest reads the session's newest batch.
func (t *topic) newest(ctx context.Context) (last output.Batch, seq uint64, found bool, err error) {
	if !events.ValidToken(t.key.tenant) || !events.ValidToken(t.key.session) {
		return output.Batch{}, 0, false, nil
	}
	return t.hub.cfg.Output.Last(ctx, t.key.tenant, t.key.session)
}

// highestK finds how far a run was seen among the recent batches up to one: the
// newest batch may be a replaced runner's old one.
func (t *topic) highestK(run string, upTo uint64) uint64 {
	var k uint64
	t.hub.mu.Lock()
	defer t.hub.mu.Unlock()
	for _, m := range t.hub.recent.messages[t.hub.recent.head:] {
		if m.Session == t.key.session && m.Tenant == t.key.tenant && m.Seq <= upTo && m.Batch.Run == run {
			k = max(k, m.Batch.LastK)
		}
	}
	return k
}

// finish says the end to an ended session's viewers once all its output was
// passed on.
func (h *Hub) finish(t *topic) {
	for {
		_, seq, _, err := t.newest(h.ctx)
		if err == nil {
			err = h.awaitOutput(h.ctx, seq)
		}
		if err == nil {
			t.mu.Lock()
			t.over = true
			t.maybeEnd()
			t.mu.Unlock()
			return
		}
		select {
		case <-h.ctx.Done():
			return
		case <-time.After(retryTail):
		}
	}
}
