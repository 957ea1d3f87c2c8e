package local

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver/drivertest"
)

// logged keeps a log for reading while it is written.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// TestAgentsWordsStayInside: an agent prints secrets, without end, into its
// outputs; nothing of it gets into the host's log, nor into the cause of its loss.
func TestAgentsWordsStayInside(t *testing.T) {
	for _, isolation := range isolations {
		t.Run(isolation, func(t *testing.T) {
			var log logged
			cfg := testConfig(t.TempDir(), isolation)
			cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
			d := open(t, cfg)
			c := claimOf("s-1", 5)
			c.Runtime.Argv = []string{"/bin/sh", "-c", "echo s3cret; yes s3cret | tr -d '\\n' | head -c 20000000 >&2; exec " + filepath.Join(built, "probeagent")}
			drivertest.Start(t, d, c)
			if _, code := drivertest.Shell(t, d, c.Ref, "echo s3cret >/proc/$PPID/fd/1; echo s3cret >/proc/$PPID/fd/2"); code != 0 {
				t.Fatalf("the agent can't print: %d", code)
			}
			_, p := d.peek(d.sandboxes[c.Ref])
			if err := unix.Kill(p.id.PID, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if event := <-d.Events(); event.Cause != "sandboxd ended: signal: killed" {
				t.Errorf("cause %q", event.Cause)
			}
			if said := log.String(); strings.Contains(said, "s3cret") || !strings.Contains(said, "entrypoint started") {
				t.Errorf("the log has %d bytes: %.2000s", len(said), said)
			}
		})
	}
}

// TestFailedAgentsWords: whoever asks how a sandbox is reads why its agent failed.
func TestFailedAgentsWords(t *testing.T) {
	var log logged
	cfg := testConfig(t.TempDir(), sandboxapi.IsolationNone)
	cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	d := open(t, cfg)
	c := claimOf("s-1", 5)
	c.Runtime.Argv = []string{"/bin/sh", "-c", "printf 'no m\\033[31module\\n' >&2; exit 3"}
	if _, err := d.Claim(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	_, err := d.Ready(t.Context(), c.Ref, sandboxapi.Health{})
	var no *sandboxapi.Problem
	if !errors.As(err, &no) || no.Code != sandboxapi.CodeEntrypointFailed || strings.Contains(err.Error(), "no m") {
		t.Errorf("ready: %v", err)
	}
	at, err := d.Locate(t.Context(), c.Ref)
	if err != nil {
		t.Fatal(err)
	}
	client, err := sandboxapi.NewClient(at.URL, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	h, err := client.Health(t.Context())
	if err != nil || !strings.Contains(h.Reason, "exited with status 3") || !strings.HasSuffix(h.Reason, "no m[31module") {
		t.Errorf("%+v, %v", h, err)
	}
	// Its last line comes by a pipe of its own.
	drivertest.Eventually(t, "the log says that it failed", func() bool { return strings.Contains(log.String(), "entrypoint failed") })
	if said := log.String(); strings.Contains(said, "no m") {
		t.Errorf("the log says %s", said)
	}
}

// TestTail: sandboxd's own lines are cut and counted, so that none of it can fill
// a host's log.
func TestTail(t *testing.T) {
	t.Parallel()
	var log logged
	said := newTail(slog.New(slog.NewTextHandler(&log, nil)))
	for _, piece := range []string{"one\ntw", "o\n\n", strings.Repeat("x", 3*maxLogLine), strings.Repeat("x", maxLogLine) + "\n", "last"} {
		if n, err := said.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatal(n, err)
		}
	}
	said.flush()
	for want, times := range map[string]int{"line=one\n": 1, "line=two\n": 1, "line=" + strings.Repeat("x", maxLogLine) + "\n": 1, "line=last\n": 1, "line=": 4} {
		if got := strings.Count(log.String(), want); got != times {
			t.Errorf("%.20q is logged %d times, want %d", want, got, times)
		}
	}
	for i := range 3 * logBurst {
		_, _ = fmt.Fprintln(said, "again", i)
	}
	if got := strings.Count(log.String(), "again"); got < logBurst-4 || got > 2*logBurst || said.last() != fmt.Sprint("again ", 3*logBurst-1) {
		t.Errorf("%d lines of %d were logged; the last was %q", got, 3*logBurst, said.last())
	}
	if cap(said.line) > 2*maxLogLine {
		t.Errorf("%d bytes are held", cap(said.line))
	}
}
