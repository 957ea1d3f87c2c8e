package drive

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/services/sandboxd/internal/entrypoint"
)

// programs drives a shell script for each run.
func programs(t *testing.T, grace time.Duration, script string) *fixture {
	t.Helper()
	reaper, err := entrypoint.NewReaper()
	must(t, err)
	t.Cleanup(reaper.Stop)
	f := &fixture{t: t, dir: t.TempDir()}
	f.driver = f.open(Exec{
		Command: func(env []string) *exec.Cmd {
			cmd := exec.Command("/bin/sh", "-c", script)
			cmd.Env = append(env, "PATH=/usr/bin:/bin", "DIR="+f.dir)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			return cmd
		},
		Reaper: reaper, Grace: grace, MaxEvent: maxEvent,
	})
	return f
}

const (
	sayStarted = "echo '" + runStarted + "'; "
	sayEnded   = "echo '" + runEnded + "'; "
)

// The tests below share the process's children, so they run one after the other.
func TestPrograms(t *testing.T) {
	for _, tc := range []struct {
		name, script, outcome, code, reason string
		events                              int
	}{
		{"success", sayStarted + "echo; " + sayEnded, "success", "", "", 2},
		{"the last line without its break", sayStarted + "printf %s '" + runEnded + "'", "success", "", "", 2},
		{"a status after the end", sayStarted + sayEnded + "exit 3", "success", "", "", 2},
		{"more after the end", sayStarted + sayEnded + "echo garbage; head -c 1000000 /dev/zero", "success", "", "", 2},
		{"a status and no end", sayStarted + "echo why >&2; exit 3", "error", "agent-failed", "the program exited with status 3 without RUN_FINISHED or RUN_ERROR; the last that it printed on stderr:\nwhy", 2},
		{"no end", sayStarted, "error", "agent-broke-off", "the program ended without RUN_FINISHED or RUN_ERROR", 2},
		{"killed", "kill -9 $$", "error", "agent-failed", "SIGKILL", 1},
		{"half a line", sayStarted + `printf '{"type":'`, "error", "protocol-broken", "event 2: it can't be read", 2},
		{"broken, and goes on", "trap '' TERM; " + sayStarted + "echo '{}'; while :; do echo '{}'; done", "error", "protocol-broken", "(unreadable)", 2},
		{"too large", sayStarted + "head -c 5000 /dev/zero | tr '\\0' x", "error", "event-too-large", "event 2 has more than 4096 bytes", 2},
		{"the input and the environment", `read -r in; [ "$in" = "$(cat "$DIR"/want)" ] && [ "$HOLDFAST_THREAD_ID/$HOLDFAST_RUN_ID" = t/r-1 ] && ` + sayStarted + sayEnded, "success", "", "", 2},
		{"somebody else holds the output", sayStarted + "(trap '' TERM; sleep 600) & exit 4", "error", "agent-failed", "status 4", 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := programs(t, 50*time.Millisecond, strings.ReplaceAll(tc.script, `$(cat "$DIR"/want)`, strings.ReplaceAll(string(request("r-1").Input), `"`, `\"`)))
			_, err := f.driver.Start(request("r-1"))
			must(t, err)
			got, end := whole(t, f.driver, "r-1")
			if end.Outcome != tc.outcome || len(got) != tc.events || !strings.Contains(end.Reason, tc.reason) {
				t.Errorf("%d events, %+v", len(got), end)
			}
			if tc.code != "" && !strings.Contains(got[len(got)-1], `"code":"`+tc.code+`"`) {
				t.Errorf("the last event is %s, want code %s", got[len(got)-1], tc.code)
			}
			f.driver.Stop()
			if hasChildren() {
				t.Error("something of the program is left")
			}
		})
	}
}

// hasChildren says whether this process has a child.
func hasChildren() bool {
	var status unix.WaitStatus
	_, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
	return err == nil
}

// TestProgramCancelled: it is asked to end, and killed where it doesn't; what it says
// from then on isn't heard.
func TestProgramCancelled(t *testing.T) {
	for name, script := range map[string]string{
		"heeds it":   `trap 'echo "{\"type\":\"CUSTOM\",\"name\":\"late\",\"value\":1}"; exit' TERM; ` + sayStarted + "sleep 600 & wait",
		"it doesn't": "trap '' TERM; " + sayStarted + "while :; do sleep 600; done",
	} {
		t.Run(name, func(t *testing.T) {
			f := programs(t, 200*time.Millisecond, script)
			_, err := f.driver.Start(request("r-1"))
			must(t, err)
			waitSize(t, f.driver, 1)
			must(t, f.driver.Cancel("r-1"))
			if got, end := whole(t, f.driver, "r-1"); end.Outcome != "cancelled" || len(got) != 2 {
				t.Errorf("%q, %+v", got, end)
			}
			f.driver.Stop()
			if hasChildren() {
				t.Error("something of the program is left")
			}
		})
	}
}

// TestProgramThatCantStart fails its run, not the driver.
func TestProgramThatCantStart(t *testing.T) {
	f := programs(t, time.Second, "")
	agent, ok := f.driver.cfg.Agent.(Exec)
	if !ok {
		t.Fatal("no Exec")
	}
	agent.Command = func([]string) *exec.Cmd { return exec.Command("/no/such/program") }
	f.driver.cfg.Agent = agent
	_, err := f.driver.Start(request("r-1"))
	must(t, err)
	if _, end := whole(t, f.driver, "r-1"); end.Outcome != "error" || !strings.Contains(end.Reason, "can't be started") {
		t.Errorf("%+v", end)
	}
}
