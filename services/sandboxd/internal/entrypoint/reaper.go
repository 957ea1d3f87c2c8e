package entrypoint

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// Reaper collects every child of this process, its own and those that fell to
// it when their parents died. Nothing else in the process may wait for children:
// start them all through [Reaper.Start].
type Reaper struct {
	signals chan os.Signal
	stopped chan struct{}

	// mu is held while children are collected, so that no pid that is known here
	// can belong to anybody else.
	mu    sync.Mutex
	procs map[int]*Proc
}

// Proc is a child that leads a process group.
type Proc struct {
	r      *Reaper
	pid    int
	done   chan struct{}
	status unix.WaitStatus
}

// NewReaper makes this process the one that orphans fall to, as process 1 of a
// pid namespace is by nature, and starts to collect.
func NewReaper() (*Reaper, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become the reaper of orphans: %w", err)
	}
	r := &Reaper{
		signals: make(chan os.Signal, 1),
		stopped: make(chan struct{}),
		procs:   make(map[int]*Proc),
	}
	signal.Notify(r.signals, unix.SIGCHLD)
	go func() {
		defer close(r.stopped)
		for range r.signals {
			r.collect()
		}
	}()
	return r, nil
}

// Stop ends the collecting. It may be called once.
func (r *Reaper) Stop() {
	signal.Stop(r.signals)
	close(r.signals)
	<-r.stopped
}

// Start starts a command that was made so as to lead a process group. Its
// output must go to files: nobody copies here.
func (r *Reaper) Start(cmd *exec.Cmd) (*Proc, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Proc{r: r, pid: cmd.Process.Pid, done: make(chan struct{})}
	r.procs[p.pid] = p
	return p, cmd.Process.Release()
}

func (r *Reaper) collect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid == 0 { // ECHILD, or none that is done
			return
		}
		r.settle(pid, status)
	}
}

func (r *Reaper) settle(pid int, status unix.WaitStatus) {
	if p, ok := r.procs[pid]; ok {
		delete(r.procs, pid)
		p.status = status
		close(p.done)
	}
}

// KillOrphans ends all processes that fell to this one, and waits until none
// is left. Those that were started here are spared.
func (r *Reaper) KillOrphans() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		orphans, err := r.orphans()
		if err != nil {
			return fmt.Errorf("kill orphans: %w", err)
		}
		if len(orphans) == 0 {
			return nil
		}
		for _, pid := range orphans {
			// It may be gone; the wait below tells either way.
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		for _, pid := range orphans {
			var status unix.WaitStatus
			for {
				if _, err := unix.Wait4(pid, &status, 0, nil); !errors.Is(err, unix.EINTR) {
					break
				}
			}
		}
	}
}

// orphans lists the children of this process that it didn't start.
func (r *Reaper) orphans() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || r.procs[pid] != nil {
			continue
		}
		if parentOf(pid) == os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// parentOf reads a process's parent, or 0 when the process is gone.
func parentOf(pid int) int {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// "pid (name) state ppid …", and a name may hold anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0
	}
	ppid, err := strconv.Atoi(string(fields[1]))
	if err != nil {
		return 0
	}
	return ppid
}

// Done is closed when the process has ended.
func (p *Proc) Done() <-chan struct{} { return p.done }

// Signal sends a signal to the process's whole group, if the process still lives.
func (p *Proc) Signal(sig unix.Signal) error {
	p.r.mu.Lock()
	defer p.r.mu.Unlock()
	if p.r.procs[p.pid] != p {
		return nil
	}
	if err := unix.Kill(-p.pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal process group: %w", err)
	}
	return nil
}

// Exit says in words how the process ended. It may be called after Done.
func (p *Proc) Exit() string {
	if p.status.Signaled() {
		return "was killed by " + unix.SignalName(p.status.Signal())
	}
	status := p.status.ExitStatus()
	// What waits for the agent in its jail, like a shell, adds the signal to 128.
	if name := unix.SignalName(unix.Signal(status - 128)); status > 128 && name != "" {
		return fmt.Sprintf("exited with status %d, as after %s", status, name)
	}
	return fmt.Sprintf("exited with status %d", status)
}
