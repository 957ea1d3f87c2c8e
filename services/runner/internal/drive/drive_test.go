package drive_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/eventlog/memlog"
	"github.com/holdfast-io/holdfast/events/invariants"
	"github.com/holdfast-io/holdfast/events/output"
	"github.com/holdfast-io/holdfast/events/output/memoutput"
	"github.com/holdfast-io/holdfast/events/session"
	given "github.com/holdfast-io/holdfast/services/internal/decidertest"
	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/runner/internal/decider"
	"github.com/holdfast-io/holdfast/services/runner/internal/drive"
)

// said is what the agent of most tests says: two messages, a tool call, its state.
var said = []string{
	`{"type":"RUN_STARTED","threadId":"t","runId":"r-1"}`,
	`{"type":"TEXT_MESSAGE_START","messageId":"a-1","role":"assistant"}`,
	`{"type":"TEXT_MESSAGE_CONTENT","messageId":"a-1","delta":"hel"}`,
	`{"type":"TEXT_MESSAGE_CONTENT","messageId":"a-1","delta":"lo"}`,
	`{"type":"TEXT_MESSAGE_END","messageId":"a-1"}`,
	`{"type":"TOOL_CALL_START","toolCallId":"tc-1","toolCallName":"shell","parentMessageId":"a-1"}`,
	`{"type":"TOOL_CALL_ARGS","toolCallId":"tc-1","delta":"{}"}`,
	`{"type":"TOOL_CALL_END","toolCallId":"tc-1"}`,
	`{"type":"TOOL_CALL_RESULT","messageId":"a-2","toolCallId":"tc-1","content":"ok"}`,
	`{"type":"STATE_SNAPSHOT","snapshot":{"step":1}}`,
	`{"type":"STATE_DELTA","delta":[{"op":"add","path":"/done","value":true}]}`,
	`{"type":"RUN_FINISHED","threadId":"t","runId":"r-1"}`,
}

// sandbox is a spool as sandboxd serves it: events from any k on, as often as they
// are asked for.
type sandbox struct {
	*sandboxapi.Client
	mu        sync.Mutex
	events    []string
	end       sandboxapi.SpoolLine
	cutAt     int // ends the stream before this k, once; 0 for never
	hang      bool
	refuse    *sandboxapi.Problem
	broken    *sandboxapi.Problem // answers for the spool after it was cut
	open      string              // another run that it is busy with
	starts    int
	cancelled int
	input     json.RawMessage
}

func newSandbox(t *testing.T, events []string, outcome string) *sandbox {
	t.Helper()
	s := &sandbox{events: events, end: sandboxapi.SpoolLine{End: true, Outcome: outcome, Reason: "as told"}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+sandboxapi.PathRuns, s.start)
	mux.HandleFunc("POST "+sandboxapi.PathRuns+"/r-1/cancel", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cancelled++
		w.WriteHeader(http.StatusAccepted)
	})
	mux.HandleFunc("POST "+sandboxapi.PathRuns+"/r-0/cancel", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open = ""
		w.WriteHeader(http.StatusAccepted)
	})
	mux.HandleFunc("GET "+sandboxapi.PathHealth, func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		_ = json.NewEncoder(w).Encode(sandboxapi.Health{OpenRun: s.open})
	})
	mux.HandleFunc("GET "+sandboxapi.PathRuns+"/r-1/spool", s.spool)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	client, err := sandboxapi.NewClient(server.URL, given.Session, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	s.Client = client
	return s
}

func (s *sandbox) start(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil {
		s.refuse.Write(w)
		return
	}
	if s.open != "" {
		sandboxapi.NewProblem(http.StatusConflict, sandboxapi.CodeRunOpen, "busy").Write(w)
		return
	}
	var req sandboxapi.RunRequest
	if json.NewDecoder(r.Body).Decode(&req) != nil || req.RunID != "r-1" {
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	s.starts, s.input = s.starts+1, req.Input
	status := http.StatusAccepted
	if s.starts > 1 {
		status = http.StatusOK
	}
	w.WriteHeader(status)
}

func (s *sandbox) spool(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	cutAt, hang, end, broken := s.cutAt, s.hang, s.end, s.broken
	s.cutAt = 0
	s.mu.Unlock()
	if cutAt == 0 && broken != nil {
		broken.Write(w)
		return
	}
	from, err := strconv.Atoi(r.URL.Query().Get("from"))
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	enc := json.NewEncoder(w)
	for i, e := range s.events {
		k := i + 1
		if k == cutAt {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		if k >= from {
			_ = enc.Encode(sandboxapi.SpoolLine{K: uint64(k), Event: json.RawMessage(e)})
		}
	}
	if hang {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return
	}
	_ = enc.Encode(end)
}

// world is a session with an open run, and a runner that may crash.
type world struct {
	t      *testing.T
	log    *memlog.Log
	store  *eventlog.Store[*session.State]
	out    output.Stream
	driver drive.Driver
	// steps counts down to the crash: 1 is the next append or publish, before it
	// takes effect where lost is set, else after.
	steps int
	lost  bool
}

var errCrash = errors.New("the runner crashed")

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, log: memlog.New(eventlog.Genesis{LogID: "log", Epoch: "1"}), out: memoutput.New()}
	w.store = eventlog.NewStore(eventlog.Config[*session.State]{Log: w.log, New: session.New, Service: events.ServiceRunner})
	w.driver = drive.Driver{Log: w, Output: crashing{w.out, w}, Now: time.Now}
	past := given.Running.And(session.CallProposed{CallID: "c-1", RunID: "r-1", Args: json.RawMessage(`{}`), ArgsHash: emptyHash(t)},
		session.CallDecided{CallID: "c-1", Decision: "ask"}, session.CallHumanConfirmRequired{CallID: "c-1", Mode: "park"})
	for i, p := range past {
		service, _ := session.Owner(session.TypeOf(p))
		records, err := session.Records(service, p)
		if err != nil {
			t.Fatal(err)
		}
		seq := uint64(i + 1)
		prev := seq
		if i == 0 {
			prev = 0
		}
		if _, err := w.log.Append(t.Context(), w.subject(), events.Envelope{
			Command: fmt.Sprintf("given-%d", i), Actor: events.Actor{Kind: events.ActorService, ID: "x"}, Service: service, N: seq, Prev: prev,
			Time: given.Start, Events: records,
		}); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func emptyHash(t *testing.T) string {
	_, hash, err := events.CanonicalArgs(nil)
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

func (w *world) subject() string {
	subject, err := events.SessionSubject(given.Tenant, given.Session)
	if err != nil {
		w.t.Fatal(err)
	}
	return subject
}

// crash says whether the runner ends at this step; before says which side of its
// effect is asked about.
func (w *world) crash(before bool) error {
	if before {
		w.steps--
	}
	if w.steps == 0 && w.lost == before {
		return errCrash
	}
	return nil
}

// Step implements drive.Log.
func (w *world) Step(ctx context.Context, _, _ string, decide func(*session.State, time.Time) ([]events.Record, error)) (uint64, error) {
	if err := w.crash(true); err != nil {
		return 0, err
	}
	res, err := w.store.Execute(ctx, w.subject(), eventlog.Command{
		ID: events.RandomID("cmd"), Actor: events.Actor{Kind: events.ActorService, ID: "runner"},
	}, decide)
	return res.N, errors.Join(err, w.crash(false))
}

// crashing is OUTPUT with the same steps.
type crashing struct {
	output.Stream
	w *world
}

func (c crashing) Publish(ctx context.Context, tenant, id string, b output.Batch) (uint64, error) {
	if err := c.w.crash(true); err != nil {
		return 0, err
	}
	seq, err := c.Stream.Publish(ctx, tenant, id, b)
	return seq, errors.Join(err, c.w.crash(false))
}

func (w *world) drive(box *sandbox) error {
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	return w.driver.Drive(ctx, box.Client, drive.Run{
		Tenant: given.Tenant, Session: given.Session, ID: "r-1", Instance: "i-1", N: 1, Input: json.RawMessage(`{"runId":"r-1"}`),
	})
}

func (w *world) state() *session.State {
	var st *session.State
	if err := w.store.Read(w.t.Context(), w.subject(), func(s eventlog.Snapshot[*session.State]) error {
		st = s.State
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
	return st
}

// payloads gives what the runner appended.
func (w *world) payloads() (all []session.Payload) {
	info, err := w.log.Info(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for seq := uint64(2); seq <= info.LastSeq; seq++ {
		m, err := w.log.Get(w.t.Context(), seq)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, r := range m.Envelope.Events {
			if m.Envelope.Service != events.ServiceRunner {
				continue
			}
			p, err := session.Decode(r, events.ServiceRunner)
			if err != nil {
				w.t.Fatal(err)
			}
			if _, started := p.(session.RunStarted); !started {
				all = append(all, p)
			}
		}
	}
	return all
}

var errRead = errors.New("read to the end")

// seen is what a reader of OUTPUT sees who drops repeats: each k once, in order.
func (w *world) seen() (all []string) {
	_, last, err := w.out.Info(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	if last == 0 {
		return nil
	}
	err = w.out.Tail(w.t.Context(), 1, func(m output.Message) error {
		for i, e := range m.Batch.Events {
			k := int(m.Batch.FirstK) + i
			switch {
			case k <= len(all):
				if all[k-1] != string(e) {
					w.t.Errorf("k %d is %s, then %s", k, all[k-1], e)
				}
			case k == len(all)+1:
				all = append(all, string(e))
			default:
				w.t.Errorf("k %d follows %d", k, len(all))
			}
		}
		if m.Seq >= last {
			return errRead
		}
		return nil
	})
	if !errors.Is(err, errRead) {
		w.t.Fatal(err)
	}
	return all
}

// check holds the end of a run of said to what it has to be.
func (w *world) check() {
	w.t.Helper()
	if got := w.seen(); len(got) != len(said) {
		w.t.Errorf("OUTPUT has %d events, want %d", len(got), len(said))
	}
	var messages []string
	ends := 0
	for _, p := range w.payloads() {
		switch p := p.(type) {
		case session.RunMessageRecorded:
			messages = append(messages, string(p.Message))
		case session.RunFinished:
			ends++
			if p.Outcome != "success" || int(p.LastK) != len(said) || string(p.State) != `{"step":1,"done":true}` {
				w.t.Errorf("%+v, state %s", p, p.State)
			}
		default:
			w.t.Errorf("%T", p)
		}
	}
	want := []string{
		`{"content":"hello","id":"a-1","role":"assistant"}`,
		`{"id":"call-tc-1","role":"assistant","toolCalls":[{"function":{"arguments":"{}","name":"shell"},"id":"tc-1","type":"function"}]}`,
		`{"content":"ok","id":"a-2","role":"tool","toolCallId":"tc-1"}`,
	}
	if fmt.Sprint(messages) != fmt.Sprint(want) || ends != 1 {
		w.t.Errorf("%d ends, messages %s", ends, messages)
	}
	w.checkLog()
}

func (w *world) checkLog() {
	w.t.Helper()
	violations, err := invariants.Check(w.t.Context(), w.log)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, v := range violations {
		w.t.Error(v)
	}
}

func TestDrive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := newSandbox(t, said, "success")
	if err := w.drive(box); err != nil {
		t.Fatal(err)
	}
	w.check()
	if string(box.input) != `{"runId":"r-1"}` {
		t.Errorf("the agent got %s", box.input)
	}
}

// A runner that ends at any append or publish, before or after its effect, is
// replaced, and nothing is repeated or missed.
func TestCrashAtEveryStep(t *testing.T) {
	t.Parallel()
	for step := 1; ; step++ {
		reached := false
		for _, lost := range []bool{true, false} {
			w := newWorld(t)
			w.steps, w.lost = step, lost
			box := newSandbox(t, said, "success")
			err := w.drive(box)
			if errors.Is(err, errCrash) {
				reached = true
				w.steps = 0
				if err = w.drive(box); errors.Is(err, decider.ErrNotMine) {
					err = nil // the crash came after the run's end
				}
			}
			if err != nil {
				t.Fatalf("step %d, lost %t: %v", step, lost, err)
			}
			w.check()
		}
		if !reached {
			if step < 6 {
				t.Fatalf("only %d steps were reached", step-1)
			}
			return
		}
	}
}

// A spool that is cut before any k is read again.
func TestCutSpool(t *testing.T) {
	t.Parallel()
	for k := 1; k <= len(said); k++ {
		w := newWorld(t)
		box := newSandbox(t, said, "success")
		box.cutAt = k
		if err := w.drive(box); err == nil {
			t.Fatalf("cut before %d: no error", k)
		}
		if err := w.drive(box); err != nil {
			t.Fatalf("cut before %d: %v", k, err)
		}
		w.check()
	}
}

func TestEnds(t *testing.T) {
	t.Parallel()
	interrupted := func(interrupts string) []string {
		return append(append([]string{}, said[:5]...), `{"type":"RUN_FINISHED","threadId":"t","runId":"r-1","outcome":{"type":"interrupt","interrupts":`+interrupts+`}}`)
	}
	for name, tc := range map[string]struct {
		events    []string
		outcome   string
		hang      bool
		want      string
		cancelled int
	}{
		"cancelled":                   {said[:5], "cancelled", false, "run.finished", 0},
		"its own error":               {append(said[:4:4], `{"type":"RUN_ERROR","message":"no"}`), "error", false, "run.failed", 0},
		"parked":                      {interrupted(`[{"id":"c-1","reason":"approval"}]`), "interrupt", false, "run.interrupted", 0},
		"parked on what is unknown":   {interrupted(`[{"id":"c-9"}]`), "interrupt", false, "run.failed", 0},
		"parked on nothing":           {interrupted(`[]`), "interrupt", false, "run.failed", 0},
		"parked without saying so":    {said[:5], "interrupt", false, "run.failed", 1},
		"an impossible state":         {append(said[:5:5], `{"type":"STATE_DELTA","delta":[{"op":"remove","path":"/x/y"}]}`), "success", true, "run.failed", 1},
		"a delta that isn't text":     {append(said[:2:2], `{"type":"TEXT_MESSAGE_CONTENT","messageId":"a-1","delta":7}`), "success", true, "run.failed", 1},
		"interrupts that are no list": {interrupted(`{}`), "interrupt", true, "run.failed", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			box := newSandbox(t, tc.events, tc.outcome)
			box.hang = tc.hang // an agent that goes on doesn't keep a broken run open
			if err := w.drive(box); err != nil {
				t.Fatal(err)
			}
			all := w.payloads()
			last := all[len(all)-1]
			if got := session.TypeOf(last); got != tc.want {
				t.Errorf("%s: %+v, want %s", got, last, tc.want)
			}
			if w.state().Run != nil || box.cancelled != tc.cancelled {
				t.Errorf("open %v, cancelled %d times", w.state().Run, box.cancelled)
			}
			if got := len(w.seen()); got != len(tc.events) {
				t.Errorf("OUTPUT has %d events, want %d", got, len(tc.events))
			}
			w.checkLog()
		})
	}
}

// What the sandbox refuses for good fails the run; what may get better is given
// back.
func TestRefusedRun(t *testing.T) {
	t.Parallel()
	for code, final := range map[string]bool{
		sandboxapi.CodeInvalid: true, sandboxapi.CodeTooLarge: true, sandboxapi.CodeNoAdapter: true, sandboxapi.CodeSpoolGone: true,
		sandboxapi.CodeRunOpen: false, sandboxapi.CodeStopping: false, sandboxapi.CodeOtherSession: false, sandboxapi.CodeInternal: false,
	} {
		w := newWorld(t)
		box := newSandbox(t, said, "success")
		box.refuse = sandboxapi.NewProblem(http.StatusConflict, code, "no")
		err := w.drive(box)
		if over := w.state().Run == nil; over != final || (err == nil) != final {
			t.Errorf("%s: over %t, %v", code, over, err)
		}
	}
}

// A sandbox that is still busy with a run which is over in the log, as after a host
// that couldn't be reached when it ended, is told so, and takes the next.
func TestSandboxBusyWithARunThatIsOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := newSandbox(t, said, "success")
	box.open = "r-0"
	if err := w.drive(box); err == nil || w.state().Run == nil {
		t.Fatalf("a busy sandbox is asked again: %v", err)
	}
	if err := w.drive(box); err != nil {
		t.Fatal(err)
	}
	w.check()
}

// A run whose spool sandboxd could not go on writing fails, and says why.
func TestBrokenSpool(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := newSandbox(t, said, "success")
	box.cutAt = 4
	box.broken = sandboxapi.NewProblem(http.StatusGone, sandboxapi.CodeSpoolGone, "the spool is gone: no space left on device")
	if err := w.drive(box); err == nil {
		t.Fatal("a cut is tried again")
	}
	if err := w.drive(box); err != nil {
		t.Fatal(err)
	}
	all := w.payloads()
	failed, ok := all[len(all)-1].(session.RunFailed)
	if !ok || failed.Cause != decider.CauseProtocol || !strings.Contains(failed.Detail, "no space left on device") {
		t.Errorf("%+v", all[len(all)-1])
	}
	if w.state().Run != nil || box.cancelled != 1 {
		t.Errorf("open %v, cancelled %d times", w.state().Run, box.cancelled)
	}
	w.checkLog()
}

// A runner that was replaced while it hung stops at its next step.
func TestReplacedRunnerStops(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if _, err := w.Step(t.Context(), "", "", decider.TakeOver("r-1", "i-1", "i-2")); err != nil {
		t.Fatal(err)
	}
	if err := w.drive(newSandbox(t, said, "success")); !errors.Is(err, decider.ErrNotMine) {
		t.Errorf("%v", err)
	}
	if got := session.TypeOf(w.payloads()[len(w.payloads())-1]); got != session.TypeRunTakenOver {
		t.Errorf("it appended %s", got)
	}
}
