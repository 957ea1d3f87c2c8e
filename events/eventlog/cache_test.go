package eventlog

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/events"
)

type nothing struct{}

func (nothing) Apply(events.Message) error { return nil }

// Aggregates that grow push out the oldest, by their bytes as by their number; what is
// forgotten is off the account; the last one stays however large it is.
func TestCacheIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	c := newCache[nothing](4, 1000, time.Hour, time.Now)
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
		if step.do(); kept() != step.want || c.size != step.size || len(c.uses) != c.open.Len()+c.over.Len() {
			t.Fatalf("%q are kept, %d bytes; want %q, %d", kept(), c.size, step.want, step.size)
		}
	}
}

// life is an aggregate that may be over.
type life bool

func (life) Apply(events.Message) error { return nil }
func (l life) Over() bool               { return bool(l) }

// Of what is over only the last few stay, and go first where there is no room; what is
// open stays, however much ends beside it.
func TestCacheKeepsFewThatAreOver(t *testing.T) {
	t.Parallel()
	c := newCache[life](100, 1000, time.Hour, time.Now)
	add := func(subject string, over bool, bytes int) {
		c.Add(subject, &entry[life]{state: life(over), bytes: bytes})
	}
	add("open", false, 10)
	for i := range 90 {
		subject := fmt.Sprint(i)
		add(subject, false, 10)
		add(subject, true, 10)
	}
	if c.over.Len() != overKept || c.open.Len() != 1 || c.size != 10*(overKept+1) || len(c.uses) != overKept+1 {
		t.Errorf("%d over and %d open are kept, %d bytes of %d", c.over.Len(), c.open.Len(), c.size, len(c.uses))
	}
	if e, ok := c.Get("89"); !ok || !e.state.Over() {
		t.Error("the last one is gone, or is still held for open")
	}
	add("large", false, 980)
	if _, ok := c.Peek("open"); !ok || c.over.Len() != 1 || c.size != 1000 {
		t.Errorf("%d over are kept beside the large one, %d bytes; the open one: %v", c.over.Len(), c.size, ok)
	}
	add("ended", true, 20)
	if _, ok := c.Peek("ended"); !ok || c.over.Len() != 1 || c.open.Len() != 1 {
		t.Errorf("%d over and %d open are kept", c.over.Len(), c.open.Len())
	}
}

// What nobody uses goes with the next that comes, however much room there is; what is
// used stays.
func TestCacheForgetsWhatIsNotUsed(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	c := newCache[nothing](100, 1000, time.Minute, func() time.Time { return now })
	add := func(subject string) { c.Add(subject, &entry[nothing]{bytes: 1}) }
	add("left")
	add("read")
	now = now.Add(time.Minute)
	if _, ok := c.Get("read"); !ok {
		t.Fatal("one that was used a minute ago is gone")
	}
	now = now.Add(time.Second)
	add("new")
	if _, ok := c.Peek("left"); ok || c.size != 2 || len(c.uses) != 2 {
		t.Errorf("what was not used is there: %v; %d bytes of %d are kept", ok, c.size, len(c.uses))
	}
	if _, ok := c.Peek("read"); !ok {
		t.Error("what was read a second ago is gone")
	}
}
