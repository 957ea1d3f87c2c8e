package hub

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/gateway/internal/cursor"
)

func TestHistoryThenLive(t *testing.T) {
	w := newWorld(t, nil)
	id := sid("a")
	w.create(t, testTenant, id)
	w.note(t, id)
	w.say(t, id, "r-1", 1, 2, 2)
	r := w.open(t, "/v1/sessions/"+id+"/stream", "")
	wantWords(t, "history", r.until("history", at(2, 1)), "n1 n2 r-1:1-2")
	w.note(t, id)
	w.say(t, id, "r-1", 3, 3, 3)
	wantWords(t, "live", r.until("live", at(3, 2)), "n3 r-1:3-3")
}

// Pages that are short since their frames are large are read on: what the views have
// isn't read from the log, which may be too far back for that.
func TestHistoryInShortPages(t *testing.T) {
	views := &copied{n: 7, page: 2}
	w := newWorld(t, func(c *Config) { c.History, c.ScanMessages = views, 2 })
	views.set(func() { views.w = w })
	id := sid("a")
	w.create(t, testTenant, id)
	for range 7 {
		w.note(t, id)
	}
	r := w.open(t, "/v1/sessions/"+id+"/stream", "")
	wantWords(t, "history", r.until("history", at(8, 0)), "n1 n2 n3 n4 n5 n6 n7 n8")
}

func TestOutputWaitsForItsEvent(t *testing.T) {
	w := newWorld(t, nil)
	id := sid("a")
	w.create(t, testTenant, id)
	r := w.open(t, "/v1/sessions/"+id+"/stream", "")
	r.until("history", at(1, 0))
	w.say(t, id, "r-1", 1, 1, 3)
	w.say(t, id, "r-1", 2, 2, 1) // behind the one that waits
	w.note(t, id)
	w.note(t, id)
	wantWords(t, "order", r.until("all", at(3, 2)), "n2 n3 r-1:1-1 r-1:2-2")
}

func TestOutputWhoseEventNeverComes(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.HoldFor = 20 * time.Millisecond })
	id := sid("a")
	w.create(t, testTenant, id)
	r := w.open(t, "/v1/sessions/"+id+"/stream", "")
	r.until("history", at(1, 0))
	w.say(t, id, "r-1", 1, 1, 9)
	w.say(t, id, "r-1", 2, 2, 1)
	wantWords(t, "live", r.until("all", at(1, 2)), "gap(1/0-1/1 unavailable) r-1:2-2")
	other := w.open(t, "/v1/sessions/"+id+"/stream", "")
	wantWords(t, "history", other.until("all", at(1, 2)), "n1 gap(1/0-1/1 unavailable) r-1:2-2")
}

func TestRepeatsAreDroppedOrTrimmed(t *testing.T) {
	w := newWorld(t, nil)
	id := sid("a")
	w.create(t, testTenant, id)
	r := w.open(t, "/v1/sessions/"+id+"/stream", "")
	r.until("history", at(1, 0))
	publish := func() {
		w.say(t, id, "r-1", 1, 3, 1)
		w.say(t, id, "r-1", 1, 3, 1)
		w.say(t, id, "r-1", 2, 5, 1)
		w.say(t, id, "r-1", 4, 4, 1)
		w.say(t, id, "r-1", 6, 6, 1)
	}
	publish()
	want := "r-1:1-3 r-1:4-5 r-1:6-6"
	live := r.until("all", at(1, 5))
	wantWords(t, "live", live, want)
	for i, f := range live {
		again := w.open(t, "/v1/sessions/"+id+"/stream", f.Cursor)
		w.note(t, id) // something to wait for
		rest := again.until("rest", at(w.n(id), 5))
		wantWords(t, "resumed behind "+word(f), rest[:len(live)-1-i], words(live[i+1:]))
	}
}

func TestExpiredOutputIsAGap(t *testing.T) {
	history := &copied{}
	w := newWorld(t, func(c *Config) { c.RingBytes = 1; c.History = history })
	history.w = w
	id := sid("a")
	w.create(t, testTenant, id)
	for k := uint64(1); k <= 4; k++ {
		w.say(t, id, "r-1", k, k, 1)
	}
	w.expire(3)
	history.set(func() { history.n, history.out, history.floor = 1, 4, 2 })
	r := w.open(t, "/v1/sessions/"+id+"/stream", "")
	got := r.until("all", at(1, 4))
	wantWords(t, "history", got, "gap(0/0-0/2 expired) n1 r-1:3-3 r-1:4-4")
	if s := controlOf(got[0]).Snapshot; s.Session.ID != id || s.Session.N != 1 {
		t.Errorf("the gap's snapshot is of session %q at n %d", s.Session.ID, s.Session.N)
	}
	at1 := cursor.Session{Epoch: testEpoch, N: 1, Out: 1}.String()
	again := w.open(t, "/v1/sessions/"+id+"/stream", at1)
	wantWords(t, "resumed", again.until("all", at(1, 4)), "gap(1/1-1/2 expired) r-1:3-3 r-1:4-4")
}

func TestCursorOfAnotherLog(t *testing.T) {
	w := newWorld(t, nil)
	id := sid("a")
	w.create(t, testTenant, id)
	w.note(t, id)
	for name, after := range map[string]cursor.Session{
		"epoch": {Epoch: "e0", N: 1}, "ahead": {Epoch: testEpoch, N: 9}, "output ahead": {Epoch: testEpoch, N: 1, Out: 99},
	} {
		got := w.open(t, "/v1/sessions/"+id+"/stream", after.String()).until("all", at(2, 0))
		if c := controlOf(got[0]); c.Type != api.ControlTypeGap || c.Reason != api.ControlReasonEpoch || c.From != after.String() || c.Snapshot.Session.ID != id {
			t.Errorf("%s: the first frame is %s", name, got[0].Data)
		}
		wantWords(t, name, got[1:], "n1 n2")
	}
}

func TestRefusals(t *testing.T) {
	history := &copied{down: errDown}
	w := newWorld(t, func(c *Config) { c.RingBytes = 1; c.History = history; c.ViewersPerPrincipal = 1 })
	history.w = w
	id, gone := sid("a"), sid("b")
	w.create(t, testTenant, id)
	w.create(t, testTenant, gone)
	w.create(t, "other", sid("c"))
	for k := uint64(1); k <= 4; k++ {
		w.say(t, gone, "r-1", k, k, 1)
	}
	eventually(t, "the hub has seen the output", func() bool { return w.hub.awaitOutput(t.Context(), 4) == nil })
	w.expire(3)
	for _, tt := range []struct {
		name, path, after string
		want              api.Code
	}{
		{"no such session", "/v1/sessions/" + sid("none") + "/stream", "", api.CodeNotFound},
		{"another tenant's", "/v1/sessions/" + sid("c") + "/stream", "", api.CodeNotFound},
		{"not an id", "/v1/sessions/A.b/stream", "", api.CodeNotFound},
		{"bad cursor", "/v1/sessions/" + id + "/stream", "nonsense", api.CodeInvalidCursor},
		{"inbox's cursor", "/v1/sessions/" + id + "/stream", cursor.Inbox{Epoch: testEpoch, Seq: 1}.String(), api.CodeInvalidCursor},
		{"session's cursor", "/v1/stream", cursor.Session{Epoch: testEpoch, N: 1}.String(), api.CodeInvalidCursor},
		{"history is down", "/v1/sessions/" + gone + "/stream", "", api.CodeHistoryUnavailable},
		{"replay, history is down", "/v1/sessions/" + gone + "/replay", "", api.CodeHistoryUnavailable},
		{"replay, bad speed", "/v1/sessions/" + id + "/replay?speed=-1", "", api.CodeInvalidRequest},
	} {
		w.wantProblem(t, tt.name, tt.path, tt.after, tt.want)
	}
	w.open(t, "/v1/sessions/"+id+"/stream", "").next() // events come from the log
	w.wantProblem(t, "too many", "/v1/stream", "", api.CodeQuotaExceeded)
}

func (w *world) wantProblem(t *testing.T, name, path, after string, want api.Code) {
	t.Helper()
	res, cancel := w.get(t, path, after)
	defer cancel()
	defer res.Body.Close()
	var p api.Problem
	if err := json.NewDecoder(res.Body).Decode(&p); err != nil || p.Code != want || res.StatusCode != want.Status() {
		t.Errorf("%s: status %d, code %q (%v), want %s", name, res.StatusCode, p.Code, err, want)
	}
}

func TestEndOfASession(t *testing.T) {
	w := newWorld(t, nil)
	id := sid("a")
	w.create(t, testTenant, id)
	r := w.open(t, "/v1/sessions/"+id+"/stream", "")
	r.until("history", at(1, 0))
	w.say(t, id, "r-1", 1, 1, 1)
	w.append(t, testTenant, id, session.Terminated{}, session.Ended{Outcome: session.OutcomeTerminated})
	live := r.until("end", func(f api.Frame) bool { return word(f) == "end" })
	if len(live) != 4 {
		t.Errorf("live: %s, want n2, n3, r-1:1-1 and the end", words(live))
	}
	if _, more := r.next(); more {
		t.Error("the stream goes on behind its end")
	}
	late := w.open(t, "/v1/sessions/"+id+"/stream", "")
	wantWords(t, "late", late.until("end", func(f api.Frame) bool { return word(f) == "end" }), "n1 r-1:1-1 n2 n3 end")
	if _, more := late.next(); more {
		t.Error("the late stream goes on behind its end")
	}
	eventually(t, "the topic is gone", func() bool {
		w.hub.mu.Lock()
		defer w.hub.mu.Unlock()
		return len(w.hub.topics) == 0 && len(w.hub.conns) == 0 && len(w.hub.persons) == 0
	})
}

func TestShutdownEndsStreams(t *testing.T) {
	w := newWorld(t, nil)
	id := sid("a")
	w.create(t, testTenant, id)
	r := w.open(t, "/v1/sessions/"+id+"/stream", "")
	r.until("history", at(1, 0))
	w.stop()
	if f, more := r.next(); more {
		t.Errorf("after the stop came %s", word(f))
	}
	if err := w.hub.ready(); err == nil {
		t.Error("a stopped hub is ready")
	}
}
