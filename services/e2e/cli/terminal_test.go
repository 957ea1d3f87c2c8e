package cli_test

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// terminal is a process with a real terminal that a person would look at.
type terminal struct {
	t      *testing.T
	keys   *os.File
	cmd    *exec.Cmd
	screen *vt.Emulator
	mu     sync.Mutex
}

// inTerminal starts a command in a terminal of this size.
func (p *place) inTerminal(width, height int, args ...string) *terminal {
	p.t.Helper()
	term := &terminal{t: p.t, screen: vt.NewEmulator(width, height)}
	term.cmd = exec.Command(harness.Binary(p.t), append(args, "--data-dir", p.dir)...)
	term.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TERM=xterm-256color"}
	var err error
	if term.keys, err = pty.StartWithSize(term.cmd, &pty.Winsize{Rows: uint16(height), Cols: uint16(width)}); err != nil {
		p.t.Fatal(err)
	}
	var copying sync.WaitGroup
	copying.Go(func() { // what it draws
		buf := make([]byte, 32<<10)
		for {
			n, err := term.keys.Read(buf)
			term.mu.Lock()
			_, _ = term.screen.Write(buf[:n])
			term.mu.Unlock()
			if err != nil {
				// Close would race with a Read of what the terminal answers.
				if in, ok := term.screen.InputPipe().(io.Closer); ok {
					_ = in.Close()
				}
				return
			}
		}
	})
	copying.Go(func() { _, _ = io.Copy(term.keys, term.screen) }) // what a terminal answers when it is asked
	p.t.Cleanup(func() {
		_ = term.cmd.Process.Kill() // it may have left already
		_ = term.cmd.Wait()
		_ = term.keys.Close()
		copying.Wait()
	})
	return term
}

// shows waits until all of these stand on the screen.
func (term *terminal) shows(parts ...string) string {
	term.t.Helper()
	var seen string
	defer func() {
		if term.t.Failed() {
			term.t.Logf("the screen:\n%s", seen)
		}
	}()
	for _, part := range parts {
		harness.Eventually(term.t, "the screen shows "+part, func() bool {
			term.mu.Lock()
			defer term.mu.Unlock()
			seen = term.screen.String()
			return strings.Contains(seen, part)
		})
	}
	return seen
}

// hides waits until this has gone from the screen.
func (term *terminal) hides(part string) {
	term.t.Helper()
	harness.Eventually(term.t, "the screen shows no more "+part, func() bool {
		term.mu.Lock()
		defer term.mu.Unlock()
		return !strings.Contains(term.screen.String(), part)
	})
}

func (term *terminal) press(keys string) {
	term.t.Helper()
	if _, err := term.keys.WriteString(keys); err != nil {
		term.t.Fatal(err)
	}
}

// leaves presses a key that ends it.
func (term *terminal) leaves(key string) {
	term.t.Helper()
	term.press(key)
	if err := term.cmd.Wait(); err != nil {
		term.t.Errorf("it left with %v", err)
	}
}

// A session's live view: what is asked is seen whole and answered with a key, and
// the state above follows.
func live(t *testing.T, p *place) {
	s := parse[api.Session](p, "session", "create", "shell", "-m", "rm -rf build", "--wait", "30", "--as", "alice")
	view := p.inTerminal(100, 30, "session", "watch", s.ID, "--as", "admin")
	view.shows(s.ID+"  ready", "1 to answer", "namespaces", "idle in", "workload.ready", "? 1 of 1", "a approve")

	view.press("d") // looked at, and not answered
	view.shows("why, if you like", `"command": "rm -rf build"`, "args hash", "enter denies")
	view.press("\x1b")
	view.shows("q leave")

	view.press("a")
	view.shows("enter approves exactly what is shown")
	view.press("as agreed\r")
	view.shows("approved by user:admin (\"as agreed\")", "run.finished  success")

	view.press("m")
	view.shows("message to the agent")
	view.press("echo from a terminal\r")
	view.shows("sent", "\nfrom a terminal")
	view.hides("  run r-")

	view.press("x")
	view.shows("there is no open run to cancel")
	view.press("s")
	view.shows(s.ID + "  suspended")
	view.press("s") // refused, and said so
	view.shows("✗", "it is suspended")
	view.press("r")
	view.shows(s.ID+"  ready", "workload.resumed")
	view.leaves("q")
}

// An agent's text can't act on the terminal that shows it.
func liveHostile(t *testing.T, p *place) {
	s := p.create(`printf '\033[2Jgone\033]0;title\007\n'`)
	view := p.inTerminal(100, 30, "session", "watch", s.ID, "--as", "admin")
	view.shows("1 to answer", s.ID+"  ready")
	view.press("a")
	view.shows("args hash")
	view.press("\r")
	seen := view.shows("run.finished", "gone")
	says(t, seen, s.ID+"  ready", "workload.ready", "�[2Jgone�]0;title�")
	view.leaves("\x03")
}

// In a terminal, too, it is lines where that is asked for, and a session that isn't
// there is said plainly.
func livePlain(t *testing.T, p *place) {
	s := p.create("echo hello")
	p.inTerminal(100, 30, "session", "watch", s.ID, "--plain").shows("hello", "run.finished")
	p.inTerminal(100, 30, "session", "watch", "s-00000000000000000000").shows("not-found")
}
