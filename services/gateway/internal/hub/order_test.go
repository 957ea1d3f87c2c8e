package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/eventlog/memlog"
	"github.com/holdfast-io/holdfast/events/output"
	"github.com/holdfast-io/holdfast/events/output/memoutput"
	"github.com/holdfast-io/holdfast/events/session"
)

// late is an output stream whose tail can be made to stand still.
type late struct {
	output.Stream
	gate
}

// Tail implements output.Stream.
func (l *late) Tail(ctx context.Context, from uint64, handle func(output.Message) error) error {
	return l.Stream.Tail(ctx, from, func(m output.Message) error {
		if err := l.pass(ctx); err != nil {
			return err
		}
		return handle(m)
	})
}

// lateWorld is a world whose hub gets output when it is let.
func lateWorld(t testing.TB, change func(*Config)) (*world, *late) {
	t.Helper()
	out := &late{Stream: memoutput.New()}
	log := memlog.New(eventlog.Genesis{LogID: "log-of-the-test", Epoch: testEpoch})
	w := startWorld(t, log, out.Stream, func(c *Config) {
		c.Output = out
		if change != nil {
			change(c)
		}
	})
	return w, out
}

// record appends that a message of a run was completed by its event k.
func (w *world) record(t testing.TB, id, run string, k uint64) uint64 {
	t.Helper()
	return w.append(t, testTenant, id, session.RunMessageRecorded{
		RunID: run, MessageID: fmt.Sprintf("a-%d", k), Role: "assistant", Message: json.RawMessage(`{}`), K: k,
	})
}

// A run's end, and each message of the agent's, come behind what was said before them,
// however late the output comes: what is behind them waits, too. From each place on the
// way a viewer that comes again gets the rest, in the order of every replay.
func TestEventsWaitForWhatWasSaidBefore(t *testing.T) {
	for name, ends := range map[string]session.Payload{
		"recorded":    session.RunMessageRecorded{RunID: "r-1", MessageID: "a-1", Role: "assistant", Message: json.RawMessage(`{}`), K: 4},
		"finished":    session.RunFinished{RunID: "r-1", LastK: 4, Outcome: "success"},
		"interrupted": session.RunInterrupted{RunID: "r-1", LastK: 4},
		"failed":      session.RunFailed{RunID: "r-1", LastK: 4, Cause: "agent-error"},
		"lost":        session.RunFailed{RunID: "r-1", Cause: "workload-lost"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, out := lateWorld(t, nil)
			id := sid("a")
			w.begin(t, id)
			w.say(t, id, "r-1", 1, 2, 3)
			r := w.open(t, "/v1/sessions/"+id+"/stream", "")
			first := r.until("history", at(3, 1))
			out.hold(true)
			w.say(t, id, "r-1", 3, 3, 3)
			w.say(t, id, "r-1", 4, 4, 3)
			w.append(t, testTenant, id, ends)
			seq := w.append(t, testTenant, id, note("gateway"))
			if err := w.hub.awaitEvents(t.Context(), seq); err != nil {
				t.Fatal(err)
			}
			// Who comes while it waits sees it wait.
			other := w.open(t, "/v1/sessions/"+id+"/stream", first[len(first)-1].Cursor)
			out.hold(false)
			const want = "r-1:3-3 r-1:4-4 n4 n5"
			live := r.until("all", at(5, 3))
			wantWords(t, "live", live, want)
			wantWords(t, "come while it waited", other.until("all", at(5, 3)), want)
			replay := w.open(t, "/v1/sessions/"+id+"/replay?speed=0", "").until("end", func(f api.Frame) bool { return word(f) == "end" })
			wantWords(t, "replay", replay, "replay n1 n2 n3 r-1:1-2 "+want+" end")
			for i, f := range live {
				again := w.open(t, "/v1/sessions/"+id+"/stream", f.Cursor)
				w.note(t, id) // something to wait for
				rest := again.until("rest", at(w.n(id), 3))
				wantWords(t, "behind "+word(f), rest[:len(live)-1-i], words(live[i+1:]))
			}
		})
	}
}

// Output that isn't there any more, or never was, is waited for no longer than it takes
// to know that.
func TestEventsDontWaitForWhatIsGone(t *testing.T) {
	w, _ := lateWorld(t, func(c *Config) { c.HoldFor = time.Hour })
	id := sid("a")
	w.begin(t, id)
	r := w.open(t, "/v1/sessions/"+id+"/stream", "")
	r.until("history", at(3, 0))
	w.record(t, id, "r-1", 7)
	w.say(t, id, "r-1", 1, 2, 4)
	w.append(t, testTenant, id, session.RunFinished{RunID: "r-1", LastK: 9, Outcome: "success"})
	w.note(t, id)
	wantWords(t, "live", r.until("all", at(6, 1)), "n4 r-1:1-2 n5 n6")
}

// Where the hub can't follow the output, events go on after a while, and the output comes
// when it comes.
func TestEventsDontWaitForGood(t *testing.T) {
	w, out := lateWorld(t, func(c *Config) { c.HoldFor = 20 * time.Millisecond })
	id := sid("a")
	w.begin(t, id)
	r := w.open(t, "/v1/sessions/"+id+"/stream", "")
	r.until("history", at(3, 0))
	out.hold(true)
	w.say(t, id, "r-1", 1, 1, 3)
	w.append(t, testTenant, id, session.RunFinished{RunID: "r-1", LastK: 1, Outcome: "success"})
	w.note(t, id)
	wantWords(t, "without the output", r.until("both", at(5, 0)), "n4 n5")
	out.hold(false)
	wantWords(t, "then", r.until("output", at(5, 1)), "r-1:1-1")
}

// What waits one behind the other waits at the same time: each for HoldFor since it came.
func TestEventsWaitTogether(t *testing.T) {
	const wait = 300 * time.Millisecond
	w, out := lateWorld(t, func(c *Config) { c.HoldFor = wait })
	id := sid("a")
	w.begin(t, id)
	r := w.open(t, "/v1/sessions/"+id+"/stream", "")
	r.until("history", at(3, 0))
	out.hold(true)
	defer out.hold(false)
	w.say(t, id, "r-1", 1, 50, 3)
	began := time.Now()
	for k := uint64(1); k <= 50; k++ {
		w.record(t, id, "r-1", k)
	}
	r.until("all", at(53, 0))
	if took := time.Since(began); took < wait || took > 25*wait {
		t.Errorf("fifty events that came at once waited %s, each alone may for %s", took, wait)
	}
}

// What waits is bounded in bytes: more of it goes on without the output.
func TestEventsThatWaitAreBounded(t *testing.T) {
	w, out := lateWorld(t, func(c *Config) { c.HeldBytes, c.HoldFor = 500, time.Hour })
	id := sid("a")
	w.begin(t, id)
	r := w.open(t, "/v1/sessions/"+id+"/stream", "")
	r.until("history", at(3, 0))
	out.hold(true)
	defer out.hold(false)
	w.say(t, id, "r-1", 1, 1, 3)
	w.append(t, testTenant, id, session.RunFinished{RunID: "r-1", LastK: 1, Outcome: "success"})
	for range 10 {
		w.note(t, id)
	}
	r.until("what there was no room for", at(4, 0))
}

// An event that waits for output, and output that waits for that event: the event goes
// first. Output of a session is in its order, so what the event waits for won't come.
func TestEventAndOutputDontWaitForEachOther(t *testing.T) {
	w, out := lateWorld(t, func(c *Config) { c.HoldFor = time.Hour })
	id := sid("a")
	w.begin(t, id)
	r := w.open(t, "/v1/sessions/"+id+"/stream", "")
	r.until("history", at(3, 0))
	first := w.say(t, id, "r-2", 1, 1, 4)
	if err := w.hub.awaitOutput(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	out.hold(true)
	defer out.hold(false)
	w.say(t, id, "r-2", 2, 2, 4) // something is on its way
	w.append(t, testTenant, id, session.RunFinished{RunID: "r-1", LastK: 3, Outcome: "success"})
	wantWords(t, "live", r.until("both", at(4, first)), "n4 r-2:1-1")
}

// Who waits for output waits until viewers have it, not only until the hub does: the end
// of a stream, which nothing follows, is said then.
func TestAwaitedOutputWasPassedOn(t *testing.T) {
	w := newWorld(t, nil)
	id := sid("a")
	w.create(t, testTenant, id)
	r := w.open(t, "/v1/sessions/"+id+"/stream", "")
	r.until("history", at(1, 0))
	w.hub.mu.Lock()
	topic := w.hub.topics[sessionKey{testTenant, id}]
	w.hub.mu.Unlock()
	topic.mu.Lock()
	seq := w.say(t, id, "r-1", 1, 1, 1)
	eventually(t, "the hub has it", func() bool {
		w.hub.mu.Lock()
		defer w.hub.mu.Unlock()
		return w.hub.outputAt.seq == seq
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := w.hub.awaitOutput(ctx, seq); err == nil {
		t.Error("it was passed on to a topic that is busy")
	}
	topic.mu.Unlock()
	if err := w.hub.awaitOutput(t.Context(), seq); err != nil {
		t.Error(err)
	}
}

// turning is an output stream in which something happens right after its newest batch
// was read for the first time.
type turning struct {
	output.Stream
	then func()
	once sync.Once
}

// Last implements output.Stream.
func (s *turning) Last(ctx context.Context, tenant, session string) (b output.Batch, seq uint64, ok bool, err error) {
	defer s.once.Do(s.then)
	return s.Stream.Last(ctx, tenant, session)
}

// A session whose run ends while a viewer opens it shows what was said before the end.
func TestOpenedWhileARunEnds(t *testing.T) {
	out := &turning{Stream: memoutput.New()}
	log := memlog.New(eventlog.Genesis{LogID: "log-of-the-test", Epoch: testEpoch})
	w := startWorld(t, log, out.Stream, func(c *Config) { c.Output = out })
	id := sid("a")
	w.begin(t, id)
	w.say(t, id, "r-1", 1, 1, 3)
	out.then = func() {
		w.say(t, id, "r-1", 2, 2, 3)
		w.append(t, testTenant, id, session.RunFinished{RunID: "r-1", LastK: 2, Outcome: "success"})
	}
	r := w.open(t, "/v1/sessions/"+id+"/stream", "")
	wantWords(t, "history", r.until("all", at(4, 2)), "n1 n2 n3 r-1:1-1 r-1:2-2 n4")
}

// TestPropertyLiveIsReplayed: where each thing that an agent says is named by the next
// event, a viewer that is there all the time sees the order that every replay has, however
// late the one stream or the other is.
func TestPropertyLiveIsReplayed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tail := &lagging{Log: memlog.New(eventlog.Genesis{LogID: "log-of-the-test", Epoch: testEpoch})}
		out := &late{Stream: memoutput.New()}
		w := startWorld(t, tail, out.Stream, func(c *Config) { c.Output = out })
		defer w.stop()
		defer func() { tail.hold(false); out.hold(false) }()
		id := sid("a")
		w.begin(t, id)
		r := w.open(t, "/v1/sessions/"+id+"/stream", "")
		defer r.close()
		live := r.until("history", at(3, 0))
		var k, named, said uint64
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			switch rapid.SampledFrom([]string{"say", "say", "record", "record", "note", "events still", "output still", "events move", "output move"}).Draw(rt, "step") {
			case "say":
				first := k + 1
				k += uint64(rapid.IntRange(1, 3).Draw(rt, "length"))
				said = w.say(t, id, "r-1", first, k, w.n(id))
			case "record":
				if k > named {
					w.record(t, id, "r-1", k)
					named = k
				}
			case "note":
				if k == named {
					w.note(t, id)
				}
			case "events still":
				tail.hold(true)
			case "output still":
				out.hold(true)
			case "events move":
				tail.hold(false)
			case "output move":
				out.hold(false)
			}
		}
		tail.hold(false)
		out.hold(false)
		if last := at(w.n(id), said); !last(live[len(live)-1]) {
			live = append(live, r.until("all", last)...)
		}
		again := w.open(t, "/v1/sessions/"+id+"/replay?speed=0", "")
		defer again.close()
		replay := again.until("end", func(f api.Frame) bool { return word(f) == "end" })
		replay = replay[1 : len(replay)-1]
		if !slices.EqualFunc(live, replay, func(a, b api.Frame) bool { return a.Cursor == b.Cursor && word(a) == word(b) }) {
			rt.Fatalf("live   %s\nreplay %s", words(live), words(replay))
		}
	})
}

// An event that isn't of a run, or says nothing of output, waits for none.
func TestSpokenBefore(t *testing.T) {
	for name, tt := range map[string]struct {
		payloads []session.Payload
		want     spoken
	}{
		"nothing of a run":    {[]session.Payload{note("gateway")}, spoken{}},
		"a run that was lost": {[]session.Payload{session.RunFailed{RunID: "r-1", Cause: "workload-lost"}}, spoken{"r-1", everything}},
		"a message and then the end": {[]session.Payload{
			session.RunMessageRecorded{RunID: "r-1", MessageID: "a", Role: "assistant", Message: json.RawMessage(`{}`), K: 3},
			session.RunFinished{RunID: "r-1", LastK: 5, Outcome: "success"},
		}, spoken{"r-1", 5}},
		"the open run's end, lost, and another's": {[]session.Payload{
			session.RunFinished{RunID: "r-1", Outcome: "cancelled"}, session.RunFinished{RunID: "r-2", LastK: 5, Outcome: "cancelled"},
		}, spoken{"r-1", everything}},
	} {
		owner, _ := session.Owner(session.TypeOf(tt.payloads[0]))
		records, err := session.Records(owner, tt.payloads...)
		if err != nil {
			t.Fatal(err)
		}
		if got := spokenBefore(events.Envelope{Events: records}); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}
