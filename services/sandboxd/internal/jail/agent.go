package jail

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
)

// Exit codes of the stages, besides those of the process that they start.
const (
	// ExitSetup says that the jail couldn't be built; stderr says what failed.
	ExitSetup = 125
	// ExitExec says that the jail stands but its program can't be executed.
	ExitExec = 126
)

// agentID is the agent's uid and gid as it sees them: nobody special.
const agentID = 1000

// AgentSpec is what [AgentCommand] needs to know to start an agent.
type AgentSpec struct {
	// Isolation is sandboxapi.Boot.Isolation: "namespaces", "gvisor", or "none" for a
	// plain process in a process group of its own.
	Isolation string `json:"isolation"`
	// Argv is the command; Argv[0] is a path, or a name looked up in Env's PATH
	// (isolation none: in sandboxd's).
	Argv []string `json:"argv"`
	// Env is the agent's whole environment ("K=V").
	Env []string `json:"-"`
	// Workspace is the agent's working directory, the only one besides /tmp and
	// /dev/shm that it can write.
	Workspace string `json:"workspace"`
	// MaxMemoryBytes bounds the private memory of each process (RLIMIT_DATA, which
	// counts what is mapped, not what is touched: a Go program needs some 110 MiB
	// to start); 0 is no bound. Not applied without isolation.
	MaxMemoryBytes int64 `json:"maxMemoryBytes,omitempty"`
	// MaxProcs bounds processes and threads; 0 is no bound. Not applied without
	// isolation, where the count would be that of the whole user.
	MaxProcs int64 `json:"maxProcs,omitempty"`
	// MaxFileBytes bounds each file that is written (RLIMIT_FSIZE): what one runaway
	// program appends to ends there exactly; 0 is no bound. Not applied without
	// isolation.
	MaxFileBytes int64 `json:"maxFileBytes,omitempty"`
}

// AgentCommand returns the unstarted command that runs an agent in its jail.
// Its process leads a process group: kill -PID ends an agent without isolation
// with all it started; in namespaces killing the process itself is enough. The
// process dies with the thread's process that started it.
func AgentCommand(spec AgentSpec) *exec.Cmd {
	attr := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if spec.Isolation == sandboxapi.IsolationNone {
		cmd := exec.Command(spec.Argv[0], spec.Argv[1:]...)
		cmd.Env, cmd.Dir, cmd.SysProcAttr = environ(spec.Env), spec.Workspace, attr
		return cmd
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		// A struct of strings and numbers always marshals.
		panic(fmt.Sprintf("jail: marshal agent spec: %v", err))
	}
	attr.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID
	id := agentID
	if spec.Isolation == sandboxapi.IsolationGVisor {
		id = 0
	}
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: id, HostID: os.Getuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: id, HostID: os.Getgid(), Size: 1}}
	// Enough to build the jail from within; confine drops both before the agent.
	attr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP}
	cmd := exec.Command(sandboxapi.JailBinary, "jail-agent", string(raw))
	cmd.Env, cmd.Dir, cmd.SysProcAttr = environ(spec.Env), spec.Workspace, attr
	return cmd
}

// environ keeps exec.Cmd from taking nil for "inherit mine".
func environ(env []string) []string {
	if env == nil {
		return []string{}
	}
	return env
}

// Agent is `sandboxd jail-agent <JSON of AgentSpec>`: the last stage before the
// agent. It returns the exit code for the process: the agent's own (128 + the
// signal that ended it) when the agent was started.
func Agent(args []string) int {
	if len(args) != 1 {
		return fail(ExitSetup, errors.New("jail-agent takes one argument, an AgentSpec"))
	}
	var spec AgentSpec
	if err := json.Unmarshal([]byte(args[0]), &spec); err != nil {
		return fail(ExitSetup, fmt.Errorf("agent spec: %w", err))
	}
	if len(spec.Argv) == 0 {
		return fail(ExitSetup, errors.New("agent spec: argv is empty"))
	}
	path, argv, err := agentProgram(spec)
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return fail(ExitExec, err)
	}
	if err != nil {
		return fail(ExitSetup, err)
	}
	// From here on signals are the agent's: sandboxd sends them to this process.
	signals := make(chan os.Signal, 32)
	signal.Notify(signals)
	pid, err := syscall.ForkExec(path, argv, &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{0, 1, 2},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return fail(ExitExec, fmt.Errorf("exec %s: %w", path, err))
	}
	go forward(signals, pid)
	return reap(pid)
}

// agentProgram confines this process and returns the program that it is to run: the
// agent's own, or gVisor with it.
func agentProgram(spec AgentSpec) (path string, argv []string, err error) {
	if spec.Isolation == sandboxapi.IsolationGVisor {
		return gvisorCommand(spec)
	}
	if err := hideSandboxd("mode=0555,size=4k", unix.MS_RDONLY); err != nil {
		return "", nil, err
	}
	if err := confine(spec); err != nil {
		return "", nil, err
	}
	path, err = exec.LookPath(spec.Argv[0])
	return path, spec.Argv, err
}

// hideSandboxd takes sandboxd's sockets, spool and processes out of sight, behind an
// empty place in memory of the given kind.
func hideSandboxd(options string, flags uintptr) error {
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("detach mount propagation: %w", err)
	}
	if err := mountProc("/proc"); err != nil {
		return err
	}
	return mountTmpfs(sandboxapi.JailPrivate, options, flags)
}

// forward passes signals on to the agent's process group. SIGCHLD is ours, and
// SIGURG is the Go runtime's.
func forward(signals <-chan os.Signal, pid int) {
	for s := range signals {
		sig, ok := s.(syscall.Signal)
		if !ok || sig == syscall.SIGCHLD || sig == syscall.SIGURG {
			continue
		}
		// ESRCH only: the agent has ended, and reap is about to say so.
		_ = syscall.Kill(-pid, sig)
	}
}

// reap collects every child until the agent itself ends. Returning ends process
// 1 of the namespace, with which the kernel ends whatever the agent left behind.
func reap(agent int) int {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return fail(ExitSetup, fmt.Errorf("wait for the agent: %w", err))
		case pid != agent:
			continue
		case status.Signaled():
			return 128 + int(status.Signal())
		case status.Exited():
			return status.ExitStatus()
		}
	}
}
