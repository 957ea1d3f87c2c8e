package kubelet

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// marker is the environment variable by which a container's processes are found that
// left their process group: their container's processes end with its first one.
const marker = "KUBETEST_CONTAINER"

// process is one run of a container.
type process struct {
	cmd     *exec.Cmd
	mark    string
	started time.Time
	exited  chan struct{} // closed at the end; the fields below are set then

	finished time.Time
	code     int32 // as a shell would say it: 128 and the signal
}

// startProcess starts argv in a process group of its own, its output going to log.
func startProcess(argv, env []string, dir, log, mark string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(append([]string(nil), env...), marker+"="+mark)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, out
	// A test process that is killed takes them along.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, mark: mark, started: time.Now(), exited: make(chan struct{})}
	go p.wait()
	return p, nil
}

func (p *process) wait() {
	err := p.cmd.Wait()
	p.kill(syscall.SIGKILL) // those that the first one leaves behind
	killMarked(p.mark)
	p.finished = time.Now()
	exit, exited := errors.AsType[*exec.ExitError](err)
	var status syscall.WaitStatus
	if exited {
		status, _ = exit.Sys().(syscall.WaitStatus) // what Wait gives on Linux
	}
	switch {
	case err == nil:
	case exited && status.Signaled():
		p.code = 128 + int32(status.Signal())
	case exited:
		p.code = int32(exit.ExitCode())
	default:
		p.code = 128
	}
	close(p.exited)
}

// kill signals the whole group. That it is gone already is as good.
func (p *process) kill(signal syscall.Signal) { _ = syscall.Kill(-p.cmd.Process.Pid, signal) }

// running says whether it hasn't exited.
func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// killMarked kills what carries the mark in its environment, wherever it went.
func killMarked(mark string) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		environ, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "environ"))
		if err == nil && strings.Contains("\x00"+string(environ), "\x00"+marker+"="+mark+"\x00") {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// tail is the end of a log, for messages.
func tail(log string, size int) string {
	text, err := os.ReadFile(log)
	if err != nil {
		return fmt.Sprintf("no log: %v", err)
	}
	if len(text) > size {
		text = text[len(text)-size:]
	}
	return string(text)
}
