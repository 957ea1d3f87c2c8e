//go:build failpoint

package faults

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast/api/apiclient"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/invariants"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
	"github.com/holdfast-io/holdfast/services/holdfast/cli"
	"github.com/holdfast-io/holdfast/services/holdfast/dev"
)

// binaries are built once for the package.
var binaries struct {
	once sync.Once
	dir  string
	err  error
}

func build(t *testing.T) string {
	t.Helper()
	binaries.once.Do(func() {
		var path string
		if path, binaries.err = harness.Build("github.com/holdfast-io/holdfast/services/holdfast", "failpoint"); binaries.err == nil {
			binaries.dir = filepath.Dir(path)
		}
	})
	if binaries.err != nil {
		t.Fatal(binaries.err)
	}
	return binaries.dir
}

// world is a data directory and the dev that runs on it, if one does.
type world struct {
	t       *testing.T
	dir     string
	reached string // the file that a failpoint writes
	child   *child
}

type child struct {
	cmd  *exec.Cmd
	url  string
	done chan struct{}
	out  *strings.Builder
	mu   *sync.Mutex
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "hf-")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, dir: dir, reached: filepath.Join(t.TempDir(), "reached")}
	t.Cleanup(w.close)
	return w
}

// start starts dev, to be killed at a failpoint or, with "", to live.
func (w *world) start(failpoint string) {
	w.t.Helper()
	cmd := exec.Command(filepath.Join(build(w.t), "holdfast"), "dev", "--data-dir", w.dir, "--addr", "127.0.0.1:0",
		"--isolation", harness.Isolation())
	cmd.Env = append(os.Environ(),
		"HOLDFAST_SANDBOXD="+harness.Sandboxd(w.t), "HOLDFAST_FAILPOINT="+failpoint, "HOLDFAST_FAILPOINT_FILE="+w.reached)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	c := &child{cmd: cmd, done: make(chan struct{}), out: &strings.Builder{}, mu: &sync.Mutex{}}
	cmd.Stderr = lockedWriter{c}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.child = c
	ready := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			_, _ = io.WriteString(lockedWriter{c}, lines.Text()+"\n")
			if url, ok := strings.CutPrefix(strings.TrimSpace(lines.Text()), "api "); ok {
				ready <- strings.TrimSpace(url)
			}
		}
		_ = cmd.Wait()
		close(c.done)
	}()
	select {
	case c.url = <-ready:
	case <-c.done:
		if failpoint == "" {
			w.t.Fatalf("dev ended: %s", w.said())
		}
	case <-time.After(harness.Patience):
		w.t.Fatalf("dev is not ready: %s", w.said())
	}
}

type lockedWriter struct{ c *child }

func (l lockedWriter) Write(b []byte) (int, error) {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.c.out.Write(b)
}

func (w *world) said() string {
	w.child.mu.Lock()
	defer w.child.mu.Unlock()
	return w.child.out.String()
}

// died waits until the child was killed at the failpoint, and proves that it was
// reached.
func (w *world) died(failpoint string) {
	w.t.Helper()
	select {
	case <-w.child.done:
	case <-time.After(harness.Patience):
		w.t.Fatalf("%s was not reached: %s", failpoint, w.said())
	}
	name, err := os.ReadFile(w.reached)
	if err != nil || string(name) != strings.SplitN(failpoint, "#", 2)[0] {
		w.t.Fatalf("died, but not at %s (%q, %v): %s", failpoint, name, err, w.said())
	}
	status, ok := w.child.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || status.Signal() != syscall.SIGKILL {
		w.t.Fatalf("ended by %v, not by SIGKILL", w.child.cmd.ProcessState)
	}
	w.child = nil
}

// stop ends the child in order, as Ctrl-C does.
func (w *world) stop() {
	w.t.Helper()
	if w.child == nil {
		return
	}
	if err := w.child.cmd.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		w.t.Fatal(err)
	}
	select {
	case <-w.child.done:
	case <-time.After(harness.Patience):
		w.t.Errorf("dev does not stop: %s", w.said())
		_ = w.child.cmd.Process.Kill()
		<-w.child.done
	}
	w.child = nil
}

// close stops the child, holds its log to the invariants, and looks for what is
// left of it.
func (w *world) close() {
	w.stop()
	w.check()
	w.nothingLeft()
	if err := os.RemoveAll(w.dir); err != nil {
		w.t.Errorf("remove the data: %v", err)
	}
}

func (w *world) check() {
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	cfg := dev.Config{DataDir: w.dir, Logger: slog.New(slog.DiscardHandler)}
	err := dev.Offline(ctx, cfg, func(ctx context.Context, log eventlog.Log, _ *pgxpool.Pool) error {
		violations, err := invariants.Check(ctx, log)
		for _, v := range violations {
			w.t.Errorf("invariant broken: %+v", v)
		}
		return err
	})
	if err != nil {
		w.t.Errorf("check the log: %v", err)
	}
}

// nothingLeft looks for processes that name the data directory: Postgres, sandboxes.
func (w *world) nothingLeft() {
	deadline := time.Now().Add(harness.Patience)
	for {
		left := processesNaming(w.dir)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			w.t.Errorf("left behind: %v", left)
			return
		}
		<-time.After(50 * time.Millisecond)
	}
}

func processesNaming(dir string) []string {
	var left []string
	procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range procs {
		raw, err := os.ReadFile(p)
		if err == nil && strings.Contains(string(raw), dir) {
			left = append(left, strings.ReplaceAll(string(raw), "\x00", " "))
		}
	}
	return left
}

func (w *world) client(name string) *apiclient.ClientWithResponses {
	w.t.Helper()
	token, err := cli.TokenOf(w.dir, name)
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := apiclient.New(apiclient.Config{URL: w.child.url, Token: token})
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}
