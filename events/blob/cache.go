package blob

import (
	"context"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/holdfast-io/holdfast/events"
)

// Cached gives a Store that keeps what was lately stored or read in memory, up to
// limit bytes in all: the last message of a subject is read at each command, and the
// same contents pass through a service several times.
func Cached(s Store, limit int64) Store {
	kept, err := simplelru.NewLRU[cacheKey, []byte](1<<20, nil)
	if err != nil {
		panic(err) // the number is a constant
	}
	return &cache{store: s, limit: limit, kept: kept}
}

type cacheKey struct {
	owner Owner
	ref   events.Blob
}

type cache struct {
	store Store
	limit int64

	mu   sync.Mutex
	size int64
	kept *simplelru.LRU[cacheKey, []byte]
}

// Put implements Store.
func (c *cache) Put(ctx context.Context, owner Owner, contents []byte) (events.Blob, error) {
	ref, err := c.store.Put(ctx, owner, contents)
	if err == nil {
		c.keep(cacheKey{owner, ref}, contents)
	}
	return ref, err
}

// Get implements Store.
func (c *cache) Get(ctx context.Context, owner Owner, ref events.Blob) ([]byte, error) {
	k := cacheKey{owner, ref}
	c.mu.Lock()
	contents, ok := c.kept.Get(k)
	c.mu.Unlock()
	if ok {
		return contents, nil
	}
	contents, err := c.store.Get(ctx, owner, ref)
	if err == nil {
		c.keep(k, contents)
	}
	return contents, err
}

func (c *cache) keep(k cacheKey, contents []byte) {
	if int64(len(contents)) > c.limit {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept.Contains(k) {
		return
	}
	c.kept.Add(k, contents)
	for c.size += int64(len(contents)); c.size > c.limit; {
		_, oldest, _ := c.kept.RemoveOldest()
		c.size -= int64(len(oldest))
	}
}
