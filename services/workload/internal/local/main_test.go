package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver/drivertest"
)

// built is where TestMain puts the binaries; a child of a test finds them by
// envBuilt instead of building again.
var built string

const (
	envBuilt = "HOLDFAST_TEST_BUILT"
	envCrash = "HOLDFAST_TEST_CRASH" // data directory of TestCrash's child
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(envCrash); dir != "" {
		built = os.Getenv(envBuilt)
		crashChild(dir)
		return
	}
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	built = os.Getenv(envBuilt)
	if built == "" {
		dir, err := os.MkdirTemp("", "holdfast-built-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		// Sandboxes of other uids see it, as /opt would be seen.
		if err := os.Chmod(dir, 0o755); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		build := exec.Command("go", "build", "-o", dir,
			"github.com/holdfast-io/holdfast/services/sandboxd",
			"github.com/holdfast-io/holdfast/services/workload/internal/driver/drivertest/probeagent")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
			return 1
		}
		built = dir
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// testRuntime is a runtime whose entrypoint is probeagent.
func testRuntime() driver.RuntimeSpec {
	return driver.RuntimeSpec{
		Name: "probe", Revision: 1, Kind: "agent", Adapter: "none",
		Argv: []string{filepath.Join(built, "probeagent")}, Port: 8000, ReadyPath: "/health",
		Limits:        driver.Limits{MemoryBytes: 256 << 20, CPUMillis: 1000, Pids: 64},
		WorkspacePath: "/workspace",
	}
}

// testConfig is a driver's configuration on data of its own.
func testConfig(dataDir, isolation string) Config {
	return Config{
		DataDir:      dataDir,
		SandboxdPath: filepath.Join(built, "sandboxd"),
		AgentSocket:  filepath.Join(dataDir, "agent", "agent.sock"),
		SharePaths:   []string{built},
		Granter:      &drivertest.Granter{},
		Isolation:    isolation,
		StopGrace:    500 * time.Millisecond,
		Log:          slog.New(slog.DiscardHandler),
	}
}

// open opens a driver, or skips the test where isolation can't be had.
func open(t testing.TB, cfg Config) *Driver {
	t.Helper()
	d, err := New(t.Context(), cfg)
	if errors.Is(err, driver.ErrIsolationUnavailable) && !namespacesPossible() {
		t.Skipf("SKIPPED, this host has no user namespaces: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return d
}

// namespacesPossible asks the host itself, so that a fault of ours isn't taken
// for a lack of the host's.
func namespacesPossible() bool {
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
	}
	return cmd.Run() == nil
}

// isolations are the grades that every test of behaviour is run under.
var isolations = []string{sandboxapi.IsolationNamespaces, sandboxapi.IsolationNone}

func claimOf(session string, intent uint64) driver.Claim {
	runtime := testRuntime()
	runtime.HasVolume = true
	return driver.Claim{Ref: driver.Ref{Tenant: "default", Session: session, Generation: 1}, Intent: intent, Epoch: "e-1", Runtime: runtime}
}

func TestConformance(t *testing.T) {
	for _, isolation := range isolations {
		t.Run(isolation, func(t *testing.T) {
			drivertest.Run(t, func(t *testing.T) drivertest.Subject {
				t.Helper()
				return drivertest.Subject{Driver: open(t, testConfig(t.TempDir(), isolation)), Runtime: testRuntime(), Isolation: isolation}
			})
		})
	}
}

// crashChild opens a driver, starts what TestCrash wants to see cleaned up, says
// so, and waits for its end.
func crashChild(dir string) {
	ctx := context.Background()
	d, err := New(ctx, testConfig(dir, os.Getenv("HOLDFAST_TEST_ISOLATION")))
	if err != nil {
		fmt.Fprintln(os.Stdout, "failed:", err)
		os.Exit(1)
	}
	c := marked("s-1", dir)
	if err := d.EnsurePool(ctx, c.Runtime, 1); err != nil {
		fmt.Fprintln(os.Stdout, "failed:", err)
		os.Exit(1)
	}
	_, err = d.Claim(ctx, c)
	if err == nil {
		_, err = d.Ready(ctx, c.Ref, sandboxapi.Health{})
	}
	for deadline := time.Now().Add(20 * time.Second); err == nil && d.WarmReady("probe", 1) == 0; {
		if time.Now().After(deadline) {
			err = errors.New("no warm sandbox")
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stdout, "failed:", err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stdout, "started")
	select {}
}
