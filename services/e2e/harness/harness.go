// Package harness runs the whole program for a test, in the test's process and on
// real parts: embedded NATS with files, a Postgres of its own, real sandboxes. When
// the test ends the whole log is held to the design's invariants, and nothing that
// was started may be left.
package harness

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
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

	t   testing.TB
	cfg dev.Config
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
	t.Setenv("HOLDFAST_SANDBOXD", Sandboxd(t))
	h := &Holdfast{t: t, cfg: cfg}
	h.start()
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

func (h *Holdfast) start() {
	h.t.Helper()
	p, err := dev.Start(context.Background(), h.cfg)
	if err != nil {
		h.t.Fatalf("start: %v", err)
	}
	h.Program = p
}

// Restart stops the program in order and starts it again on the same data.
func (h *Holdfast) Restart() {
	h.t.Helper()
	if err := h.Program.Stop(); err != nil {
		h.t.Fatalf("stop: %v", err)
	}
	h.start()
}

// finish holds the log to the invariants and stops the program.
func (h *Holdfast) finish() {
	h.Check()
	if err := h.Program.Stop(); err != nil {
		h.t.Errorf("stop: %v", err)
	}
}

// Check holds the log as it is now to the invariants.
func (h *Holdfast) Check() {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	log, closeLog, err := h.Program.OpenLog(ctx)
	if err != nil {
		h.t.Errorf("open the log: %v", err)
		return
	}
	defer closeLog()
	violations, err := invariants.Check(ctx, log)
	if err != nil {
		h.t.Errorf("check the log: %v", err)
	}
	for _, v := range violations {
		h.t.Errorf("invariant broken: %+v", v)
	}
}

// Client is the API as one of admin, alice and bob.
func (h *Holdfast) Client(name string) *apiclient.ClientWithResponses {
	h.t.Helper()
	c, err := apiclient.New(apiclient.Config{URL: h.URL, Token: h.Token(name)})
	if err != nil {
		h.t.Fatal(err)
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

// Sandboxd is the sandboxd binary, built once for each test process.
func Sandboxd(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("HOLDFAST_SANDBOXD"); path != "" {
		return path
	}
	sandboxd.once.Do(func() { sandboxd.path, sandboxd.err = Build("github.com/holdfast-io/holdfast/services/sandboxd", "") })
	if sandboxd.err != nil {
		t.Fatal(sandboxd.err)
	}
	return sandboxd.path
}

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
	if os.Getenv("HOLDFAST_TEST_LOG") == "" {
		return slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	return slog.New(slog.NewTextHandler(writer{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

type writer struct{ t testing.TB }

// Write gives a line to the test's log.
func (w writer) Write(b []byte) (int, error) {
	fmt.Fprint(os.Stderr, string(b))
	return len(b), nil
}

// Create makes a session of runtime shell with a first message and fails the test
// where that doesn't work.
func (h *Holdfast) Create(as, message string) *api.Session {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	prefer := "wait=30"
	r, err := h.Client(as).CreateSessionWithResponse(ctx, &api.CreateSessionParams{Prefer: &prefer}, api.CreateSession{
		Runtime: "shell", Message: message,
	})
	if err != nil {
		h.t.Fatalf("create: %v", err)
	}
	if r.JSON201 == nil {
		h.t.Fatalf("create: %s", r.Status())
	}
	return r.JSON201
}
