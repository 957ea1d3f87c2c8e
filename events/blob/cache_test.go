package blob_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-io/holdfast/events/blob"
	"github.com/holdfast-io/holdfast/events/blob/blobtest"
	"github.com/holdfast-io/holdfast/events/blob/memblob"
)

var errDown = errors.New("down")

// What the cache has is there without its store; what it has not is not; and it has
// no more than its limit, the oldest gone first.
func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	s := &memblob.Store{}
	c := blob.Cached(s, 1000)
	owner := func(i int) blob.Owner { return blob.Owner(fmt.Sprintf("t1.s-%d", i)) }
	contents := blobtest.Contents(400)
	for i := range 4 {
		if _, err := c.Put(t.Context(), owner(i), contents); err != nil {
			t.Fatal(err)
		}
	}
	huge := blobtest.Contents(1001)
	if _, err := c.Put(t.Context(), owner(9), huge); err != nil {
		t.Fatal(err)
	}
	s.Fail(errDown)
	for i, there := range []bool{false, false, true, true} {
		if _, err := c.Get(t.Context(), owner(i), blob.RefOf(contents)); (err == nil) != there || err != nil && !errors.Is(err, errDown) {
			t.Errorf("blob %d: %v; want it kept: %t", i, err, there)
		}
	}
	if _, err := c.Get(t.Context(), owner(9), blob.RefOf(huge)); !errors.Is(err, errDown) {
		t.Errorf("one that is larger than all the cache: %v", err)
	}
}
