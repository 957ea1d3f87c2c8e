package eventlog

import (
	"context"
	"sync"
)

// keyLocks gives one lock for each key, waits no longer than the context, and
// keeps nothing of keys that nobody holds.
type keyLocks struct {
	mu   sync.Mutex
	held map[string]*keyLock
}

type keyLock struct {
	token chan struct{} // holds one token while free
	users int
}

func (l *keyLocks) lock(ctx context.Context, key string) (unlock func(), err error) {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[string]*keyLock{}
	}
	k := l.held[key]
	if k == nil {
		k = &keyLock{token: make(chan struct{}, 1)}
		k.token <- struct{}{}
		l.held[key] = k
	}
	k.users++
	l.mu.Unlock()

	select {
	case <-k.token:
		return func() {
			k.token <- struct{}{}
			l.drop(key, k)
		}, nil
	case <-ctx.Done():
		l.drop(key, k)
		return nil, ctx.Err()
	}
}

func (l *keyLocks) drop(key string, k *keyLock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.users--; k.users == 0 {
		delete(l.held, key)
	}
}
