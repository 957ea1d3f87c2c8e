package eventlog

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// overKept is how many aggregates are kept that are over: enough for what comes late
// to the last ones, such as refused answers, and a hundredth of what would otherwise be
// kept of sessions that nobody needs any more.
const overKept = 32

// cache keeps aggregates that were lately used, bounded in number, by the time that
// they were not used, and by the bytes of the events that they were folded from: more
// than what a State keeps of them, and what grows with large contents. One that alone is
// over the bound stays until another comes.
type cache[A Aggregate] struct {
	limit int
	idle  time.Duration
	now   func() time.Time

	mu sync.Mutex
	// open and over have no subject in common.
	open, over *simplelru.LRU[string, *entry[A]]
	uses       map[string]use
	size       int
}

// use is how an aggregate was last used, and its bytes then.
type use struct {
	at    time.Time
	bytes int
}

func newCache[A Aggregate](number, bytes int, idle time.Duration, now func() time.Time) *cache[A] {
	c := &cache[A]{limit: bytes, idle: idle, now: now, uses: map[string]use{}}
	c.open, c.over = c.newLRU(number), c.newLRU(min(number, overKept))
	return c
}

func (c *cache[A]) newLRU(number int) *simplelru.LRU[string, *entry[A]] {
	l, err := simplelru.NewLRU(number, func(subject string, _ *entry[A]) {
		c.size -= c.uses[subject].bytes
		delete(c.uses, subject)
	})
	if err != nil {
		panic(err) // a negative number: a programming error
	}
	return l
}

// Get gives an aggregate and makes it the last to go.
func (c *cache[A]) Get(subject string) (*entry[A], bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.open.Get(subject)
	if !ok {
		e, ok = c.over.Get(subject)
	}
	if ok {
		c.uses[subject] = use{c.now(), c.uses[subject].bytes}
	}
	return e, ok
}

// Peek is Get that changes nothing.
func (c *cache[A]) Peek(subject string) (*entry[A], bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.open.Peek(subject); ok {
		return e, true
	}
	return c.over.Peek(subject)
}

// Add keeps an aggregate as it is now; one that has grown is added again.
func (c *cache[A]) Add(subject string, e *entry[A]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	to, from := c.open, c.over
	if over, ok := any(e.state).(Ending); ok && over.Over() {
		to, from = from, to
	}
	from.Remove(subject)
	to.Add(subject, e)
	c.size += e.bytes - c.uses[subject].bytes
	c.uses[subject] = use{c.now(), e.bytes}
	c.dropIdle()
	for c.size > c.limit && c.open.Len()+c.over.Len() > 1 {
		spare := c.over.Len()
		if to == c.over {
			spare-- // the one that was just added stays
		}
		if spare > 0 {
			c.over.RemoveOldest()
		} else {
			c.open.RemoveOldest()
		}
	}
}

// dropIdle forgets what nobody has used for long. A store doesn't learn that a session
// has ended that it has nothing more to do with; without this, sessions that were short
// and many would all be held up to the bound in number.
func (c *cache[A]) dropIdle() {
	for {
		subject, _, ok := c.open.GetOldest()
		if !ok || c.now().Sub(c.uses[subject].at) <= c.idle {
			return
		}
		c.open.RemoveOldest()
	}
}

// Remove forgets an aggregate.
func (c *cache[A]) Remove(subject string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open.Remove(subject)
	c.over.Remove(subject)
}
