package hub

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/gateway/internal/cursor"
)

// quiet ends a read that has nothing to wait for but might have missed something.
func quiet() <-chan time.Time { return time.After(20 * time.Millisecond) }

// TestHandover attaches viewers, over and over, while events and output come as
// fast as they can.
func TestHandover(t *testing.T) {
	handOver(t, newWorld(t, func(c *Config) { c.RingBytes = 4000 }), 150)
}

// handOver has a session live while viewers come and go.
func handOver(t *testing.T, w *world, turns uint64) {
	t.Helper()
	id := sid("a")
	w.create(t, testTenant, id)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for k := uint64(1); k <= turns; k++ {
			w.note(t, id)
			w.say(t, id, "r-1", k, k, k+1)
		}
	}()
	var viewers sync.WaitGroup
	for i := range 8 {
		viewers.Go(func() {
			v, last := &viewed{said: map[string]uint64{}}, ""
			for v.n < turns+1 || v.said["r-1"] < turns {
				last = watch(t, w, id, last, v, turns, 30+7*i)
				if t.Failed() {
					return
				}
			}
		})
	}
	viewers.Wait()
	<-done
}

// watch reads so many frames over one connection, and gives the last cursor.
func watch(t *testing.T, w *world, id, last string, v *viewed, turns uint64, frames int) string {
	r := w.open(t, "/v1/sessions/"+id+"/stream", last)
	defer r.close()
	for range frames {
		if v.n == turns+1 && v.said["r-1"] == turns {
			break
		}
		f, ok := r.next()
		if !ok {
			t.Error("the stream ended")
			break
		}
		if err := v.see(f); err != nil {
			t.Error(err)
			break
		}
		last = f.Cursor
	}
	return last
}

// TestCutAtEveryFrame resumes behind each frame of a session's whole life.
func TestCutAtEveryFrame(t *testing.T) {
	w := newWorld(t, nil)
	id := sid("a")
	w.create(t, testTenant, id)
	for k := uint64(1); k <= 6; k++ {
		w.say(t, id, "r-1", k, k, k)
		w.note(t, id)
	}
	whole := w.open(t, "/v1/sessions/"+id+"/stream", "").until("all", at(7, 6))
	for i, f := range whole[:len(whole)-1] {
		rest := w.open(t, "/v1/sessions/"+id+"/stream?after="+f.Cursor, "").until("rest", at(7, 6))
		wantWords(t, "behind "+word(f), rest, words(whole[i+1:]))
		for j, again := range rest { // the same frames, byte for byte
			if again.Cursor != whole[i+1+j].Cursor {
				t.Errorf("behind %s: %s has another cursor", word(f), word(again))
			}
		}
	}
}

func TestSlowViewerIsClosedAndOthersGoOn(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.QueueBytes = 16 << 10 })
	id := sid("a")
	w.create(t, testTenant, id)
	slow := w.connectSlow(t)
	slow.subscribe("1", id, "")
	_, first := slow.frame()
	slowSSE := dialRaw(t, w, "/v1/sessions/"+id+"/stream")
	quick := w.open(t, "/v1/sessions/"+id+"/stream", "")
	quick.until("history", at(1, 0))
	eventually(t, "three viewers", func() bool { return viewersOf(w, id) == 3 })
	gone := func() bool { return viewersOf(w, id) == 1 }
	n := uint64(0)
	for !gone() && n < 100000 {
		n++
		w.say(t, id, "r-1", n*100-99, n*100, 1)
		quick.until("live", at(1, n))
	}
	if !gone() {
		t.Fatal("the slow viewers are still there")
	}
	w.note(t, id)
	quick.until("live, still", at(2, n))

	v := &viewed{n: 1, said: map[string]uint64{}}
	last := first.Cursor
	for {
		m, code := slow.readOrGone()
		if m == nil {
			if code != api.CloseTooSlow || !code.Reconnect() {
				t.Errorf("closed with %v", code)
			}
			break
		}
		if fm, ok := m.(*api.WSFrame); ok {
			f := decode(t, fm.Frame)
			if err := v.see(f); err != nil {
				t.Fatal(err)
			}
			last = f.Cursor
		}
	}
	again := w.open(t, "/v1/sessions/"+id+"/stream", last)
	for v.n < 2 || v.said["r-1"] < n*100 {
		f, ok := again.next()
		if !ok {
			t.Fatal("the stream ended")
		}
		if err := v.see(f); err != nil {
			t.Fatal(err)
		}
	}
	checkOverflow(t, slowSSE)
	eventually(t, "both are counted", func() bool { return testutil.ToFloat64(w.hub.metrics.closed.WithLabelValues("too-slow")) == 2 })
}

// checkOverflow reads a stream to its end, which has to say that the viewer was too
// slow, and where it is.
func checkOverflow(t *testing.T, conn io.Reader) {
	t.Helper()
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	last, cursor := api.SSEEvent{}, ""
	for sse := api.NewSSEReader(res.Body, 0); ; {
		e, err := sse.Next()
		if err != nil {
			break
		}
		if !e.IsComment {
			cursor, last = last.ID, e
		}
	}
	c := controlOf(decode(t, last.Data))
	if c.Reason != api.ControlReasonOverflow || c.From != cursor || c.To != cursor || last.ID != cursor {
		t.Errorf("the slow stream ends with %s behind %s", last.Data, cursor)
	}
}

// dialRaw asks for a stream and reads nothing of it, with small buffers.
func dialRaw(t *testing.T, w *world, path string, headers ...string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", w.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	head := append([]string{"GET " + path + " HTTP/1.1", "Host: x"}, headers...)
	if _, err := fmt.Fprintf(conn, "%s\r\n\r\n", strings.Join(head, "\r\n")); err != nil {
		t.Fatal(err)
	}
	return conn
}

// viewersOf counts a session's subscriptions.
func viewersOf(w *world, id string) int {
	w.hub.mu.Lock()
	t := w.hub.topics[sessionKey{testTenant, id}]
	w.hub.mu.Unlock()
	if t == nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.subs)
}

// TestOverflow fills a queue whose writer doesn't write.
func TestOverflow(t *testing.T) {
	woken := 0
	o := &outbox{limit: 100}
	o.open(func() { woken++ })
	f := &frame{json: make([]byte, 60)}
	if !o.put(item{frame: f}) || o.put(item{frame: f}) {
		t.Fatal("the second frame is over the limit")
	}
	if o.code() != api.CloseTooSlow || o.put(item{raw: []byte("x")}) {
		t.Errorf("code %v", o.code())
	}
	if woken != 1 {
		t.Errorf("woken %d times for one sleep", woken)
	}
	if _, closed := o.take(nil); closed != api.CloseTooSlow {
		t.Errorf("the writer sees %v", closed)
	}
	big := &outbox{limit: 10}
	if !big.put(item{frame: f}) {
		t.Error("a frame over the limit doesn't pass alone")
	}
}

func TestInbox(t *testing.T) {
	w := newWorld(t, nil)
	a, b, other := sid("a"), sid("b"), sid("c")
	w.create(t, testTenant, a)
	r := w.open(t, "/v1/stream", "")
	start, _ := r.next()
	if word(start) != "heartbeat" {
		t.Fatalf("the inbox begins with %s", word(start))
	}
	w.create(t, testTenant, b)
	w.create(t, "other", other)
	w.say(t, a, "r-1", 1, 1, 1)
	w.note(t, a)
	w.append(t, testTenant, b, note("x"), note("y"))
	count := 0
	live := r.until("all", func(api.Frame) bool { count++; return count == 4 })
	wantWords(t, "live", live, "n1 n2 n2 n3")
	if got := []string{live[0].Session, live[1].Session, live[2].Session}; got[0] != b || got[1] != a || got[2] != b {
		t.Errorf("sessions %v", got)
	}
	for i, f := range append([]api.Frame{start}, live[:3]...) {
		again := w.open(t, "/v1/stream", f.Cursor)
		left := len(live) - i
		rest := again.until("rest", func(api.Frame) bool { left--; return left == 0 })
		wantWords(t, "behind "+word(f), rest, words(live[i:]))
	}
	gap, _ := w.open(t, "/v1/stream", cursor.Inbox{Epoch: "e0", Seq: 1}.String()).next()
	if c := controlOf(gap); c.Type != api.ControlTypeGap || c.Reason != api.ControlReasonEpoch {
		t.Errorf("another epoch: %s", gap.Data)
	}
}

func TestInboxThatIsTooFarBehind(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.ScanMessages = 3 })
	id := sid("a")
	w.create(t, testTenant, id)
	for range 5 {
		w.note(t, id)
	}
	eventually(t, "the hub has seen it", func() bool { return w.hub.awaitEvents(t.Context(), 7) == nil })
	r := w.open(t, "/v1/stream", cursor.Inbox{Epoch: testEpoch, Seq: 2}.String())
	gap, _ := r.next()
	if c := controlOf(gap); c.Reason != api.ControlReasonExpired {
		t.Errorf("first came %s", gap.Data)
	}
	w.note(t, id)
	if f, _ := r.next(); word(f) != "n7" {
		t.Errorf("then came %s", word(f))
	}
}

func TestFaultedSessionLeavesOthersAlone(t *testing.T) {
	w := newWorld(t, nil)
	bad, good := sid("a"), sid("b")
	w.create(t, testTenant, bad)
	w.create(t, testTenant, good)
	r, ok := w.open(t, "/v1/sessions/"+bad+"/stream", ""), w.open(t, "/v1/sessions/"+good+"/stream", "")
	r.until("history", at(1, 0))
	ok.until("history", at(1, 0))
	w.plant(t, bad, "nobody.knew")
	wantWords(t, "faulted", r.until("gap", at(2, 0)), "gap(1/0-2/0 unavailable)")
	w.note(t, good)
	wantWords(t, "good", ok.until("live", at(2, 0)), "n2")
}

func TestReplayKeepsPace(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Heartbeat = 10 * time.Millisecond })
	id := sid("a")
	w.create(t, testTenant, id)
	for range 3 {
		w.note(t, id) // a second apart
	}
	began := time.Now()
	r := w.open(t, "/v1/sessions/"+id+"/replay?speed=20", "")
	got := r.until("end", func(f api.Frame) bool { return word(f) == "end" })
	wantWords(t, "replay", got, "replay n1 n2 n3 n4 end")
	if took := time.Since(began); took < 150*time.Millisecond {
		t.Errorf("three seconds at 20 times took %v", took)
	}
	if c := controlOf(got[0]); c.Speed != 20 {
		t.Errorf("the mark says %v", c.Speed)
	}
	rest := w.open(t, "/v1/sessions/"+id+"/replay?speed=0", got[2].Cursor)
	wantWords(t, "resumed", rest.until("end", func(f api.Frame) bool { return word(f) == "end" }), "replay n3 n4 end")
	if res, cancel := w.get(t, "/v1/sessions/"+id+"/replay?speed=x", ""); res.StatusCode != http.StatusBadRequest {
		cancel()
		t.Errorf("a speed that is none: %d", res.StatusCode)
	} else {
		cancel()
	}
}
