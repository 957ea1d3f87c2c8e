package hub

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/projections/view"
	"github.com/holdfast-io/holdfast/services/gateway/internal/cursor"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

// source is what a subscription was attached to.
type source interface {
	// run sends what was before and makes the subscription live; it returns when
	// that is done or ctx ends.
	run(ctx context.Context)
	// detach ends the subscription. Nothing is delivered to it afterwards.
	detach()
}

// attachment is a subscription to a session.
type attachment struct {
	topic   *topic
	sub     *subscription
	history *history
	// first is a gap that comes before everything, nil for none.
	first *frame
	// ended says that the session had ended, with all its output, at registration.
	ended bool
}

// attach registers a subscription with a session's topic and prepares to send what
// is behind its cursor. Errors are problems: not-found, not-ready,
// history-unavailable.
func (h *Hub) attach(ctx context.Context, key sessionKey, after cursor.Session, sub *subscription) (*attachment, error) {
	if err := h.ready(); err != nil {
		return nil, err
	}
	t, err := h.acquire(ctx, key.tenant, key.session)
	if err != nil {
		return nil, notReady(err)
	}
	a := &attachment{topic: t, sub: sub}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	foreign, err := t.foreign(ctx, after)
	if err == nil {
		to := a.register()
		from := after
		if foreign {
			from = cursor.Session{Epoch: h.cfg.Epoch} // a place in another log is none in this one
			a.first = newFrame(h.gapFrame(key.session, h.cfg.Now(), after.String(), from.String(), gapEpoch, h.snapshotOf(ctx, key)))
		}
		a.history, err = t.newHistory(ctx, from, to)
	}
	if err != nil {
		a.detach()
		return nil, notReady(err)
	}
	return a, nil
}

// notReady words a failure to open a session before anything was sent.
func notReady(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return problem.Wrap(api.CodeNotReady, "The session can't be opened now.", err)
	}
	return err
}

// register joins the topic and gives where it stands.
func (a *attachment) register() stand {
	t := a.topic
	t.mu.Lock()
	defer t.mu.Unlock()
	t.join(a.sub)
	a.ended = t.ending && t.over && len(t.held) == 0
	return stand{n: t.n, seq: t.seq, out: t.out}
}

// foreign says that a cursor is of another log, or of more than this one has: it
// was restored from an older copy. A cursor that another gateway gave, which is a
// little ahead of this one, is waited for.
func (t *topic) foreign(ctx context.Context, c cursor.Session) (bool, error) {
	if c.Epoch == "" {
		return false, nil
	}
	if c.Epoch != t.hub.cfg.Epoch {
		return true, nil
	}
	if t.reached(c) {
		return false, nil
	}
	_, last, _, err := t.newest(ctx)
	if err != nil {
		return false, err
	}
	var n uint64
	if err := t.hub.cfg.Sessions.Session(ctx, t.key.tenant, t.key.session, func(s *session.State) error {
		n = s.N
		return nil
	}); err != nil {
		return false, err
	}
	if c.N > n || c.Out > last {
		return true, nil
	}
	return false, t.await(ctx, c)
}

func (t *topic) reached(c cursor.Session) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n >= c.N && t.out >= c.Out
}

// await waits until the topic has passed on what a cursor says was seen.
func (t *topic) await(ctx context.Context, c cursor.Session) error {
	for {
		t.mu.Lock()
		if t.n >= c.N && t.out >= c.Out {
			t.mu.Unlock()
			return nil
		}
		if t.moved == nil {
			t.moved = make(chan struct{})
		}
		moved := t.moved
		t.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// run implements source.
func (a *attachment) run(ctx context.Context) {
	if a.first != nil && !a.put(ctx, a.first) {
		return
	}
	for {
		if !a.send(ctx) {
			return
		}
		if a.ended {
			a.topic.mu.Lock()
			end := a.topic.endFrame()
			a.topic.mu.Unlock()
			a.put(ctx, end)
			a.topic.leave(a.sub)
			return
		}
		if a.topic.goLive(ctx, a.sub) || a.topic.modeOf(a.sub) != lagged {
			return
		}
		// The pile was too large: what was in it is history by now.
		var err error
		if a.history, err = a.topic.newHistory(ctx, a.history.at, a.register()); err != nil {
			a.fail(ctx, err)
			return
		}
	}
}

// send sends the history.
func (a *attachment) send(ctx context.Context) bool {
	for {
		f, ok, err := a.history.next(ctx)
		if err != nil {
			a.fail(ctx, err)
			return false
		}
		if !ok {
			return true
		}
		if !a.put(ctx, newFrame(f)) {
			return false
		}
	}
}

func (a *attachment) put(ctx context.Context, f *frame) bool {
	return a.sub.out.putWhenRoom(ctx, item{sub: a.sub, frame: f})
}

// fail ends a connection whose history broke off: coming back with its last cursor
// loses nothing.
func (a *attachment) fail(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	a.topic.hub.cfg.Logger.Warn("history broke off", "session", a.topic.key.session, "err", err)
	a.sub.out.close(api.CloseSourceLost)
}

// detach implements source.
func (a *attachment) detach() {
	a.topic.leave(a.sub)
	a.topic.hub.release(a.topic)
}

// snapshotOf shows how a session stands; nil where that can't be read now.
func (h *Hub) snapshotOf(ctx context.Context, key sessionKey) *snapshot {
	s := &snapshot{Approvals: []view.Approval{}}
	err := h.cfg.Sessions.Session(ctx, key.tenant, key.session, func(st *session.State) error {
		shown := view.SessionOf(st)
		s.Session = &shown
		for _, id := range st.CallOrder {
			if c := st.Calls[id]; c.State == session.CallStatePending && c.Asked != nil {
				s.Approvals = append(s.Approvals, view.ApprovalOf(st, c))
			}
		}
		return nil
	})
	if err != nil {
		h.cfg.Logger.Debug("gap without a snapshot", "session", key.session, "err", err)
		return nil
	}
	return s
}
