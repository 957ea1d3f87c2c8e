package onenode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// grace is what a part has to end by itself.
const grace = 10 * time.Second

// process is a part that runs.
type process struct {
	name    string
	cmd     *exec.Cmd
	log     string
	ended   chan struct{}
	err     error // once ended
	stopped sync.Once
}

// spawn starts a part; what it says goes to a file of its name.
func (l layout) spawn(name string, env []string, args ...string) (*process, error) {
	p := &process{name: name, log: l.path("log", name), ended: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	p.cmd = exec.Command(l.part(name), args...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	// containerd looks for its shim, and for runc, where all parts are.
	p.cmd.Env = append(append(os.Environ(), "PATH="+l.parts+":"+os.Getenv("PATH")), env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), out.Close())
	}
	go func() {
		p.err = errors.Join(p.cmd.Wait(), out.Close())
		close(p.ended)
	}()
	return p, nil
}

// stop ends it, and waits until it has.
func (p *process) stop() {
	p.stopped.Do(func() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.ended:
		case <-time.After(grace):
			_ = p.cmd.Process.Kill()
			<-p.ended
		}
	})
}

// failure is what a part said before it ended, or last.
func (p *process) failure(err error) error {
	raw, _ := os.ReadFile(p.log)
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	return fmt.Errorf("%s: %w; its log ends with\n%s", p.name, err, strings.Join(lines[max(0, len(lines)-8):], "\n"))
}

// await polls until a part does what it should: holds says why not yet.
func (p *process) await(ctx context.Context, holds func(context.Context) error) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := holds(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return p.failure(fmt.Errorf("it ended (%w)", p.err))
		case <-ctx.Done():
			return p.failure(errors.Join(err, context.Cause(ctx)))
		case <-tick.C:
		}
	}
}
