package reactor

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// queue holds the keys that wait, run or back off. All its methods may be called
// by any goroutine.
type queue struct {
	limit int

	mu     sync.Mutex
	change *sync.Cond // ready or closed changed, for next
	items  map[Key]*item
	ready  []Key
	closed bool
	// space is closed when the number of items falls below the limit; nil while
	// nobody waits for it.
	space chan struct{}
}

// item is a key's state; one that is neither ready, running nor timed is removed.
type item struct {
	ready   bool
	running bool
	again   bool // named while running
	// forgiven says that forgive came while it ran: how that run ends tells nothing of
	// what is asked for now.
	forgiven bool
	// failures counts those in a row; until notBefore the key isn't ready.
	failures  int
	notBefore time.Time
	// held is the newest message that named the key and isn't acknowledged.
	held jetstream.Msg
	// timer makes the key ready at due; nil when none is set.
	timer *time.Timer
	due   time.Time
}

func newQueue(limit int) *queue {
	q := &queue{limit: limit, items: map[Key]*item{}}
	q.change = sync.NewCond(&q.mu)
	return q
}

// add names a key, by a message or without one, and gives the older message that
// the new one replaces.
func (q *queue) add(key Key, m jetstream.Msg) (older jetstream.Msg) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed && m == nil {
		return nil
	}
	it := q.item(key)
	if m != nil {
		older, it.held = it.held, m
	}
	q.want(key, it)
	return older
}

// addAfter names a key for later.
func (q *queue) addAfter(key Key, d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.setTimer(key, q.item(key), time.Now().Add(d))
	}
}

func (q *queue) item(key Key) *item {
	it := q.items[key]
	if it == nil {
		it = &item{}
		q.items[key] = it
	}
	return it
}

// want makes a key ready as soon as it may be. Called with mu held.
func (q *queue) want(key Key, it *item) {
	switch {
	case it.running:
		it.again = true
	case it.ready:
	case time.Now().Before(it.notBefore):
		q.setTimer(key, it, it.notBefore)
	default:
		it.ready = true
		q.ready = append(q.ready, key)
		q.change.Signal()
	}
}

// setTimer has the key wanted at a time, unless it is already at an earlier one.
// Called with mu held.
func (q *queue) setTimer(key Key, it *item, at time.Time) {
	if q.closed || it.timer != nil && !at.Before(it.due) {
		return
	}
	if it.timer != nil {
		it.timer.Stop()
	}
	it.due = at
	var self *time.Timer
	self = time.AfterFunc(time.Until(at), func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if it.timer != self || q.closed {
			return // replaced or cancelled while it fired
		}
		it.timer = nil
		q.want(key, it)
	})
	it.timer = self
}

// next gives a key to settle, which counts as running until settled, failed, drop
// or release is called for it; ok is false once the queue is closed.
func (q *queue) next() (key Key, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.ready) == 0 && !q.closed {
		q.change.Wait()
	}
	if q.closed {
		return Key{}, false
	}
	key = q.ready[0]
	q.ready = q.ready[1:]
	it := q.items[key]
	it.ready, it.running, it.again, it.forgiven = false, true, false, false
	return key, true
}

// settled ends a run well. It gives the message to acknowledge: none when the key
// was named meanwhile and has to run again first.
func (q *queue) settled(key Key) jetstream.Msg {
	q.mu.Lock()
	defer q.mu.Unlock()
	it := q.items[key]
	it.running, it.failures, it.notBefore = false, 0, time.Time{}
	if it.again {
		q.want(key, it)
		return nil
	}
	m := it.held
	it.held = nil
	if it.timer == nil {
		q.remove(key)
	}
	return m
}

// failed ends a run badly: the key is wanted again after the wait.
func (q *queue) failed(key Key, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it := q.items[key]
	it.running = false
	if it.forgiven {
		q.want(key, it)
		return
	}
	it.failures++
	it.notBefore = time.Now().Add(wait)
	q.setTimer(key, it, it.notBefore)
}

// postponed ends a run that is to be made again later and counts as no failure. What
// names the key meanwhile waits too: nothing about the key stands in the way.
func (q *queue) postponed(key Key, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it := q.items[key]
	it.running = false
	if it.forgiven {
		q.want(key, it)
		return
	}
	it.notBefore = time.Now().Add(wait)
	q.setTimer(key, it, it.notBefore)
}

// drop forgets a running key and gives what it held.
func (q *queue) drop(key Key) jetstream.Msg {
	q.mu.Lock()
	defer q.mu.Unlock()
	it := q.items[key]
	if it.timer != nil {
		it.timer.Stop()
		it.timer = nil
	}
	q.remove(key)
	return it.held
}

// release ends a run that was cut off by the end of the process.
func (q *queue) release(key Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.items[key].running = false
}

// remove takes a key out. Called with mu held.
func (q *queue) remove(key Key) {
	delete(q.items, key)
	if q.space != nil && len(q.items) < q.limit {
		close(q.space)
		q.space = nil
	}
}

// failures gives how often in a row a key has failed.
func (q *queue) failures(key Key) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it := q.items[key]; it != nil {
		return it.failures
	}
	return 0
}

// forgive forgets a key's failures: what is asked for now isn't what failed.
func (q *queue) forgive(key Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it := q.items[key]; it != nil {
		it.failures, it.notBefore, it.forgiven = 0, time.Time{}, it.running
	}
}

// room waits until the queue may grow.
func (q *queue) room(ctx context.Context) error {
	for {
		q.mu.Lock()
		if len(q.items) < q.limit {
			q.mu.Unlock()
			return ctx.Err()
		}
		if q.space == nil {
			q.space = make(chan struct{})
		}
		space := q.space
		q.mu.Unlock()
		select {
		case <-space:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// heldMessages lists what isn't acknowledged.
func (q *queue) heldMessages() []jetstream.Msg {
	q.mu.Lock()
	defer q.mu.Unlock()
	var ms []jetstream.Msg
	for _, it := range q.items {
		if it.held != nil {
			ms = append(ms, it.held)
		}
	}
	return ms
}

func (q *queue) size() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}

func (q *queue) isClosed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

// close lets every next end and stops the timers. What is held stays so.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, it := range q.items {
		if it.timer != nil {
			it.timer.Stop()
			it.timer = nil
		}
	}
	q.change.Broadcast()
}
