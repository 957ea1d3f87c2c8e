package local

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver/drivertest"
)

// needRunsc skips a test where gVisor isn't.
func needRunsc(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("runsc"); err != nil {
		t.Skip("SKIPPED: runsc is not in the PATH; scripts/tool.sh --path runsc builds it")
	}
}

func TestGVisorConformance(t *testing.T) {
	needRunsc(t)
	drivertest.Run(t, func(t *testing.T) drivertest.Subject {
		t.Helper()
		return drivertest.Subject{
			Driver: open(t, testConfig(t.TempDir(), sandboxapi.IsolationGVisor)), Runtime: testRuntime(), Isolation: sandboxapi.IsolationGVisor,
		}
	})
}

// TestGVisorsOwnKernel looks for the kernel that answers, and for what namespaces
// keep from an agent.
func TestGVisorsOwnKernel(t *testing.T) {
	needRunsc(t)
	dir := t.TempDir()
	d := open(t, testConfig(dir, sandboxapi.IsolationGVisor))
	c := claimOf("s-1", 5)
	drivertest.Start(t, d, c)
	if out, _ := drivertest.Shell(t, d, c.Ref, "dmesg"); !strings.Contains(out, "gVisor") {
		t.Errorf("the kernel says %q", out)
	}
	for what, script := range map[string]string{
		"the data directory": "ls " + dir, "sandboxd's spool": "ls /run/holdfast/spool", "the way to Holdfast": "ls /run/holdfast/upstream",
		"writing the system": "touch /usr/x", "the host's /var": "ls /var",
	} {
		if out, code := drivertest.Shell(t, d, c.Ref, script); code == 0 {
			t.Errorf("%s: %q works: %s", what, script, out)
		}
	}
	for script, want := range map[string]string{
		"pwd": "/workspace", "grep ^CapEff /proc/self/status | cut -f2": "0000000000000000", "touch ok && echo fine": "fine",
		"cut -d: -f1 /proc/net/dev | tail -n +3 | tr -d ' '": "lo",
	} {
		if out, _ := drivertest.Shell(t, d, c.Ref, script); out != want {
			t.Errorf("%q says %q, want %q", script, out, want)
		}
	}
}

// TestNoGVisor names the way out where runsc isn't.
func TestNoGVisor(t *testing.T) {
	cfg := testConfig(t.TempDir(), sandboxapi.IsolationGVisor)
	cfg.RunscPath = "/nowhere/runsc"
	_, err := New(t.Context(), cfg)
	missing, ok := errors.AsType[*driver.IsolationError](err)
	if !ok || !strings.Contains(missing.Missing, "runsc") || missing.WayOut == "" {
		t.Errorf("without runsc: %v, want what is missing and the way out", err)
	}
}

// TestProbeGVisor: what the report says is what was tried, with any runsc of the PATH.
func TestProbeGVisor(t *testing.T) {
	cfg := testConfig(t.TempDir(), sandboxapi.IsolationNamespaces)
	runsc, err := exec.LookPath("runsc")
	there := err == nil
	if r := Probe(t.Context(), cfg.SandboxdPath); (r.GVisor != "") != there || r.GVisorMissing != "" || r.GVisor != runsc {
		t.Errorf("with runsc at %q: %+v", runsc, r)
	}
	place, err := os.MkdirTemp("/tmp", "hf-runsc-") //nolint:usetesting // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(place) })
	if err := os.Chmod(place, 0o755); err != nil {
		t.Fatal(err)
	}
	broken := tool(t, filepath.Join(place, "runsc"))
	if err := os.WriteFile(broken, []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", place)
	if r := Probe(t.Context(), cfg.SandboxdPath); r.GVisor == "" || r.GVisorMissing == "" || !strings.Contains(r.GVisorWayOut, "runsc do true") {
		t.Errorf("with a runsc that is none: %+v", r)
	}
}
