package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apispec"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/eventlog/memlog"
	"github.com/holdfast-io/holdfast/events/output"
	"github.com/holdfast-io/holdfast/events/output/memoutput"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/migrations/pgtest"
	"github.com/holdfast-io/holdfast/projections/view"
	"github.com/holdfast-io/holdfast/services/gateway/internal/auth"
	"github.com/holdfast-io/holdfast/services/gateway/internal/cursor"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

const (
	testEpoch  = "e1"
	testTenant = "acme"
	testOrigin = "http://127.0.0.1:7070"
)

var testTime = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

// within bounds every wait of a test.
const within = 20 * time.Second

// world is a hub on streams in memory, behind a real HTTP server.
type world struct {
	log    eventlog.Log
	out    output.Stream
	cfg    Config
	hub    *Hub
	server *httptest.Server
	stop   func()

	mu       sync.Mutex
	prev     map[string]written
	commands []string
	// who is what Admit says; refused makes it fail.
	refused error
}

type written struct{ n, seq uint64 }

// newWorld starts a hub. change may change its Config.
func newWorld(t testing.TB, change func(*Config)) *world {
	t.Helper()
	log := memlog.New(eventlog.Genesis{LogID: "log-of-the-test", Epoch: testEpoch})
	return startWorld(t, log, memoutput.New(), change)
}

func startWorld(t testing.TB, log eventlog.Log, out output.Stream, change func(*Config)) *world {
	t.Helper()
	origins, err := auth.NewOrigins([]string{testOrigin})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{log: log, out: out, prev: map[string]written{}}
	w.cfg = Config{
		Log: log, Epoch: testEpoch, Output: out, Sessions: newStore(log), Origins: origins,
		Metrics: prometheus.NewPedanticRegistry(), Commands: w, Admit: w.admit, Logger: slog.New(slog.DiscardHandler), Heartbeat: time.Minute,
		Fail: func(w http.ResponseWriter, _ *http.Request, err error) { _ = problem.From(err).API().Write(w) },
	}
	if change != nil {
		change(&w.cfg)
	}
	w.start(t)
	t.Cleanup(func() { w.stop() })
	return w
}

// start starts a hub and its server; stop ends both.
func (w *world) start(t testing.TB) {
	t.Helper()
	h, err := New(w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.hub = h
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	eventually(t, "the hub follows", func() bool { return h.Healthy() == nil })
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/sessions/{id}/stream", func(rw http.ResponseWriter, r *http.Request) {
		h.ServeSession(rw, r, principalOf(r), r.PathValue("id"))
	})
	mux.HandleFunc("GET /v1/sessions/{id}/replay", func(rw http.ResponseWriter, r *http.Request) {
		h.ServeReplay(rw, r, principalOf(r), r.PathValue("id"))
	})
	mux.HandleFunc("GET /v1/stream", func(rw http.ResponseWriter, r *http.Request) { h.ServeInbox(rw, r, principalOf(r)) })
	mux.HandleFunc("GET /v1/ws", func(rw http.ResponseWriter, r *http.Request) { h.ServeWebSocket(rw, r, principalOf(r)) })
	w.server = httptest.NewUnstartedServer(mux)
	w.server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		_ = c.(*net.TCPConn).SetWriteBuffer(8 << 10) // so that slow viewers show soon
		return ctx
	}
	w.server.Start()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
		w.server.Close()
	})
}

// principalOf is who a test's request says it is from.
func principalOf(r *http.Request) auth.Principal {
	tenant := r.Header.Get("Test-Tenant")
	if tenant == "" {
		tenant = testTenant
	}
	via := auth.ViaBearer
	if r.Header.Get("Cookie") != "" {
		via = auth.ViaCookie
	}
	return auth.Principal{Name: "alice", Tenant: tenant, Tenants: []string{tenant}, Roles: []api.Role{api.RoleAdmin}, Via: via}
}

func (w *world) admit(_ *apispec.Operation, r *http.Request) (auth.Principal, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return principalOf(r), w.refused
}

// Decide implements Commands.
func (w *world) Decide(ctx context.Context, id string, body api.DecideApproval, _ *string) (api.Approval, uint64, bool, error) {
	w.didf("decide %s %s by %s in %s", id, body.Decision, auth.From(ctx).Name, auth.From(ctx).Tenant)
	if auth.From(ctx).Tenant != testTenant {
		return api.Approval{}, 0, false, problem.New(api.CodeNotFound, "")
	}
	return api.Approval{
		ID: id, Session: strings.Split(id, ".")[0], RunID: "r-1", Tool: "shell", Args: json.RawMessage(`{}`), ArgsHash: body.ArgsHash,
		State: "approved", Policy: "p", Rule: "r", Enforcement: "asked", Isolation: "none", Requester: "user:alice", Revision: 1, N: 3,
	}, 7, true, nil
}

// Send implements Commands.
func (w *world) Send(_ context.Context, session string, body api.SendMessage, _ *string) (api.MessageAccepted, uint64, error) {
	w.didf("send %s %q", session, body.Content)
	return api.MessageAccepted{MessageID: "m-1", RunID: "r-1", N: 4, Seq: 9}, 9, nil
}

func (w *world) didf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.commands = append(w.commands, fmt.Sprintf(format, args...))
}

// store is Sessions on a log.
type store struct {
	*eventlog.Store[*session.State]
}

func newStore(log eventlog.Log) store {
	return store{eventlog.NewStore(eventlog.Config[*session.State]{Log: log, New: session.New, Epoch: testEpoch})}
}

// Session implements Sessions.
func (s store) Session(ctx context.Context, tenant, id string, view func(*session.State) error) error {
	subject, err := events.SessionSubject(tenant, id)
	if err != nil {
		return problem.New(api.CodeNotFound, "")
	}
	return s.Read(ctx, subject, func(snap eventlog.Snapshot[*session.State]) error {
		if !snap.Exists() {
			return problem.New(api.CodeNotFound, "")
		}
		return view(snap.State)
	})
}

// sid gives the id of a test's session.
func sid(name string) string { return events.HashID(events.PrefixSession, name) }

// append appends payloads of one service to a session, in one message.
func (w *world) append(t testing.TB, tenant, id string, payloads ...session.Payload) uint64 {
	t.Helper()
	owner, _ := session.Owner(session.TypeOf(payloads[0]))
	records, err := session.Records(owner, payloads...)
	if err != nil {
		t.Fatal(err)
	}
	subject, err := events.SessionSubject(tenant, id)
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	at := w.prev[subject]
	env := events.Envelope{
		Command: events.RandomID(events.PrefixCommand), Actor: events.Actor{Kind: events.ActorPerson, ID: "alice"}, Service: owner,
		N: at.n + 1, Prev: at.seq, Time: testTime.Add(time.Duration(at.n) * time.Second), Events: records,
	}
	seq, err := w.log.Append(context.Background(), subject, env)
	if err != nil {
		t.Fatal(err)
	}
	w.prev[subject] = written{n: env.LastN(), seq: seq}
	return seq
}

// create creates a session.
func (w *world) create(t testing.TB, tenant, id string) {
	t.Helper()
	w.append(t, tenant, id, session.Created{
		Owner: "user:alice", Runtime: session.RuntimeRef{Name: "shell", Revision: 1}, Terms: session.Terms{Kind: "agent", Adapter: "agui"},
	})
}

// note appends an event that changes little.
func (w *world) note(t testing.TB, id string) {
	t.Helper()
	w.append(t, testTenant, id, session.ActivityNoted{Holder: "gateway", Until: testTime})
}

// n is the session's version.
func (w *world) n(id string) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.prev["ev."+testTenant+".s."+id].n
}

// batch makes a batch of a run's events first..last, written after n.
func (w *world) batch(run string, first, last, after uint64) output.Batch {
	b := output.Batch{Run: run, FirstK: first, LastK: last, After: after, Time: testTime.Add(time.Duration(after) * time.Second)}
	for k := first; k <= last; k++ {
		b.Events = append(b.Events, json.RawMessage(fmt.Sprintf(`{"type":"TEXT_MESSAGE_CONTENT","run":%q,"k":%d}`, run, k)))
	}
	return b
}

// say publishes a batch.
func (w *world) say(t testing.TB, id, run string, first, last, after uint64) uint64 {
	t.Helper()
	seq, err := w.out.Publish(context.Background(), testTenant, id, w.batch(run, first, last, after))
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

// expire drops what an output stream in memory has before a sequence.
func (w *world) expire(before uint64) { w.out.(*memoutput.Stream).Expire(before) }

// eventually waits for a condition.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("did not come: %s", what)
		}
		<-time.After(time.Millisecond) // a poll: what is waited for has no signal
	}
}

// copied is History over the same streams: what was copied so far, or an error.
type copied struct {
	w *world

	mu     sync.Mutex
	n, out uint64 // how far; n of each session
	floor  uint64
	page   int // how many frames it gives at most at once, 0 for all that are asked for
	down   error
	asked  int
	// outputFrom is behind which sequences output was asked for.
	outputFrom []uint64
	pending    []view.Approval
}

var errDown = errors.New("down")

func (c *copied) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// Timeline implements History.
func (c *copied) Timeline(ctx context.Context, tenant, id string, after uint64, limit int) (frames []view.Frame, more bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	if c.down != nil {
		return nil, false, c.down
	}
	if c.page > 0 {
		limit = min(limit, c.page)
	}
	subject, _ := events.SessionSubject(tenant, id)
	state := session.New()
	info, _ := c.w.log.Info(ctx)
	for seq := uint64(2); seq <= info.LastSeq; seq++ {
		m, err := c.w.log.Get(ctx, seq)
		if err != nil || m.Subject != subject || m.Envelope.LastN() > c.n {
			continue
		}
		if err := state.Apply(m); err != nil {
			return nil, false, err
		}
		for _, f := range view.Frames(state, m) {
			switch {
			case f.N <= after:
			case len(frames) < limit:
				frames = append(frames, f)
			default:
				more = true
			}
		}
	}
	return frames, more, nil
}

// Output implements History.
func (c *copied) Output(_ context.Context, tenant, id string, after uint64, limit int) (OutputPage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down != nil {
		return OutputPage{}, c.down
	}
	c.outputFrom = append(c.outputFrom, after)
	page := OutputPage{Reached: c.out, Floor: c.floor}
	for _, m := range all(c.w.out) {
		if m.Tenant == tenant && m.Session == id && m.Seq > max(after, c.floor) && m.Seq <= c.out && len(page.Batches) < limit {
			page.Batches = append(page.Batches, m)
		}
	}
	return page, nil
}

// OutputBehind implements History.
func (c *copied) OutputBehind(_ context.Context, tenant, id string, n uint64) (seq uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range all(c.w.out) {
		if m.Tenant == tenant && m.Session == id && m.Seq <= c.out && m.Batch.After <= n {
			seq = m.Seq
		}
	}
	return seq, c.down
}

// Pending implements History.
func (c *copied) Pending(context.Context, string, int) ([]view.Approval, error) {
	return c.pending, nil
}

// all lists what a stream holds.
func all(s output.Stream) []output.Message {
	first, last, err := s.Info(context.Background())
	if err != nil || last < first {
		return nil
	}
	var ms []output.Message
	_ = s.Tail(context.Background(), first, func(m output.Message) error {
		ms = append(ms, m)
		if m.Seq >= last {
			return errDone
		}
		return nil
	})
	return ms
}

// reader reads one server-sent stream.
type reader struct {
	t      testing.TB
	sse    *api.SSEReader
	cancel context.CancelFunc
	body   interface{ Close() error }
	frames chan api.Frame
	done   chan struct{}
}

// open opens a stream; path begins with /v1. Frames are checked against the document.
func (w *world) open(t testing.TB, path, lastID string) *reader {
	t.Helper()
	res, cancel := w.get(t, path, lastID)
	if res.StatusCode != http.StatusOK {
		cancel()
		t.Fatalf("%s: status %d", path, res.StatusCode)
	}
	r := &reader{t: t, sse: api.NewSSEReader(res.Body, 0), cancel: cancel, body: res.Body, frames: make(chan api.Frame, 10000), done: make(chan struct{})}
	go r.pump()
	t.Cleanup(r.close)
	return r
}

func (w *world) get(t testing.TB, path, lastID string) (*http.Response, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.server.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	res, err := w.server.Client().Do(req)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	return res, cancel
}

func (r *reader) pump() {
	defer close(r.done)
	defer close(r.frames)
	for {
		e, err := r.sse.Next()
		if err != nil {
			return
		}
		if e.IsComment {
			continue
		}
		if err := apispec.ValidateFrame(e.Data); err != nil {
			r.t.Errorf("frame: %v\n%s", err, e.Data)
		}
		var f api.Frame
		if err := json.Unmarshal(e.Data, &f); err != nil {
			r.t.Errorf("frame: %v", err)
			return
		}
		if e.ID != f.Cursor || e.Event != string(f.Kind) {
			r.t.Errorf("event has id %q and type %q, its frame %q and %q", e.ID, e.Event, f.Cursor, f.Kind)
		}
		r.frames <- f
	}
}

func (r *reader) close() {
	r.cancel()
	_ = r.body.Close()
	<-r.done
}

// next gives the next frame; ok is false at the end of the stream.
func (r *reader) next() (api.Frame, bool) {
	r.t.Helper()
	select {
	case f, ok := <-r.frames:
		return f, ok
	case <-time.After(within):
		r.t.Fatal("no frame came")
		return api.Frame{}, false
	}
}

// until reads frames until one satisfies, which is the last one given.
func (r *reader) until(what string, last func(api.Frame) bool) []api.Frame {
	r.t.Helper()
	var frames []api.Frame
	for {
		f, ok := r.next()
		if !ok {
			r.t.Fatalf("the stream ended before %s; got %s", what, words(frames))
		}
		frames = append(frames, f)
		if last(f) {
			return frames
		}
	}
}

// at says that a frame's cursor is at or behind a place.
func at(n, out uint64) func(api.Frame) bool {
	return func(f api.Frame) bool {
		c, err := cursor.ParseSession(f.Cursor)
		return err == nil && c.N >= n && c.Out >= out
	}
}

// word says what a frame is about, for comparisons: "n3", "r-1:2-4", "gap(1/0-1/5 expired)", "end".
func word(f api.Frame) string {
	switch f.Kind {
	case api.FrameKindEvent, api.FrameKindPrompt:
		return fmt.Sprintf("n%d", f.N)
	case api.FrameKindAgui:
		var said []struct {
			Run string
			K   uint64
		}
		if err := json.Unmarshal(f.Data, &said); err != nil || len(said) == 0 {
			return "broken agui"
		}
		return fmt.Sprintf("%s:%d-%d", said[0].Run, said[0].K, said[len(said)-1].K)
	case api.FrameKindControl:
		c := controlOf(f)
		if c.Type != api.ControlTypeGap {
			return string(c.Type)
		}
		from, _ := cursor.ParseSession(c.From)
		to, _ := cursor.ParseSession(c.To)
		return fmt.Sprintf("gap(%d/%d-%d/%d %s)", from.N, from.Out, to.N, to.Out, c.Reason)
	}
	return "?"
}

func controlOf(f api.Frame) api.Control {
	var c api.Control
	_ = json.Unmarshal(f.Data, &c)
	return c
}

func words(frames []api.Frame) string {
	list := make([]string, len(frames))
	for i, f := range frames {
		list[i] = word(f)
	}
	return strings.Join(list, " ")
}

func wantWords(t testing.TB, what string, frames []api.Frame, want string) {
	t.Helper()
	if got := words(frames); got != want {
		t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

// note makes an event that changes little.
func note(holder string) session.Payload {
	return session.ActivityNoted{Holder: holder, Until: testTime}
}

// plant appends an event of a type that nobody knows.
func (w *world) plant(t testing.TB, id, typ string) {
	t.Helper()
	subject := "ev." + testTenant + ".s." + id
	w.mu.Lock()
	defer w.mu.Unlock()
	at := w.prev[subject]
	env := events.Envelope{
		Command: "planted", Actor: events.Actor{Kind: events.ActorPerson, ID: "mallory"}, Service: events.ServiceSession,
		N: at.n + 1, Prev: at.seq, Time: testTime, Events: []events.Record{{Type: typ, V: 1, Data: json.RawMessage(`{}`)}},
	}
	if _, err := w.log.Append(context.Background(), subject, env); err != nil {
		t.Fatal(err)
	}
}

func decode(t testing.TB, raw []byte) api.Frame {
	t.Helper()
	var f api.Frame
	if err := json.Unmarshal(raw, &f); err != nil {
		t.Fatal(err)
	}
	return f
}
