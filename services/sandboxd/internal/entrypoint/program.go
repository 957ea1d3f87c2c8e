package entrypoint

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Program is a process that runs for one turn: it gets an input and ends by itself.
type Program struct {
	proc   *Proc
	stdin  *os.File
	stdout *os.File
	said   string
	left   error
	done   chan struct{}
}

// Launch starts a command that leads a process group, with input on its stdin. What
// it prints on stdout is read from [Program.Read], and must be; of stderr the end is
// kept. Nothing that it started outlives it.
func Launch(reaper *Reaper, cmd *exec.Cmd, input []byte) (*Program, error) {
	p := &Program{done: make(chan struct{})}
	var ours []*os.File // until the program has its copies
	closeOurs := func() {
		for _, f := range ours {
			_ = f.Close() // an empty pipe's end: nothing to lose
		}
	}
	in, stdin, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("pipe for input: %w", err)
	}
	p.stdin, ours = stdin, append(ours, in)
	stdout, out, err := os.Pipe()
	if err != nil {
		closeOurs()
		return nil, errors.Join(fmt.Errorf("pipe for output: %w", err), stdin.Close())
	}
	p.stdout, ours = stdout, append(ours, out)
	said, err := listen(cmd)
	if err != nil {
		closeOurs()
		return nil, errors.Join(err, stdin.Close(), stdout.Close())
	}
	cmd.Stdin, cmd.Stdout = in, out
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	go p.live(reaper, cmd, said, started)
	err = <-started
	closeOurs()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start: %w", err), stdin.Close(), stdout.Close())
	}
	go p.feed(input)
	return p, nil
}

// live is the program's life. It has a thread of its own: the kernel sends the
// parent-death signal when the thread ends that started a process.
func (p *Program) live(reaper *Reaper, cmd *exec.Cmd, said *words, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	proc, err := reaper.Start(cmd)
	said.started()
	p.proc = proc
	started <- err
	if err != nil {
		said.finish()
		return
	}
	<-proc.Done()
	p.left = reaper.KillOrphans()
	p.said = said.finish()
	// Whoever hid with the pipe would keep its reader waiting.
	_ = p.stdout.SetReadDeadline(time.Now().Add(wordsWait))
	_ = p.stdin.SetWriteDeadline(time.Now())
	close(p.done)
}

// feed writes the input. A program that doesn't want all of it closes its end, or
// ends; neither is our affair.
func (p *Program) feed(input []byte) {
	_, _ = p.stdin.Write(input)
	_ = p.stdin.Close()
}

// Read reads what the program prints on stdout. It ends with io.EOF, or with
// os.ErrDeadlineExceeded where somebody keeps the pipe of a program that ended.
func (p *Program) Read(b []byte) (int, error) { return p.stdout.Read(b) }

// Close gives up reading; after Done.
func (p *Program) Close() error { return p.stdout.Close() }

// Done is closed when the program and all that it started have ended.
func (p *Program) Done() <-chan struct{} { return p.done }

// Exit says in words how it ended; after Done.
func (p *Program) Exit() string { return p.proc.Exit() }

// Status is the exit status, -1 where a signal ended the program; after Done.
func (p *Program) Status() int {
	if p.proc.status.Signaled() {
		return -1
	}
	return p.proc.status.ExitStatus()
}

// Said is the end of what it printed on stderr, at most 4 KiB of text; after Done.
func (p *Program) Said() string { return p.said }

// Stop asks the program to end, kills it when grace is over, and returns when nothing
// of it is left. It may be called again.
func (p *Program) Stop(grace time.Duration) error {
	if err := p.proc.Signal(unix.SIGTERM); err != nil {
		return err
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
		return p.left
	case <-timer.C:
	}
	if err := p.proc.Signal(unix.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return p.left
}
