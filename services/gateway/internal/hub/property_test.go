package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/eventlog/memlog"
	"github.com/holdfast-io/holdfast/events/output/memoutput"
	"github.com/holdfast-io/holdfast/services/gateway/internal/cursor"
)

// script is what happens to one session, drawn.
type script struct {
	steps []func(testing.TB, *world)
	// said is up to which k each run speaks.
	said map[string]uint64
	n    uint64
}

// drawScript draws a session's life: events in messages of one or two, runs one
// after the other, batches that repeat and overlap, and an events tail that stands
// still for a while, so that output comes before the events that it names.
func drawScript(t *rapid.T, id string, tail *lagging) *script {
	s := &script{said: map[string]uint64{}, n: 1}
	add := func(f func(testing.TB, *world)) { s.steps = append(s.steps, f) }
	add(func(tb testing.TB, w *world) { w.create(tb, testTenant, id) })
	run := 1
	for range rapid.IntRange(1, 25).Draw(t, "steps") {
		name := fmt.Sprintf("r-%d", run)
		after := s.n
		switch step := rapid.SampledFrom([]string{"note", "two", "say", "say", "record", "repeat", "run", "still", "move"}).Draw(t, "step"); step {
		case "note", "run":
			add(func(tb testing.TB, w *world) { w.note(tb, id) })
			s.n++
			if step == "run" { // another one, after an event of its own
				run++
			}
		case "two":
			add(func(tb testing.TB, w *world) { w.append(tb, testTenant, id, note("a"), note("b")) })
			s.n += 2
		case "say":
			first := s.said[name] + 1
			last := first + uint64(rapid.IntRange(0, 3).Draw(t, "length"))
			add(func(tb testing.TB, w *world) { w.say(tb, id, name, first, last, after) })
			s.said[name] = last
		case "record":
			k := s.said[name]
			if k == 0 {
				continue
			}
			add(func(tb testing.TB, w *world) { w.record(tb, id, name, k) })
			s.n++
		case "repeat":
			if s.said[name] == 0 {
				continue
			}
			first := uint64(rapid.IntRange(1, int(s.said[name])).Draw(t, "first"))
			last := uint64(rapid.IntRange(int(first), int(s.said[name])+2).Draw(t, "last"))
			add(func(tb testing.TB, w *world) { w.say(tb, id, name, first, last, after) })
			s.said[name] = max(s.said[name], last)
		case "still", "move":
			add(func(testing.TB, *world) { tail.hold(step == "still") })
		}
	}
	add(func(testing.TB, *world) { tail.hold(false) })
	return s
}

// gate lets a tail's messages through, or has them stand still.
type gate struct {
	mu    sync.Mutex
	still chan struct{} // closed when it moves; nil while it does
}

func (g *gate) hold(still bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case still && g.still == nil:
		g.still = make(chan struct{})
	case !still && g.still != nil:
		close(g.still)
		g.still = nil
	}
}

// pass waits until messages move.
func (g *gate) pass(ctx context.Context) error {
	g.mu.Lock()
	still := g.still
	g.mu.Unlock()
	if still == nil {
		return nil
	}
	select {
	case <-still:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lagging is a log whose tail can be made to stand still.
type lagging struct {
	eventlog.Log
	gate
}

// Tail implements eventlog.Log.
func (l *lagging) Tail(ctx context.Context, from uint64, handle func(events.Message) error) error {
	return l.Log.Tail(ctx, from, func(m events.Message) error {
		if err := l.pass(ctx); err != nil {
			return err
		}
		return handle(m)
	})
}

// viewed is what a viewer got over all its connections.
type viewed struct {
	n    uint64 // events, and gaps over events, up to here
	out  uint64
	said map[string]uint64
}

// see adds a frame, or says what is wrong with it. Gaps count as what they cover.
func (v *viewed) see(f api.Frame) error {
	c, err := cursor.ParseSession(f.Cursor)
	if err != nil {
		return err
	}
	switch f.Kind {
	case api.FrameKindEvent, api.FrameKindPrompt:
		if f.N != v.n+1 {
			return fmt.Errorf("event %d came after %d", f.N, v.n)
		}
		v.n = f.N
		if run, k := named(f); v.said[run] < k {
			return fmt.Errorf("event %d came before k %d of %s", f.N, k, run)
		}
	case api.FrameKindAgui:
		var number, first, last uint64
		if _, err := fmt.Sscanf(word(f), "r-%d:%d-%d", &number, &first, &last); err != nil {
			return err
		}
		run := fmt.Sprintf("r-%d", number)
		if first != v.said[run]+1 {
			return fmt.Errorf("k %d of %s came after %d", first, run, v.said[run])
		}
		v.said[run] = last
		if c.Out <= v.out {
			return fmt.Errorf("output %d came after %d", c.Out, v.out)
		}
		if f.N != v.n {
			return fmt.Errorf("output at n %d came at n %d", f.N, v.n)
		}
		v.out = c.Out
	case api.FrameKindControl:
		return fmt.Errorf("unexpected %s", word(f))
	}
	if c.N != v.n || c.Out < v.out {
		return fmt.Errorf("%s has cursor %d/%d at %d/%d", word(f), c.N, c.Out, v.n, v.out)
	}
	return nil
}

// named is the output that an event says it comes behind.
func named(f api.Frame) (run string, k uint64) {
	var e api.Event
	if f.Kind != api.FrameKindEvent || json.Unmarshal(f.Data, &e) != nil {
		return "", 0
	}
	at := spokenAt(events.Record{Type: e.Type, Data: e.Data})
	return at.run, at.k
}

// after checks that a batch comes only when its event has: the batch at the
// cursor names it.
func after(w *world, f api.Frame) error {
	if f.Kind != api.FrameKindAgui {
		return nil
	}
	c, err := cursor.ParseSession(f.Cursor)
	if err != nil {
		return err
	}
	for _, m := range all(w.out) {
		if m.Seq == c.Out && m.Batch.After > c.N {
			return fmt.Errorf("a batch after %d came at n %d", m.Batch.After, c.N)
		}
	}
	return nil
}

// TestPropertyViewer is invariant 7: whatever a session's life is, a viewer that is
// cut behind any frames and comes back with its last cursor gets each event and
// each k once and in order, no batch before its after, no event before the k that it
// names, whatever of history comes
// from the projections, the ring, the streams or live.
func TestPropertyViewer(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		history := &copied{page: rapid.SampledFrom([]int{0, 1, 3}).Draw(rt, "page")}
		tail := &lagging{Log: memlog.New(eventlog.Genesis{LogID: "log-of-the-test", Epoch: testEpoch})}
		w := startWorld(t, tail, memoutput.New(), func(c *Config) {
			c.RingBytes = rapid.SampledFrom([]int{1, 2000, DefaultRingBytes}).Draw(rt, "ring")
			if rapid.Bool().Draw(rt, "projections") {
				c.History = history
			}
		})
		defer w.stop()
		history.w = w
		id := sid("a")
		s := drawScript(rt, id, tail)
		v := &viewed{said: map[string]uint64{}}
		got, last := 0, ""
		follow := func(frames int) { // reads so many frames over one connection
			r := w.open(t, "/v1/sessions/"+id+"/stream", last)
			defer r.close()
			for range frames {
				if v.n == w.n(id) && maps.Equal(v.said, s.said) {
					return
				}
				select {
				case f := <-r.frames:
					if err := v.see(f); err != nil {
						rt.Fatalf("frame %d: %v", got, err)
					}
					if err := after(w, f); err != nil {
						rt.Fatal(err)
					}
					got, last = got+1, f.Cursor
				case <-quiet():
					return // nothing more until something happens
				}
			}
		}
		for i, step := range s.steps {
			step(t, w)
			if rapid.IntRange(0, 3).Draw(rt, "copy") == 0 {
				history.set(func() {
					history.n, history.out = uint64(rapid.IntRange(0, int(w.n(id))).Draw(rt, "copied n")), uint64(rapid.IntRange(int(history.out), len(all(w.out))).Draw(rt, "copied out"))
				})
			}
			if rapid.IntRange(0, 9).Draw(rt, "down") == 0 {
				history.set(func() { history.down = errDown })
			} else {
				history.set(func() { history.down = nil })
			}
			if rapid.Bool().Draw(rt, "view") || i == len(s.steps)-1 {
				follow(rapid.IntRange(1, 6).Draw(rt, "frames"))
			}
		}
		r := w.open(t, "/v1/sessions/"+id+"/stream", last)
		defer r.close()
		for v.n < s.n || !maps.Equal(v.said, s.said) {
			f, ok := r.next()
			if !ok {
				rt.Fatalf("the stream ended at %d of %d, %v of %v", v.n, s.n, v.said, s.said)
			}
			if err := v.see(f); err != nil {
				rt.Fatalf("frame %d: %v", got, err)
			}
			got++
		}
		checkReplay(rt, t, w, id, s)
	})
}

// checkReplay holds a replay to the rule: running maximum of after, event before
// output, sequence.
func checkReplay(rt *rapid.T, t *testing.T, w *world, id string, s *script) {
	r := w.open(t, "/v1/sessions/"+id+"/replay?speed=0", "")
	defer r.close()
	frames := r.until("end", func(f api.Frame) bool { return word(f) == "end" })
	want := []string{"replay"}
	var sees seen
	sees.known = true
	next, highest := uint64(1), uint64(0)
	for _, m := range all(w.out) {
		highest = max(highest, m.Batch.After)
		for ; next <= min(highest, s.n); next++ {
			want = append(want, fmt.Sprintf("n%d", next))
		}
		if v := sees.next(m.Batch); v.fresh {
			want = append(want, fmt.Sprintf("%s:%d-%d", v.rest.Run, v.rest.FirstK, v.rest.LastK))
		}
	}
	for ; next <= s.n; next++ {
		want = append(want, fmt.Sprintf("n%d", next))
	}
	want = append(want, "end")
	got := make([]string, len(frames))
	for i, f := range frames {
		got[i] = word(f)
	}
	if !slices.Equal(got, want) {
		rt.Fatalf("replay:\n got %v\nwant %v", got, want)
	}
}
