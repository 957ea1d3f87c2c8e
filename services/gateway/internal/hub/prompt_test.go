package hub

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/eventlog/memlog"
	"github.com/holdfast-io/holdfast/events/output/memoutput"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/gateway/internal/cursor"
)

// ask puts a question of a run to people and gives the call's id.
func (w *world) ask(t testing.TB, id, command string) string {
	t.Helper()
	args, hash, err := events.CanonicalArgs(json.RawMessage(`{"command":"` + command + `","password":"hunter2"}`))
	if err != nil {
		t.Fatal(err)
	}
	call := events.CallID(id, "1", "shell", hash)
	w.append(t, testTenant, id,
		session.CallProposed{CallID: call, AgentCallID: "1", RunID: "r-1", Tool: "shell", Args: args, ArgsHash: hash, Requester: "user:alice", Modes: []string{"park"}},
		session.CallDecided{CallID: call, Decision: "ask", Rule: "deploys", Policy: "coder", Revision: 1, Enforcement: "asked"},
		session.CallHumanConfirmRequired{CallID: call, Mode: "park", OnDeadline: "deny", Isolation: "none", Approvers: []string{"role:approver"}},
	)
	return call
}

// begin creates a session with an open run and a path that is redacted.
func (w *world) begin(t testing.TB, id string) {
	t.Helper()
	w.append(t, testTenant, id, session.Created{
		Owner: "user:alice", Runtime: session.RuntimeRef{Name: "shell", Revision: 1},
		Terms: session.Terms{Kind: "agent", Adapter: "agui", Redact: []string{"/password"}},
	}, session.MessageReceived{MessageID: "m-1", RunID: "r-1", Content: json.RawMessage(`"go"`), Requester: "user:alice"})
	w.append(t, testTenant, id, session.RunStarted{RunID: "r-1", Instance: "i", Generation: 1, PodUID: "p", Requester: "user:alice"})
}

// TestPrompts follows a question live, from history, in the inbox and in a gap's
// snapshot: everywhere the same, masked.
func TestPrompts(t *testing.T) {
	w := newWorld(t, nil)
	id := sid("a")
	w.begin(t, id)
	r, inbox := w.open(t, "/v1/sessions/"+id+"/stream", ""), w.open(t, "/v1/stream", "")
	r.until("history", at(3, 0))
	inbox.next()
	call := w.ask(t, id, "make deploy")
	live := r.until("question", at(6, 0))[2]
	var shown api.Approval
	if err := json.Unmarshal(live.Data, &shown); err != nil || live.Kind != api.FrameKindPrompt {
		t.Fatalf("%v: %s", err, live.Data)
	}
	if shown.ID != call || shown.State != api.CallStatePending || shown.N != 6 || strings.Contains(string(shown.Args), "hunter2") || !strings.Contains(string(shown.Args), "make deploy") {
		t.Errorf("the question is shown as %s", live.Data)
	}
	_, late := lastTwo(w.open(t, "/v1/sessions/"+id+"/stream", "").until("history", at(6, 0)))
	_, other := lastTwo(inbox.until("question", func(f api.Frame) bool { return f.Kind == api.FrameKindPrompt }))
	if string(late.Data) != string(live.Data) || string(other.Data) != string(live.Data) {
		t.Errorf("the question is shown otherwise:\nlive    %s\nhistory %s\ninbox   %s", live.Data, late.Data, other.Data)
	}
	gap, _ := w.open(t, "/v1/sessions/"+id+"/stream", cursor.Session{Epoch: "e0", N: 1}.String()).next()
	if open := controlOf(gap).Snapshot.Approvals; len(open) != 1 || open[0].ID != call {
		t.Errorf("the snapshot's questions: %+v", open)
	}
	w.append(t, testTenant, id, session.CallDenied{CallID: call, By: "user:bob", Reason: "no"})
	settled := r.until("answer", at(7, 0))[0]
	if err := json.Unmarshal(settled.Data, &shown); err != nil || shown.State != api.CallStateDenied || shown.Decision.By != "user:bob" {
		t.Errorf("the answer is shown as %s (%v)", settled.Data, err)
	}
}

func lastTwo(frames []api.Frame) (before, last api.Frame) {
	return frames[len(frames)-2], frames[len(frames)-1]
}

// renewed is a log that becomes another one.
type renewed struct {
	eventlog.Log

	mu  sync.Mutex
	err error
	end chan struct{}
}

func (r *renewed) lost() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// renew ends the tail as a log that was emptied does.
func (r *renewed) renew() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = &eventlog.TruncatedError{Next: 9, LastSeq: 1}
	close(r.end)
}

// Info implements eventlog.Log.
func (r *renewed) Info(ctx context.Context) (eventlog.Info, error) {
	info, err := r.Log.Info(ctx)
	if r.lost() != nil {
		info.Genesis.Epoch = "e2"
	}
	return info, err
}

// Tail implements eventlog.Log.
func (r *renewed) Tail(ctx context.Context, from uint64, handle func(events.Message) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-r.end:
		case <-ctx.Done():
		}
		cancel()
	}()
	err := r.Log.Tail(ctx, from, handle)
	if lost := r.lost(); lost != nil {
		return lost
	}
	return err
}

func TestLostLogClosesViewers(t *testing.T) {
	log := &renewed{Log: memlog.New(eventlog.Genesis{LogID: "l", Epoch: testEpoch}), end: make(chan struct{})}
	w := startWorld(t, log, memoutput.New(), nil)
	id := sid("a")
	w.create(t, testTenant, id)
	c := w.connect(t, nil)
	c.subscribe("1", id, "")
	c.frame()
	r := w.open(t, "/v1/stream", "")
	r.next()
	log.renew()
	if m, code := c.read(); code != api.CloseSourceLost || !code.Reconnect() {
		t.Errorf("got %+v, code %v", m, code)
	}
	if f, more := r.next(); more {
		t.Errorf("the inbox goes on with %s", word(f))
	}
	w.wantProblem(t, "afterwards", "/v1/stream", "", api.CodeNotReady)
	eventually(t, "the hub says so", func() bool { return w.hub.Healthy() != nil })
}

// TestTooMuchHeldOutput has output pile up behind events that don't come.
func TestTooMuchHeldOutput(t *testing.T) {
	tail := &lagging{Log: memlog.New(eventlog.Genesis{LogID: "l", Epoch: testEpoch})}
	w := startWorld(t, tail, memoutput.New(), func(c *Config) { c.HeldBytes = 2000 })
	id := sid("a")
	w.create(t, testTenant, id)
	c := w.connect(t, nil)
	c.subscribe("1", id, "")
	_, f := c.frame()
	tail.hold(true)
	w.note(t, id)
	for k := uint64(1); k <= 10; k++ {
		w.say(t, id, "r-1", k, k, 2)
	}
	if m, code := c.read(); code != api.CloseSourceLost {
		t.Fatalf("got %+v, code %v", m, code)
	}
	tail.hold(false)
	rest := w.open(t, "/v1/sessions/"+id+"/stream", f.Cursor).until("rest", at(2, 10))
	if len(rest) != 11 {
		t.Errorf("behind the last cursor: %s", words(rest))
	}
}

// TestLargeHeldOutput has one large batch come before its event: nobody is closed for it.
func TestLargeHeldOutput(t *testing.T) {
	tail := &lagging{Log: memlog.New(eventlog.Genesis{LogID: "l", Epoch: testEpoch})}
	w := startWorld(t, tail, memoutput.New(), func(c *Config) { c.HeldBytes = 2000 })
	id := sid("a")
	w.create(t, testTenant, id)
	r := w.open(t, "/v1/sessions/"+id+"/stream", "")
	r.until("history", at(1, 0))
	tail.hold(true)
	w.note(t, id)
	large := w.batch("r-1", 1, 1, 2)
	large.Events[0] = append(large.Events[0][:len(large.Events[0])-1], `,"pad":"`+strings.Repeat("a", 9000)+`"}`...)
	if _, err := w.out.Publish(t.Context(), testTenant, id, large); err != nil {
		t.Fatal(err)
	}
	w.say(t, id, "r-1", 2, 2, 2)
	eventually(t, "the output came first", func() bool {
		w.hub.mu.Lock()
		defer w.hub.mu.Unlock()
		messages := w.hub.recent.messages
		return len(messages) > 0 && messages[len(messages)-1].Seq == 2
	})
	tail.hold(false)
	wantWords(t, "afterwards", r.until("all", at(2, 2)), "n2 r-1:1-1 r-1:2-2")
}

// TestLateEventsAreWaitedFor has output wait for longer than HoldFor, behind events
// that are in the log and only late.
func TestLateEventsAreWaitedFor(t *testing.T) {
	tail := &lagging{Log: memlog.New(eventlog.Genesis{LogID: "l", Epoch: testEpoch})}
	asked := &counting{}
	w := startWorld(t, tail, memoutput.New(), func(c *Config) {
		c.HoldFor = 10 * time.Millisecond
		asked.Sessions, c.Sessions = c.Sessions, asked
	})
	id := sid("a")
	w.create(t, testTenant, id)
	r := w.open(t, "/v1/sessions/"+id+"/stream", "")
	r.until("history", at(1, 0))
	tail.hold(true)
	w.note(t, id)
	w.say(t, id, "r-1", 1, 1, 2)
	before := asked.count()
	eventually(t, "the log was asked", func() bool { return asked.count() > before })
	tail.hold(false)
	wantWords(t, "in the end", r.until("all", at(2, 1)), "n2 r-1:1-1")
}

// counting counts the reads of Sessions.
type counting struct {
	Sessions

	mu sync.Mutex
	n  int
}

func (c *counting) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// Session implements Sessions.
func (c *counting) Session(ctx context.Context, tenant, id string, view func(*session.State) error) error {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.n++
	}()
	return c.Sessions.Session(ctx, tenant, id, view)
}
