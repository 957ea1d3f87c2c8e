package hub

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-io/holdfast/api"
)

// gone closes the queue of a connection that its client has ended.
const gone api.CloseCode = -1

// item is something to be written: a frame of a subscription, or a reply.
type item struct {
	sub   *subscription
	frame *frame
	raw   []byte
}

func (i item) size() int {
	if i.frame != nil {
		return len(i.frame.json)
	}
	return len(i.raw)
}

// largeLimit bounds the large items of one queue together: those of a call with
// arguments of the largest size, and its question, come at once. Their bytes are shared
// by all viewers of a frame, so a slow one holds little of its own.
const largeLimit = 128 << 20

// outbox is the bounded queue of one connection. Producers put, one writer at a
// time takes.
//
// Items that are larger than the limit are bounded apart: behind a frame of 10 MB
// the queue is not too slow for the next small one, and a client that was closed for
// that would meet the same frame at each return.
type outbox struct {
	limit int
	// wrote is when something last went out, in Unix nanoseconds.
	wrote atomic.Int64

	mu sync.Mutex
	// wake is called, with the lock held, when there is something to take and the
	// writer hasn't been woken for it; nil before there is a writer.
	wake   func()
	queue  []item
	bytes  int // of all items
	large  int // of the large ones among them
	awake  bool
	closed api.CloseCode
	room   chan struct{} // closed when bytes fall under half the limit; nil if nobody waits
}

// put queues an item. A queue that overflows is closed as too slow; false says
// that it is closed.
func (o *outbox) put(i item) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed != 0:
		return false
	case o.overflows(i.size()):
		o.shut(api.CloseTooSlow)
		o.rouse()
		return false
	}
	o.queue = append(o.queue, i)
	o.count(i.size())
	o.rouse()
	return true
}

func (o *outbox) overflows(size int) bool {
	if o.isLarge(size) {
		return o.large > 0 && o.large+size > largeLimit
	}
	return o.bytes > o.large && o.bytes-o.large+size > o.limit
}

func (o *outbox) isLarge(size int) bool { return size > o.limit }

// count adds an item's bytes to the account, or with a negative size takes them off.
func (o *outbox) count(size int) {
	o.bytes += size
	if o.isLarge(max(size, -size)) { // as it was when it came
		o.large += size
	}
}

// putWhenRoom is put for history, which waits until the queue is half empty.
func (o *outbox) putWhenRoom(ctx context.Context, i item) bool {
	for {
		o.mu.Lock()
		if o.closed != 0 || o.bytes == 0 || o.bytes+i.size() <= o.limit/2 {
			o.mu.Unlock()
			return o.put(i)
		}
		if o.room == nil {
			o.room = make(chan struct{})
		}
		room := o.room
		o.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return false
		}
	}
}

// rouse wakes the writer if it sleeps, with the lock held.
func (o *outbox) rouse() {
	if !o.awake && o.wake != nil {
		o.wake()
	}
	o.awake = true
}

// open says how the writer is woken, and wakes it if it has missed that.
func (o *outbox) open(wake func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.wake = wake; o.awake {
		wake()
	}
}

// take gives everything that is queued, or why the queue was closed. With neither
// the writer may sleep: it will be woken.
func (o *outbox) take(into []item) (items []item, closed api.CloseCode) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed != 0 {
		return into[:0], o.closed
	}
	if len(o.queue) == 0 {
		o.awake = false
		o.queue = nil // an idle connection holds no memory
		return into[:0], 0
	}
	items, o.queue = o.queue, into[:0]
	return items, 0
}

// written takes an item of size bytes off the account: what was taken is still held
// until it is on the wire.
func (o *outbox) written(now time.Time, size int) {
	o.wrote.Store(now.UnixNano())
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed != 0 {
		return // the account is closed
	}
	o.count(-size)
	if o.room != nil && o.bytes <= o.limit/2 {
		close(o.room)
		o.room = nil
	}
}

// shut closes with the lock held and drops what is queued.
func (o *outbox) shut(code api.CloseCode) {
	o.closed, o.queue, o.bytes, o.large = code, nil, 0, 0
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
}

// close closes the queue for a reason; the first one counts.
func (o *outbox) close(code api.CloseCode) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed != 0 {
		return
	}
	o.shut(code)
	o.rouse()
}

// code is why the queue is closed, 0 while it isn't.
func (o *outbox) code() api.CloseCode {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.closed
}
