package eventlog

import (
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// cache keeps aggregates that were lately used, bounded in number and by the bytes of
// the events that they were folded from: more than what a State keeps of them, and what
// grows with large contents. One that alone is over the bound stays until another comes.
type cache[A Aggregate] struct {
	limit int

	mu    sync.Mutex
	kept  *simplelru.LRU[string, *entry[A]]
	sizes map[string]int
	size  int
}

func newCache[A Aggregate](number, bytes int) *cache[A] {
	c := &cache[A]{limit: bytes, sizes: map[string]int{}}
	kept, err := simplelru.NewLRU(number, func(subject string, _ *entry[A]) {
		c.size -= c.sizes[subject]
		delete(c.sizes, subject)
	})
	if err != nil {
		panic(err) // a negative number: a programming error
	}
	c.kept = kept
	return c
}

// Get gives an aggregate and makes it the last to go.
func (c *cache[A]) Get(subject string) (*entry[A], bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kept.Get(subject)
}

// Peek is Get that changes nothing.
func (c *cache[A]) Peek(subject string) (*entry[A], bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kept.Peek(subject)
}

// Add keeps an aggregate as it is now; one that has grown is added again.
func (c *cache[A]) Add(subject string, e *entry[A]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept.Add(subject, e)
	c.size += e.bytes - c.sizes[subject]
	c.sizes[subject] = e.bytes
	for c.size > c.limit && c.kept.Len() > 1 {
		c.kept.RemoveOldest()
	}
}

// Remove forgets an aggregate.
func (c *cache[A]) Remove(subject string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept.Remove(subject)
}
