package entrypoint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
)

// reaper is the process's one: there can't be two.
var reaper *Reaper

func TestMain(m *testing.M) {
	var err error
	if reaper, err = NewReaper(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	reaper.Stop()
	if err := goleak.Find(goleak.IgnoreTopFunction("os/signal.loop")); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// shell runs a script as the entrypoint.
func shell(t *testing.T, script string) *Entrypoint {
	t.Helper()
	e := Start(Config{
		Process: sandboxapi.AgentProcess{Argv: []string{"/bin/sh"}, Env: []string{"A=b"}},
		Host:    "127.0.0.1", AgentURL: "http://127.0.0.1:7777", Reaper: reaper, Log: slog.New(slog.DiscardHandler),
		Command: func(env []string) *exec.Cmd {
			cmd := exec.Command("/bin/sh", "-c", script)
			cmd.Env, cmd.Dir = env, t.TempDir()
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			return cmd
		},
	})
	t.Cleanup(func() {
		if err := e.Stop(0); err != nil {
			t.Error(err)
		}
	})
	return e
}

func TestEntrypointThatNeverAnswersFails(t *testing.T) {
	e := shell(t, "exit 3")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := e.WaitReady(ctx)
	if !errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), "exited with status 3") {
		t.Fatalf("%v", err)
	}
	status, _ := e.Status()
	if status.State != sandboxapi.EntrypointFailed || status.Restarts != maxFruitless-1 {
		t.Errorf("%+v", status)
	}
}

func TestEntrypointThatCannotStartFailsAtOnce(t *testing.T) {
	e := Start(Config{
		Process: sandboxapi.AgentProcess{Argv: []string{"/nowhere"}}, Host: "127.0.0.1", Reaper: reaper,
		Log:     slog.New(slog.DiscardHandler),
		Command: func([]string) *exec.Cmd { return exec.Command("/nowhere") },
	})
	defer func() {
		if err := e.Stop(0); err != nil {
			t.Error(err)
		}
	}()
	if _, err := e.WaitReady(t.Context()); !errors.Is(err, ErrFailed) {
		t.Errorf("%v", err)
	}
}

// TestStopLeavesNothing: neither a process that ignores SIGTERM, nor one that
// left its group and was orphaned.
func TestStopLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	e := shell(t, `trap '' TERM; echo $$ > `+dir+`/sh; (setsid sleep 1000 & echo $! > `+dir+`/orphan.tmp; mv `+dir+`/orphan.tmp `+dir+`/orphan); while :; do sleep 1000; done`)
	pid := func(name string) int {
		raw, err := os.ReadFile(dir + "/" + name)
		if err != nil {
			return 0
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(raw)))
		if err != nil {
			return 0
		}
		return n
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(20 * time.Second); pid("orphan") == 0; {
		select {
		case <-tick.C:
		case <-end:
			t.Fatal("the script didn't run")
		}
	}
	for range 2 {
		if err := e.Stop(10 * time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"sh", "orphan"} {
		if err := syscall.Kill(pid(name), 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("%s (%d) is left: %v", name, pid(name), err)
		}
	}
	if _, err := e.WaitReady(t.Context()); !errors.Is(err, ErrStopped) {
		t.Errorf("after Stop: %v", err)
	}
}
