// Package harness runs the whole program for a test, in the test's process and on
// real parts: embedded NATS with files, a Postgres of its own, real sandboxes. When
// the test ends the whole log is held to the design's invariants, and nothing that
// was started may be left.
package harness

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast/api/apiclient"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/invariants"
	"github.com/holdfast-io/holdfast/services/holdfast/cli"
	"github.com/holdfast-io/holdfast/services/holdfast/dev"
)

// Patience bounds every wait of a test: generous, because machines are busy, and
// never reached where things work.
const Patience = 60 * time.Second

// Holdfast is the running program.
type Holdfast struct {
	*dev.Program
	Sessions

	cfg dev.Config
	// stopped says that Stop was called and Begin not yet.
	stopped bool
}

// Option changes how the program is started.
type Option func(*dev.Config)

// Start starts the program on an empty data directory.
func Start(t testing.TB, options ...Option) *Holdfast {
	t.Helper()
	cfg := dev.Config{
		Addr: "127.0.0.1:0", DataDir: dataDir(t), Isolation: Isolation(), Logger: logger(t), Version: "test",
	}
	for _, o := range options {
		o(&cfg)
	}
	Sandboxd(t)
	h := &Holdfast{cfg: cfg}
	h.Sessions = SessionsOf(t, h.clientFor, func(ctx context.Context) (eventlog.Log, func(), error) { return h.OpenLog(ctx) })
	h.Begin()
	t.Cleanup(h.finish)
	return h
}

// dataDir is a directory with a short path: sockets live in it.
func dataDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hf-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove the data directory: %v", err)
		}
	})
	return dir
}

// Begin starts the program on the data that it had.
func (h *Holdfast) Begin() {
	h.t.Helper()
	if err := h.BeginIn(context.Background()); err != nil {
		h.t.Fatalf("start: %v", err)
	}
}

// BeginIn is Begin for a program that may not start; ctx bounds its life.
func (h *Holdfast) BeginIn(ctx context.Context) error {
	p, err := dev.Start(ctx, h.cfg)
	if err != nil {
		return err
	}
	h.Program, h.stopped = p, false
	return nil
}

// Offline hands the log and the views of a program that is stopped to use.
func (h *Holdfast) Offline(use func(context.Context, eventlog.Log, *pgxpool.Pool) error) {
	h.t.Helper()
	if err := dev.Offline(Context(h.t), h.cfg, use); err != nil {
		h.t.Fatalf("offline: %v", err)
	}
}

// Stop stops the program in order; Begin starts it again on the same data.
func (h *Holdfast) Stop() {
	h.t.Helper()
	if err := h.Program.Stop(); err != nil {
		h.t.Fatalf("stop: %v", err)
	}
	h.stopped = true
}

// Restart stops the program in order and starts it again on the same data.
func (h *Holdfast) Restart() {
	h.t.Helper()
	h.Stop()
	h.Begin()
}

// In is the same program for another test: a subtest fails itself, not its parent.
// It is for the time while the program runs; start and stop it by the parent.
func (h *Holdfast) In(t testing.TB) *Holdfast {
	t.Helper()
	c := *h
	c.t = t
	return &c
}

// finish holds the log to the invariants, stops the program, and looks for what is
// left of it.
func (h *Holdfast) finish() {
	if !h.stopped {
		h.Check()
		if err := h.Program.Stop(); err != nil {
			h.t.Errorf("stop: %v", err)
		}
	}
	if left := ProcessesNaming(h.DataDir); len(left) > 0 {
		h.t.Errorf("processes are left: %q", left)
	}
}

// Check holds the log as it is now to the invariants.
func (h *Sessions) Check() {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	violations, err := invariants.Check(ctx, h.openLog())
	if err != nil {
		h.t.Errorf("check the log: %v", err)
	}
	for _, v := range violations {
		h.t.Errorf("invariant broken: %+v", v)
	}
}

// clientFor is the API as one of admin, alice and bob.
func (h *Holdfast) clientFor(t testing.TB, name string) *apiclient.ClientWithResponses {
	t.Helper()
	c, err := apiclient.New(apiclient.Config{URL: h.URL, Token: h.Token(name)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Token is somebody's bearer token.
func (h *Holdfast) Token(name string) string {
	h.t.Helper()
	token, err := cli.TokenOf(h.DataDir, name)
	if err != nil {
		h.t.Fatal(err)
	}
	return token
}

// Isolation is what sandboxes of tests get: namespaces, or what
// HOLDFAST_TEST_ISOLATION says.
func Isolation() string {
	if i := os.Getenv("HOLDFAST_TEST_ISOLATION"); i != "" {
		return i
	}
	return "namespaces"
}

var sandboxd struct {
	once sync.Once
	path string
	err  error
}

// Sandboxd is the sandboxd binary, built once for each test process, which then
// names it in HOLDFAST_SANDBOXD. A binary that is named there already is used.
func Sandboxd(t testing.TB) string {
	t.Helper()
	sandboxd.once.Do(func() {
		if sandboxd.path = os.Getenv(envSandboxd); sandboxd.path != "" {
			return
		}
		if sandboxd.path, sandboxd.err = Build("github.com/holdfast-io/holdfast/services/sandboxd", ""); sandboxd.err == nil {
			sandboxd.err = os.Setenv(envSandboxd, sandboxd.path) //nolint:usetesting // parallel tests can't use t.Setenv: it is the same for all
		}
	})
	if sandboxd.err != nil {
		t.Fatal(sandboxd.err)
	}
	return sandboxd.path
}

const envSandboxd = "HOLDFAST_SANDBOXD"

// Build compiles a program of ours with a build tag and gives its path. The
// binary's directory stays until the machine's temporary files are cleaned: tests
// in one process share it.
func Build(pkg, tag string) (string, error) {
	dir, err := os.MkdirTemp("", "hf-bin-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // sandboxes of other users run it
		return "", err
	}
	path := filepath.Join(dir, filepath.Base(pkg))
	cmd := exec.Command("go", "build", "-tags", tag, "-o", path, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", pkg, err, out)
	}
	return path, nil
}

func logger(t testing.TB) *slog.Logger {
	t.Helper()
	if os.Getenv("HOLDFAST_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(writer{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

type writer struct{ t testing.TB }

// Write gives a line to the test's log.
func (w writer) Write(b []byte) (int, error) {
	fmt.Fprint(os.Stderr, string(b))
	return len(b), nil
}
