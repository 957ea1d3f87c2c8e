package local

import (
	"cmp"
	"context"
	"sync"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// keyLocks makes operations for one session follow each other.
type keyLocks struct {
	mu      sync.Mutex
	held    map[sessionKey]*keyLock
	drained bool
	active  sync.WaitGroup
}

type keyLock struct {
	slot  chan struct{} // capacity 1
	users int
}

// lock waits for a session's lock. It is ctx's error when ctx ends first, and
// driver.ErrClosed after drain.
func (l *keyLocks) lock(ctx context.Context, key sessionKey) (unlock func(), err error) {
	l.mu.Lock()
	if l.drained {
		l.mu.Unlock()
		return nil, driver.ErrClosed
	}
	if l.held == nil {
		l.held = map[sessionKey]*keyLock{}
	}
	k := l.held[key]
	if k == nil {
		k = &keyLock{slot: make(chan struct{}, 1)}
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

// drain refuses new locks and waits until the others are given back.
func (l *keyLocks) drain() {
	l.mu.Lock()
	l.drained = true
	l.mu.Unlock()
	l.active.Wait()
}

// compareRefs orders sandboxes by tenant, session and generation.
func compareRefs(a, b driver.Ref) int {
	return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Session, b.Session), cmp.Compare(a.Generation, b.Generation))
}
