package jail

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
)

// probeDone is the argument with which the probe's innermost process is
// started: reaching it is the proof.
const probeDone = "-probe-done"

// Init is `sandboxd jail-init <JSON of sandboxapi.JailSpec>`: the first process
// inside the new namespaces. On success it doesn't return but becomes
// `sandboxd supervise`; otherwise it returns the exit code for the process and
// has said on stderr what failed.
func Init(args []string) int {
	if slices.Equal(args, []string{probeDone}) {
		return 0
	}
	if len(args) != 1 {
		return fail(ExitSetup, errors.New("jail-init takes one argument, a JailSpec"))
	}
	var spec sandboxapi.JailSpec
	if err := json.Unmarshal([]byte(args[0]), &spec); err != nil {
		return fail(ExitSetup, fmt.Errorf("jail spec: %w", err))
	}
	// Namespaces and mounts belong to threads until exec.
	runtime.LockOSThread()
	if err := enter(spec); err != nil {
		return fail(ExitSetup, err)
	}
	if spec.Probe {
		return probe(spec.Isolation)
	}
	argv := []string{"sandboxd", "supervise"}
	err := syscall.Exec(sandboxapi.JailBinary, argv, []string{"PATH=" + defaultPath})
	return fail(ExitExec, fmt.Errorf("exec %s: %w", sandboxapi.JailBinary, err))
}

// defaultPath is the search path inside a sandbox.
const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// enter makes the calling process the inhabitant of its own machine: root file
// system, host name, loopback.
func enter(spec sandboxapi.JailSpec) error {
	if err := buildRoot(spec); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(spec.Hostname)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	return loopbackUp()
}

// loopbackUp starts the only network interface that a sandbox has.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("loopback: socket: %w", err)
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr); err != nil {
		return fmt.Errorf("loopback: bring up: %w", err)
	}
	return nil
}

// probe starts a process that does nothing the way an agent is started.
func probe(isolation string) int {
	cmd := AgentCommand(AgentSpec{
		Isolation: isolation,
		Argv:      []string{sandboxapi.JailBinary, "jail-init", probeDone},
		Workspace: "/tmp",
	})
	cmd.Stderr = os.Stderr
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	if err != nil {
		return fail(ExitSetup, fmt.Errorf("start the agent's stage: %w", err))
	}
	return 0
}

// fail reports err the way the driver reads it, one line on stderr.
func fail(code int, err error) int {
	fmt.Fprintln(os.Stderr, "jail:", err)
	return code
}
