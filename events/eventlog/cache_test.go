package eventlog

import (
	"fmt"
	"testing"

	"github.com/holdfast-io/holdfast/events"
)

type nothing struct{}

func (nothing) Apply(events.Message) error { return nil }

// Aggregates that grow push out the oldest, by their bytes as by their number; what is
// forgotten is off the account; the last one stays however large it is.
func TestCacheIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	c := newCache[nothing](4, 1000)
	kept := func() (s string) {
		for i := range 7 {
			if _, ok := c.Peek(fmt.Sprint(i)); ok {
				s += fmt.Sprint(i)
			}
		}
		return s
	}
	add := func(i, bytes int) { c.Add(fmt.Sprint(i), &entry[nothing]{bytes: bytes}) }
	for _, step := range []struct {
		do   func()
		want string
		size int
	}{
		{func() { add(0, 300); add(1, 300); add(2, 300) }, "012", 900},
		{func() { c.Get("0"); add(3, 200) }, "023", 800},
		{func() { add(3, 700) }, "03", 1000},
		{func() { c.Remove("0") }, "3", 700},
		{func() { add(4, 1); add(5, 1); add(6, 1); add(1, 1) }, "1456", 4},
		{func() { add(2, 5000) }, "2", 5000},
		{func() { add(0, 1) }, "0", 1},
		{func() { c.Remove("0") }, "", 0},
	} {
		if step.do(); kept() != step.want || c.size != step.size || len(c.sizes) != c.kept.Len() {
			t.Fatalf("%q are kept, %d bytes; want %q, %d", kept(), c.size, step.want, step.size)
		}
	}
}
