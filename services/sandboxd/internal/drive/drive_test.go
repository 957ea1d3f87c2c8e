package drive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/agui"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a driver with an agent that a test plays.
type fixture struct {
	t      *testing.T
	driver *Driver
	dir    string
	died   chan struct{}
}

func newFixture(t *testing.T, agent http.HandlerFunc) *fixture {
	t.Helper()
	f := &fixture{t: t, dir: t.TempDir(), died: make(chan struct{})}
	srv := httptest.NewServer(agent)
	t.Cleanup(srv.Close)
	base, err := url.Parse(srv.URL)
	must(t, err)
	f.driver = f.open(Called{
		WaitReady: func(context.Context) (Target, error) {
			return Target{URL: base, Done: f.died, Exit: func() string { return "was killed by a test" }}, nil
		},
		ReadyWait: 50 * time.Millisecond, RunPath: "/run", CancelGrace: time.Millisecond, MaxEvent: maxEvent,
	})
	return f
}

// maxEvent is small, so that tests reach it.
const maxEvent = 4 << 10

func (f *fixture) open(agent Agent) *Driver {
	d, err := New(Config{Dir: f.dir, Agent: agent, MaxEvent: maxEvent, MaxSpool: 32 << 10, Log: slog.New(slog.DiscardHandler)})
	must(f.t, err)
	f.t.Cleanup(d.Stop)
	return d
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func request(run string) sandboxapi.RunRequest {
	return sandboxapi.RunRequest{RunID: run, Input: json.RawMessage(fmt.Sprintf(`{"threadId":"t","runId":%q,"x":1.0}`, run))}
}

// whole follows a run to its end, and checks that it is a well-formed run.
func whole(t *testing.T, d *Driver, run string) (events []string, end sandboxapi.SpoolLine) {
	t.Helper()
	s, err := d.Spool(run)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var raw bytes.Buffer
	must(t, s.Follow(ctx, 1, time.Hour, func(p []byte) error { raw.Write(p); return nil }))
	order := agui.NewOrder("t", run)
	var ending *agui.Ending
	for text := range strings.Lines(raw.String()) {
		var line sandboxapi.SpoolLine
		must(t, json.Unmarshal([]byte(text), &line))
		if line.End {
			end = line
			continue
		}
		if line.K != uint64(len(events)+1) {
			t.Fatalf("k %d after %d events", line.K, len(events))
		}
		_, ending, err = order.Accept(line.Event)
		must(t, err)
		events = append(events, string(line.Event))
	}
	if ending == nil || ending.Outcome != end.Outcome {
		t.Fatalf("terminal event %+v, end %+v", ending, end)
	}
	return events, end
}

// say answers with a stream of the given events.
func say(events ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for _, e := range events {
			_, _ = fmt.Fprintf(w, "data: %s\n\n", e)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

const (
	runStarted = `{"type":"RUN_STARTED","threadId":"t","runId":"r-1"}`
	runEnded   = `{"type":"RUN_FINISHED","threadId":"t","runId":"r-1"}`
	textStart  = `{"type":"TEXT_MESSAGE_START","messageId":"m"}`
	textEnd    = `{"type":"TEXT_MESSAGE_END","messageId":"m"}`
)

func TestHowRunsEnd(t *testing.T) {
	big := `{"type":"CUSTOM","name":"n","value":"` + strings.Repeat("x", 3<<10) + `"}`
	for _, tc := range []struct {
		name    string
		agent   http.HandlerFunc
		outcome string
		code    string // of the RUN_ERROR that is made here
		events  int
	}{
		{"success", say(runStarted, textStart, textEnd, runEnded), "success", "", 4},
		{"an error of the agent's", say(runStarted, `{"type":"RUN_ERROR","message":"no model","code":"theirs"}`), "error", "theirs", 2},
		{"more after the end", say(runStarted, runEnded, textStart, `garbage`), "success", "", 2},
		{"nothing at all", say(), "error", "agent-broke-off", 1},
		{"no terminal event", say(runStarted, textStart), "error", "agent-broke-off", 4},
		{"left open", say(runStarted, textStart, runEnded), "error", "protocol-broken", 4},
		{"not AG-UI", say(`{"hello":1}`), "error", "protocol-broken", 1},
		{"another run's", say(`{"type":"RUN_STARTED","threadId":"t","runId":"r-2"}`), "error", "protocol-broken", 1},
		{"an event too large", say(runStarted, big+strings.Repeat(" ", 2<<10)), "error", "event-too-large", 2},
		{"too much", say(append(append([]string{runStarted}, strings.Split(strings.Repeat(big+"\n", 20), "\n")[:20]...), runEnded)...), "error", "output-too-large", 12},
		{"a refusal", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "go away", http.StatusTeapot) }, "error", "agent-refused", 1},
		{"not a stream", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }, "error", "agent-refused", 1},
		{"broken off", func(w http.ResponseWriter, r *http.Request) {
			say(runStarted)(w, r)
			panic(http.ErrAbortHandler)
		}, "error", "agent-broke-off", 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, tc.agent)
			started, err := f.driver.Start(request("r-1"))
			if !started || err != nil {
				t.Fatalf("started %v, %v", started, err)
			}
			events, end := whole(t, f.driver, "r-1")
			if end.Outcome != tc.outcome || len(events) != tc.events {
				t.Fatalf("%d events, end %+v:\n%s", len(events), end, strings.Join(events, "\n"))
			}
			var last struct{ Code string }
			must(t, json.Unmarshal([]byte(events[len(events)-1]), &last))
			if last.Code != tc.code || (tc.outcome == "error") != (end.Reason != "") {
				t.Errorf("code %q, want %q; reason %q", last.Code, tc.code, end.Reason)
			}
		})
	}
}

func TestInputArrivesUnchanged(t *testing.T) {
	got := make(chan string, 1)
	f := newFixture(t, func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		got <- r.Method + " " + r.URL.Path + " " + r.Header.Get("Accept") + " " + string(raw)
		say(runStarted, runEnded)(w, r)
	})
	_, err := f.driver.Start(request("r-1"))
	must(t, err)
	whole(t, f.driver, "r-1")
	if want := "POST /run text/event-stream " + string(request("r-1").Input); <-got != want {
		t.Errorf("the agent didn't get %q", want)
	}
}

// blocked is an agent that says events, sends on hungUp, and then says nothing
// until it is hung up on; then it closes hungUp.
func blocked(hungUp chan struct{}, events ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		say(events...)(w, r)
		hungUp <- struct{}{}
		<-r.Context().Done()
		close(hungUp)
	}
}

func TestCancel(t *testing.T) {
	for name, events := range map[string][]string{"before it said anything": nil, "in the middle": {runStarted, textStart}} {
		t.Run(name, func(t *testing.T) {
			hungUp := make(chan struct{}, 1)
			f := newFixture(t, blocked(hungUp, events...))
			_, err := f.driver.Start(request("r-1"))
			must(t, err)
			<-hungUp
			waitSize(t, f.driver, len(events))
			if _, err := f.driver.Start(request("r-2")); !errors.Is(err, ErrBusy) {
				t.Errorf("a second run: %v", err)
			}
			if f.driver.OpenRun() != "r-1" {
				t.Errorf("open run %q", f.driver.OpenRun())
			}
			must(t, f.driver.Cancel("r-1"))
			must(t, f.driver.Cancel("r-1"))
			_, end := whole(t, f.driver, "r-1")
			if end.Outcome != "cancelled" {
				t.Errorf("end %+v", end)
			}
			<-hungUp
			must(t, f.driver.Cancel("r-1"))
			if err := f.driver.Cancel("r-7"); !errors.Is(err, ErrUnknown) {
				t.Errorf("cancel of an unknown run: %v", err)
			}
		})
	}
}

// waitSize waits until a run has so many events.
func waitSize(t *testing.T, d *Driver, events int) {
	t.Helper()
	s, err := d.Spool("r-1")
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	seen := 0
	if events == 0 {
		return
	}
	err = s.Follow(ctx, 1, time.Hour, func(p []byte) error {
		if seen += bytes.Count(p, []byte("\n")); seen >= events {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || seen != events {
		t.Fatalf("%d events, %v", seen, err)
	}
}

func TestDeadAgentEndsTheRun(t *testing.T) {
	hungUp := make(chan struct{}, 1)
	f := newFixture(t, blocked(hungUp, runStarted, textStart))
	_, err := f.driver.Start(request("r-1"))
	must(t, err)
	waitSize(t, f.driver, 2)
	<-hungUp
	close(f.died) // while something else holds its connection open
	_, end := whole(t, f.driver, "r-1")
	if end.Outcome != "error" || !strings.Contains(end.Reason, "was killed by a test") {
		t.Errorf("end %+v", end)
	}
	<-hungUp
}

func TestStopEndsTheRun(t *testing.T) {
	hungUp := make(chan struct{}, 1)
	f := newFixture(t, blocked(hungUp, runStarted))
	_, err := f.driver.Start(request("r-1"))
	must(t, err)
	f.driver.Stop()
	f.driver.Stop()
	_, end := whole(t, f.driver, "r-1")
	if end.Outcome != "error" || end.Reason != "sandbox-stopped: "+ErrStopping.Error() {
		t.Errorf("end %+v", end)
	}
	if _, err := f.driver.Start(request("r-2")); !errors.Is(err, ErrStopping) {
		t.Errorf("start after Stop: %v", err)
	}
}

func TestAgentThatIsNeverReady(t *testing.T) {
	f := &fixture{t: t, dir: t.TempDir()}
	d := f.open(Called{ReadyWait: 50 * time.Millisecond, WaitReady: func(ctx context.Context) (Target, error) {
		<-ctx.Done()
		return Target{}, context.Cause(ctx)
	}})
	_, err := d.Start(request("r-1"))
	must(t, err)
	if _, end := whole(t, d, "r-1"); end.Outcome != "error" || !strings.Contains(end.Reason, "isn't ready") {
		t.Errorf("end %+v", end)
	}
}

func TestRefusedRequests(t *testing.T) {
	f := newFixture(t, say())
	for name, req := range map[string]sandboxapi.RunRequest{
		"a path":         {RunID: "../../etc", Input: json.RawMessage(`{"threadId":"t","runId":"../../etc"}`)},
		"no id":          {Input: json.RawMessage(`{"threadId":"t"}`)},
		"other id":       {RunID: "r-1", Input: json.RawMessage(`{"threadId":"t","runId":"r-2"}`)},
		"no thread":      {RunID: "r-1", Input: json.RawMessage(`{"runId":"r-1"}`)},
		"no input":       {RunID: "r-1"},
		"not an object":  {RunID: "r-1", Input: json.RawMessage(`[]`)},
		"a long id":      {RunID: strings.Repeat("r", 64), Input: json.RawMessage(`{}`)},
		"an upper-cased": {RunID: "R-1", Input: json.RawMessage(`{"threadId":"t","runId":"R-1"}`)},
	} {
		if started, err := f.driver.Start(req); started || !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: started %v, %v", name, started, err)
		}
	}
	if _, err := f.driver.Spool("../x"); !errors.Is(err, ErrUnknown) {
		t.Errorf("spool of a path: %v", err)
	}
}

// TestRunsStayKnown: a run never runs twice, whatever became of its spool and
// of the sandboxd that ran it.
func TestRunsStayKnown(t *testing.T) {
	f := newFixture(t, func(w http.ResponseWriter, r *http.Request) {
		var in agui.RunInput
		_ = json.NewDecoder(r.Body).Decode(&in)
		say(strings.ReplaceAll(runStarted, "r-1", in.RunID), strings.ReplaceAll(runEnded, "r-1", in.RunID))(w, r)
	})
	const runs = keptSpools + 3
	check := func(d *Driver) {
		for i := range runs {
			id := fmt.Sprintf("r-%d", i)
			if started, err := d.Start(request(id)); started || err != nil {
				t.Errorf("%s again: started %v, %v", id, started, err)
			}
			_, err := d.Spool(id)
			if gone := errors.Is(err, ErrGone); gone != (i < runs-keptSpools) || (!gone && err != nil) {
				t.Errorf("spool of %s: %v", id, err)
			}
			must(t, d.Cancel(id))
		}
	}
	for i := range runs {
		id := fmt.Sprintf("r-%d", i)
		_, err := f.driver.Start(request(id))
		must(t, err)
		whole(t, f.driver, id)
	}
	f.driver.Stop() // waits until the last spool is retired too
	check(f.driver)

	successor := f.open(nil)
	check(successor)
	if _, end := whole(t, successor, fmt.Sprintf("r-%d", runs-1)); end.Outcome != "success" {
		t.Errorf("end as the successor tells it: %+v", end)
	}
}

func TestRunOfALostSandboxIsOver(t *testing.T) {
	f := newFixture(t, blocked(make(chan struct{}, 1), runStarted))
	_, err := f.driver.Start(request("r-1"))
	must(t, err)
	waitSize(t, f.driver, 1)
	// The sandboxd is killed here: its spool has no end.
	successor := f.open(nil)
	if _, end := whole(t, successor, "r-1"); end.Outcome != "error" || !strings.Contains(end.Reason, "sandbox ended") {
		t.Errorf("end %+v", end)
	}
}
