package pgserver_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/migrations/pgserver"
)

// The test binary is also the process that tests kill: with envHold set it
// starts a server on that folder, prints the server's process id, and waits.
const envHold = "PGSERVER_TEST_HOLD"

// envPlain marks the run of these tests as an ordinary user.
const envPlain = "PGSERVER_TEST_PLAIN"

func TestMain(m *testing.M) {
	if dir := os.Getenv(envHold); dir != "" {
		hold(dir)
		return
	}
	// Dozens of clusters come and go here: in memory, where that is to be had.
	if probe, err := os.MkdirTemp("/dev/shm", "probe-"); err == nil {
		_ = os.Remove(probe)
		_ = os.Setenv("TMPDIR", "/dev/shm")
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if dir, err := cluster(); err == nil {
			_ = os.RemoveAll(dir)
		}
		os.Exit(code)
	}))
}

func hold(dir string) {
	srv, err := pgserver.Start(context.Background(), quick(dir))
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stdout, srv.PID())
	_, _ = io.Copy(io.Discard, os.Stdin) // until killed, or the test is gone
	_ = srv.Stop()
}

// holder is another process that runs a server.
type holder struct {
	cmd    *exec.Cmd
	server int // process id of its server
}

// startHolder runs a server on dir in a process of its own.
func startHolder(t *testing.T, dir string) *holder {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), envHold+"="+dir)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stdin.Close(); _ = cmd.Wait() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the other process said nothing: %v", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("the other process could not start a server: %s", line)
	}
	return &holder{cmd: cmd, server: pid}
}

// kill ends the process as kill -9 does and reaps it.
func (h *holder) kill(t *testing.T) {
	t.Helper()
	if err := h.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = h.cmd.Wait() // "signal: killed"
}

// awaitGone fails the test when process pid is there after d.
func awaitGone(t *testing.T, pid int, d time.Duration) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(d)
	for running(pid) {
		select {
		case <-deadline:
			t.Fatalf("process %d is still there after %s", pid, d)
		case <-tick.C:
		}
	}
}

// running reports whether a process does anything: one that has ended and
// waits for some init to reap it does not.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z") && !strings.HasPrefix(after, "X")
}

// As root these tests run the server as another user; here they run once more
// as an ordinary one.
func TestAsAnOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the other tests do it: this is an ordinary user")
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skip("no user nobody here")
	}
	uid, _ := strconv.Atoi(nobody.Uid)
	gid, _ := strconv.Atoi(nobody.Gid)
	tmp, err := os.MkdirTemp("", "plain-") //nolint:usetesting // t.TempDir is closed to the other user
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(tmp) })
	if err := os.Chown(tmp, uid, gid); err != nil {
		t.Fatal(err)
	}
	// By this path the binary runs however closed the folder is that it is in.
	cmd := exec.Command("/proc/self/exe", "-test.v", "-test.timeout=3m")
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + tmp, envPlain + "=1", "HOME=/nonexistent"}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)},
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("as nobody: %v\n%s", err, out)
	}
	if !strings.Contains(string(out), "--- PASS: TestRestartKeepsRows") {
		t.Errorf("as nobody the tests did not run:\n%s", out)
	}
}
