package eventlog

import (
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// overKept is how many aggregates are kept that are over: enough for what comes late
// to the last ones, such as refused answers, and a hundredth of what would otherwise be
// kept of sessions that nobody needs any more.
const overKept = 32

// cache keeps aggregates that were lately used, bounded in number and by the bytes of
// the events that they were folded from: more than what a State keeps of them, and what
// grows with large contents. One that alone is over the bound stays until another comes.
type cache[A Aggregate] struct {
	limit int

	mu sync.Mutex
	// open and over have no subject in common.
	open, over *simplelru.LRU[string, *entry[A]]
	sizes      map[string]int
	size       int
}

func newCache[A Aggregate](number, bytes int) *cache[A] {
	c := &cache[A]{limit: bytes, sizes: map[string]int{}}
	c.open, c.over = c.newLRU(number), c.newLRU(min(number, overKept))
	return c
}

func (c *cache[A]) newLRU(number int) *simplelru.LRU[string, *entry[A]] {
	l, err := simplelru.NewLRU(number, func(subject string, _ *entry[A]) {
		c.size -= c.sizes[subject]
		delete(c.sizes, subject)
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
	if e, ok := c.open.Get(subject); ok {
		return e, true
	}
	return c.over.Get(subject)
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
	c.size += e.bytes - c.sizes[subject]
	c.sizes[subject] = e.bytes
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

// Remove forgets an aggregate.
func (c *cache[A]) Remove(subject string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open.Remove(subject)
	c.over.Remove(subject)
}
