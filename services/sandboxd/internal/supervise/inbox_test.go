package supervise

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/drive"
)

// asked asks an inbox and gives the status and the answer.
func asked(t *testing.T, h http.Handler, method, path, body string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	raw, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(raw)
}

// TestInbox: what is answered in the sandbox, with the status that tells an agent what
// to do; all the rest is the relay's, which is closed before the bind.
func TestInbox(t *testing.T) {
	died := make(chan struct{})
	push := drive.NewPush(drive.PushConfig{
		WaitReady: func(context.Context) (drive.Target, error) { return drive.Target{Done: died}, nil },
		ReadyWait: time.Minute, CancelGrace: time.Millisecond,
	})
	runs, err := drive.New(drive.Config{
		Dir: t.TempDir(), Agent: push, MaxEvent: 1000, MaxSpool: 1 << 20, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(runs.Stop)
	h := newInbox(push, newRelay(func() *sandboxapi.Grant { return nil }, nil))

	wants := func(method, path, body string, status int, says string) {
		t.Helper()
		if got, said := asked(t, h, method, path, body); got != status || !strings.Contains(said, says) {
			t.Errorf("%s %s: %d %s, want %d %s", method, path, got, said, status, says)
		}
	}
	wants("GET", "/v1/agent/input?wait=0", "", http.StatusNoContent, "")
	wants("GET", "/v1/agent/input?wait=soon", "", http.StatusUnprocessableEntity, sandboxapi.CodeInvalid)
	wants("GET", "/v1/agent/runs/r-1?wait=0", "", http.StatusOK, `{"open":false}`)
	wants("GET", "/v1/agent/session", "", http.StatusServiceUnavailable, sandboxapi.CodeNotBound)
	wants("POST", "/v1/agent/input", "", http.StatusServiceUnavailable, sandboxapi.CodeNotBound)
	wants("POST", "/v1/agent/events", "{", http.StatusUnprocessableEntity, sandboxapi.CodeInvalid)
	wants("POST", "/v1/agent/events", `{"runId":"r-1","k":0,"events":[{}]}`, http.StatusUnprocessableEntity, "from 1")
	wants("POST", "/v1/agent/events", strings.Repeat(" ", maxBatch+1), http.StatusRequestEntityTooLarge, sandboxapi.CodeTooLarge)
	wants("POST", "/v1/agent/events", `{"runId":"r-1","k":1,"events":{}}`, http.StatusUnprocessableEntity, "want an array")
	wants("POST", "/v1/agent/events", `{"runId":"r-1","k":1,"events":[0`+strings.Repeat(",0", maxEvents)+`]}`, http.StatusUnprocessableEntity, "at most 10000")
	wants("POST", "/v1/agent/events", `{"runId":"r-1","k":1,"events":[{}`+strings.Repeat(",{}", maxEvents-1)+`]}`, http.StatusConflict, sandboxapi.CodeRunOver)

	input := json.RawMessage(`{"threadId":"t","runId":"r-1"}`)
	if _, err := runs.Start(sandboxapi.RunRequest{RunID: "r-1", Input: input}); err != nil {
		t.Fatal(err)
	}
	wants("GET", "/v1/agent/input", "", http.StatusOK, string(input))
	wants("GET", "/v1/agent/runs/r-1?wait=0", "", http.StatusOK, `{"open":true}`)
	wants("POST", "/v1/agent/events", `{"runId":"r-1","k":2,"events":[{}]}`, http.StatusConflict, sandboxapi.CodeGap)
	wants("POST", "/v1/agent/events", `{"runId":"r-1","k":1,"events":[{"type":"RUN_STARTED","threadId":"t","runId":"r-1"}]}`, http.StatusAccepted, `{"lastK":1}`)
	wants("POST", "/v1/agent/events", `{"runId":"r-1","k":2,"events":[{"type":"NONE"}]}`, http.StatusUnprocessableEntity, "unknown-type")
	wants("GET", "/v1/agent/runs/r-1", "", http.StatusOK, `{"open":false}`)
	wants("POST", "/v1/agent/events", `{"runId":"r-1","k":2,"events":[{"type":"NONE"}]}`, http.StatusConflict, sandboxapi.CodeRunOver)
}

// slow is a body that comes when it is let.
type slow struct {
	begun chan struct{}
	rest  io.Reader
	let   chan struct{}
}

// Read implements io.Reader.
func (s *slow) Read(p []byte) (int, error) {
	select {
	case s.begun <- struct{}{}:
	default:
	}
	<-s.let
	return s.rest.Read(p)
}

// TestOneBatchAtATime: however many an agent sends at once, sandboxd reads one.
func TestOneBatchAtATime(t *testing.T) {
	push := drive.NewPush(drive.PushConfig{})
	h := newInbox(push, newRelay(func() *sandboxapi.Grant { return nil }, nil))
	const many = 5
	begun, let := make(chan struct{}, many), make(chan struct{})
	answers := make(chan int, many)
	for range many {
		go func() {
			w := httptest.NewRecorder()
			body := &slow{begun: begun, let: let, rest: strings.NewReader(`{"runId":"r-1","k":1,"events":[{}]}`)}
			h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/agent/events", body))
			answers <- w.Code
		}()
	}
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// This one comes behind all of them or between, and has nobody who waits for it.
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/agent/events", &slow{begun: begun, let: let}))
	if n := len(begun); n != 0 {
		t.Errorf("%d more batches are being read", n)
	}
	close(let)
	for range many {
		if got := <-answers; got != http.StatusConflict {
			t.Errorf("answered %d", got)
		}
	}
}
