package harness

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var binary struct {
	once sync.Once
	path string
	err  error
}

// Binary is the holdfast binary, built once for each test process.
func Binary(t testing.TB) string {
	t.Helper()
	binary.once.Do(func() { binary.path, binary.err = Build("github.com/holdfast-io/holdfast/services/holdfast", "") })
	if binary.err != nil {
		t.Fatal(binary.err)
	}
	return binary.path
}

// Child is a process of the built binary. It is killed when its test ends.
type Child struct {
	t    testing.TB
	name string
	cmd  *exec.Cmd
	done chan struct{}

	mu  sync.Mutex
	out bytes.Buffer
	all bytes.Buffer
}

// Spawn starts the binary with an environment of its own: PATH, HOME and what env
// adds.
func Spawn(t testing.TB, env []string, args ...string) *Child {
	t.Helper()
	return SpawnBuild(t, Binary(t), env, args...)
}

// SpawnBuild is Spawn with another build of the binary.
func SpawnBuild(t testing.TB, path string, env []string, args ...string) *Child {
	t.Helper()
	c := &Child{t: t, name: strings.Join(args, " "), done: make(chan struct{})}
	c.cmd = exec.Command(path, args...)
	c.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), envSandboxd + "=" + Sandboxd(t)}, env...)
	c.cmd.Stdout, c.cmd.Stderr = both{c, true}, both{c, false}
	c.cmd.WaitDelay = time.Second // a process of its own that keeps the pipe open
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.done)
		_ = c.cmd.Wait() // how it ended is its ProcessState
	}()
	t.Cleanup(c.Kill)
	return c
}

// both writes to what is said, and to the standard output alone where it is that.
type both struct {
	c      *Child
	stdout bool
}

// Write implements io.Writer.
func (b both) Write(p []byte) (int, error) {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	if b.stdout {
		b.c.out.Write(p)
	}
	return b.c.all.Write(p)
}

// Said is what it has written so far, errors too.
func (c *Child) Said() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all.String()
}

// Stdout is what it has written to its standard output so far.
func (c *Child) Stdout() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.String()
}

// Done is closed when it has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// PID is its process.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Await waits until it has said something.
func (c *Child) Await(text string) {
	c.t.Helper()
	deadline := time.NewTimer(Patience)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !strings.Contains(c.Said(), text) {
		select {
		case <-tick.C:
		case <-c.done:
			if strings.Contains(c.Said(), text) {
				return
			}
			c.t.Fatalf("%s ended without saying %q: %s", c.name, text, c.Said())
		case <-deadline.C:
			c.t.Fatalf("%s doesn't say %q: %s", c.name, text, c.Said())
		}
	}
}

// Wait waits for its end and gives its exit code; -1 where a signal ended it.
func (c *Child) Wait() int {
	c.t.Helper()
	select {
	case <-c.done:
	case <-time.After(Patience):
		c.t.Fatalf("%s doesn't end: %s", c.name, c.Said())
	}
	return c.cmd.ProcessState.ExitCode()
}

// Interrupt ends it as Ctrl-C does and gives its exit code.
func (c *Child) Interrupt() int {
	c.t.Helper()
	if err := c.cmd.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		c.t.Fatal(err)
	}
	return c.Wait()
}

// Kill ends it as kill -9 does, and waits until it is gone.
func (c *Child) Kill() {
	if err := c.cmd.Process.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		c.t.Errorf("kill %s: %v", c.name, err)
		return
	}
	<-c.done
}
