package jail

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"unsafe"

	"github.com/landlock-lsm/go-landlock/landlock"
	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/psx"
)

// errNoLandlock says that the kernel was built or booted without Landlock.
var errNoLandlock = errors.New("the kernel has no Landlock (boot with lsm=landlock,…)")

// confine takes away from every thread of this process, and so from all that
// it starts, what an agent must not have. The order matters: limits and
// capabilities first, while there are rights to change them; the filter last,
// because it forbids most of what this function does.
func confine(spec AgentSpec) error {
	if err := setLimits(spec); err != nil {
		return err
	}
	if err := dropCapabilities(); err != nil {
		return err
	}
	if err := restrictFiles(spec.Workspace); err != nil {
		return err
	}
	return filterSyscalls()
}

// setLimits sets the resource limits of the agent's processes.
func setLimits(spec AgentSpec) error {
	limits := []struct {
		name     string
		resource int
		value    int64
	}{
		{"core size", unix.RLIMIT_CORE, 0},
		{"private memory", unix.RLIMIT_DATA, spec.MaxMemoryBytes},
		{"processes", unix.RLIMIT_NPROC, spec.MaxProcs},
		{"file size", unix.RLIMIT_FSIZE, spec.MaxFileBytes},
	}
	for _, l := range limits {
		if l.value == 0 && l.resource != unix.RLIMIT_CORE {
			continue
		}
		v := uint64(l.value)
		if err := unix.Setrlimit(l.resource, &unix.Rlimit{Cur: v, Max: v}); err != nil {
			return fmt.Errorf("limit %s: %w", l.name, err)
		}
	}
	return nil
}

// dropCapabilities empties all five sets and forbids new privileges by exec.
func dropCapabilities() error {
	if err := prctlAll(unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	if err := prctlAll(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL); err != nil {
		return fmt.Errorf("drop ambient capabilities: %w", err)
	}
	for c := uintptr(0); ; c++ {
		err := prctlAll(unix.PR_CAPBSET_DROP, c)
		if errors.Is(err, unix.EINVAL) && c > unix.CAP_SETPCAP {
			break // past the last capability that this kernel knows
		}
		if err != nil {
			return fmt.Errorf("drop capability %d from the bounding set: %w", c, err)
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	_, _, errno := psx.Syscall3(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none)), 0)
	if errno != 0 {
		return fmt.Errorf("drop capabilities: %w", errno)
	}
	return nil
}

// prctlAll is prctl(2) on every thread of the process.
func prctlAll(option int, arg uintptr) error {
	if _, _, errno := psx.Syscall6(unix.SYS_PRCTL, uintptr(option), arg, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// restrictFiles lets the agent write its workspace and the places for
// temporary files, and read the system. The mounts say the same; Landlock holds
// also where a mount would be got round.
func restrictFiles(workspace string) error {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 || abi < 1 {
		return errNoLandlock
	}
	system, err := systemDirs()
	if err != nil {
		return err
	}
	// Version 5 covers rename across directories, truncate and device ioctls; on
	// an older kernel what it doesn't know is left to the mounts.
	err = landlock.V5.BestEffort().RestrictPaths(
		landlock.RODirs(system...),
		landlock.RODirs("/proc"),
		landlock.RWDirs(workspace, "/tmp", "/dev/shm").WithRefer(),
		landlock.RWFiles("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty").WithIoctlDev(),
	)
	if err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	return nil
}

// systemDirs lists what is at the root of the sandbox's own file system and is
// there to be read: all but what has rules of its own or is sandboxd's.
func systemDirs() ([]string, error) {
	entries, err := os.ReadDir("/")
	if err != nil {
		return nil, fmt.Errorf("landlock: %w", err)
	}
	var dirs []string
	for _, e := range entries {
		if !slices.Contains([]string{"dev", "proc", "run", "tmp"}, e.Name()) {
			dirs = append(dirs, "/"+e.Name())
		}
	}
	return dirs, nil
}
