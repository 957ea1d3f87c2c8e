package hub

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/projections/view"
	"github.com/holdfast-io/holdfast/services/gateway/internal/auth"
	"github.com/holdfast-io/holdfast/services/gateway/internal/cursor"
)

// placeTimeout is how long the views are asked where to begin.
const placeTimeout = 2 * time.Second

// Followed is a frame as a reader inside the gateway gets it. Data must not be
// changed: other viewers have it too.
type Followed struct {
	Kind view.FrameKind
	N    uint64
	Data []byte
	// Run and LastK are an agui frame's.
	Run   string
	LastK uint64
	// Last says that nothing follows: the session has ended.
	Last bool
}

// ClosedError says why a Follower gives nothing more. Who follows again from where
// it was loses nothing.
type ClosedError struct{ Code api.CloseCode }

// Error implements error.
func (e *ClosedError) Error() string { return fmt.Sprintf("stream closed: %s", e.Code) }

// Follower reads one session's frames, for a part of the gateway that makes something
// else of them. It is a viewer like any other: bounded, counted, and for one goroutine.
type Follower struct {
	hub    *Hub
	conn   *connection
	src    source
	wake   chan struct{}
	cancel context.CancelFunc
	done   chan struct{}
	items  []item
}

// FollowFrom follows a session from behind its event n, with all output that was
// written since and is kept, and maybe some from before. Close it. Errors are problems:
// not-found, not-ready, quota-exceeded, history-unavailable.
func (h *Hub) FollowFrom(ctx context.Context, who auth.Principal, session string, n uint64) (*Follower, error) {
	return h.follow(ctx, who, func(ctx context.Context, sub *subscription) (source, error) {
		from := cursor.Session{Epoch: h.cfg.Epoch, N: n, Out: h.outputBehind(ctx, who.Tenant, session, n)}
		return h.attach(ctx, sessionKey{who.Tenant, session}, from, sub)
	})
}

// outputBehind is a place in the output behind which all is that was written after
// event n: a session may have said much before. Where the views can't tell, it is the
// beginning.
func (h *Hub) outputBehind(ctx context.Context, tenant, session string, n uint64) uint64 {
	if h.cfg.History == nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, placeTimeout)
	defer cancel()
	out, err := h.cfg.History.OutputBehind(ctx, tenant, session, n)
	if err != nil {
		h.cfg.Logger.Debug("output from its beginning", "session", session, "err", err)
		return 0
	}
	return out
}

// Follow is FollowFrom with what happens from now on alone.
func (h *Hub) Follow(ctx context.Context, who auth.Principal, session string) (*Follower, error) {
	return h.follow(ctx, who, func(ctx context.Context, sub *subscription) (source, error) {
		return h.attachNow(ctx, sessionKey{who.Tenant, session}, sub)
	})
}

func (h *Hub) follow(ctx context.Context, who auth.Principal, attach func(context.Context, *subscription) (source, error)) (*Follower, error) {
	conn, err := h.enter(who)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	src, err := attach(ctx, &subscription{out: conn.out})
	if err != nil {
		cancel()
		h.exit(conn)
		return nil, err
	}
	f := &Follower{hub: h, conn: conn, src: src, wake: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{})}
	conn.out.open(func() {
		select {
		case f.wake <- struct{}{}:
		default: // it has been told
		}
	})
	go func() { defer close(f.done); src.run(ctx) }()
	return f, nil
}

// attachNow is attach at the place where the topic stands.
func (h *Hub) attachNow(ctx context.Context, key sessionKey, sub *subscription) (*attachment, error) {
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
	at := a.register()
	if a.history, err = t.newHistory(ctx, cursor.Session{Epoch: h.cfg.Epoch, N: at.n, Out: at.out}, at); err != nil {
		a.detach()
		return nil, notReady(err)
	}
	return a, nil
}

// Next waits for the next frame. Errors: *ClosedError, or ctx's.
func (f *Follower) Next(ctx context.Context) (Followed, error) {
	for {
		for len(f.items) > 0 {
			i := f.items[0]
			f.items = f.items[1:]
			f.conn.out.written(f.hub.cfg.Now(), i.size())
			if fr := i.frame; fr != nil {
				return Followed{Kind: fr.kind, N: fr.n, Data: fr.data, Run: fr.run, LastK: fr.lastK, Last: fr.last}, nil
			}
		}
		items, closed := f.conn.out.take(nil)
		if closed != 0 {
			return Followed{}, &ClosedError{Code: closed}
		}
		if f.items = items; len(items) > 0 {
			continue
		}
		select {
		case <-f.wake:
		case <-ctx.Done():
			return Followed{}, ctx.Err()
		}
	}
}

// Close ends it. It may be called once.
func (f *Follower) Close() {
	f.cancel()
	<-f.done
	f.src.detach()
	f.hub.exit(f.conn)
}
