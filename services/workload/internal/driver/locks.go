package driver

import (
	"context"
	"sync"
)

// SessionKey names a session across its generations.
type SessionKey struct{ Tenant, Session string }

// Key is the session of a sandbox.
func (r Ref) Key() SessionKey { return SessionKey{r.Tenant, r.Session} }

// Locks make operations for one session follow each other. The zero value is ready.
type Locks struct {
	mu      sync.Mutex
	held    map[SessionKey]*sessionLock
	drained bool
	active  sync.WaitGroup
}

type sessionLock struct {
	slot  chan struct{} // capacity 1
	users int
}

// Lock waits for a session's lock. It is ctx's error when ctx ends first, and
// ErrClosed after Drain.
func (l *Locks) Lock(ctx context.Context, key SessionKey) (unlock func(), err error) {
	l.mu.Lock()
	if l.drained {
		l.mu.Unlock()
		return nil, ErrClosed
	}
	if l.held == nil {
		l.held = map[SessionKey]*sessionLock{}
	}
	k := l.held[key]
	if k == nil {
		k = &sessionLock{slot: make(chan struct{}, 1)}
		l.held[key] = k
	}
	k.users++
	l.active.Add(1)
	l.mu.Unlock()

	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if k.users--; k.users == 0 {
			delete(l.held, key)
		}
		l.active.Done()
	}
	select {
	case k.slot <- struct{}{}:
		return func() { <-k.slot; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

// Drain refuses new locks and waits until the others are given back.
func (l *Locks) Drain() {
	l.mu.Lock()
	l.drained = true
	l.mu.Unlock()
	l.active.Wait()
}
