package hub

import (
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/api"
)

// A frame of 10 MB is taken by a queue of 1 MiB that isn't empty, and what is small
// after it too: neither closes the connection. What is too slow still does.
func TestLargeItemsHaveTheirOwnBound(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	sized := func(n int) item { return item{raw: make([]byte, n)} }
	small, large := sized(limit/4), sized(10<<20)
	for name, tc := range map[string]struct {
		puts    []item
		written int // of the first
		closed  api.CloseCode
	}{
		"small ones":                      {[]item{small, small, small, small}, 0, 0},
		"too many small ones":             {[]item{small, small, small, small, sized(1)}, 0, api.CloseTooSlow},
		"a large one behind":              {[]item{small, small, small, small, large}, 0, 0},
		"small ones behind":               {[]item{large, small, small, small, small}, 0, 0},
		"too many small ones behind":      {[]item{large, small, small, small, small, sized(1)}, 0, api.CloseTooSlow},
		"as many after it was written":    {[]item{large, small, small, small, small}, 1, 0},
		"a call, its question, an answer": {[]item{small, large, large, large, small}, 0, 0},
		"large ones without end":          {append(make([]item, 0, 14), large, large, large, large, large, large, large, large, large, large, large, large, large), 0, api.CloseTooSlow},
		"one of any size":                 {[]item{sized(largeLimit + 1)}, 0, 0},
	} {
		o := &outbox{limit: limit}
		for _, i := range tc.puts {
			o.put(i)
		}
		for _, i := range tc.puts[:tc.written] {
			o.written(time.Now(), i.size())
		}
		if got := o.code(); got != tc.closed {
			t.Errorf("%s: closed with %v, want %v", name, got, tc.closed)
		}
		if tc.closed != 0 {
			continue
		}
		for _, i := range tc.puts[tc.written:] {
			o.written(time.Now(), i.size())
		}
		if o.bytes != 0 || o.large != 0 {
			t.Errorf("%s: %d bytes, %d of them large, are left of nothing", name, o.bytes, o.large)
		}
	}
}
