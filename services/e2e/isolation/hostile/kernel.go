package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// held keeps what system calls are given by address.
var held [][]byte

// address is that of a byte slice, for a system call.
func address(b []byte) uintptr {
	held = append(held, b)
	return uintptr(unsafe.Pointer(&b[0]))
}

// text is a C string.
func text(s string) uintptr { return address(append([]byte(s), 0)) }

// probe is a system call with arguments that are harmless where it is allowed: it
// succeeds, or fails over them with one of passed.
type probe struct {
	number uintptr
	args   func() []uintptr
	passed []unix.Errno
}

// probes by the names that orders use.
var probes = map[string]probe{
	"unshare user namespace":  {unix.SYS_UNSHARE, ints(unix.CLONE_NEWUSER), []unix.Errno{unix.EINVAL}}, // of threads
	"unshare mount namespace": {unix.SYS_UNSHARE, ints(unix.CLONE_NEWNS), nil},
	"unshare net namespace":   {unix.SYS_UNSHARE, ints(unix.CLONE_NEWNET), nil},
	"mount": {unix.SYS_MOUNT, func() []uintptr {
		return []uintptr{text("none"), text("/nowhere"), text("tmpfs"), 0, 0}
	}, []unix.Errno{unix.ENOENT}},
	"umount": {unix.SYS_UMOUNT2, func() []uintptr { return []uintptr{text("/nowhere"), 0} }, []unix.Errno{unix.ENOENT}},
	"fsopen": {unix.SYS_FSOPEN, func() []uintptr { return []uintptr{text("tmpfs"), 0} }, nil},
	"open_tree": {unix.SYS_OPEN_TREE, func() []uintptr {
		return []uintptr{0, text("/"), unix.OPEN_TREE_CLONE}
	}, nil},
	"pivot_root": {unix.SYS_PIVOT_ROOT, func() []uintptr { return []uintptr{text("/nowhere"), text("/nowhere")} }, []unix.Errno{unix.ENOENT}},
	"chroot":     {unix.SYS_CHROOT, func() []uintptr { return []uintptr{text("/nowhere")} }, []unix.Errno{unix.ENOENT}},
	"add_key": {unix.SYS_ADD_KEY, func() []uintptr {
		return []uintptr{text("user"), text("holdfast-hostile"), text("secret"), 6, ^uintptr(1)} // the process's keyring
	}, nil},
	"keyctl": {unix.SYS_KEYCTL, ints(0, ^uintptr(1), 1), nil}, // the id of the same
	"bpf": {unix.SYS_BPF, func() []uintptr {
		attr := make([]byte, 72)
		attr[0], attr[4], attr[8], attr[12] = 2, 4, 4, 1 // an array of one number
		return []uintptr{0, address(attr), uintptr(len(attr))}
	}, nil},
	"perf_event_open": {unix.SYS_PERF_EVENT_OPEN, func() []uintptr {
		const size = unsafe.Sizeof(unix.PerfEventAttr{})
		attr := make([]byte, size)
		attr[0], attr[4] = unix.PERF_TYPE_SOFTWARE, byte(size) // the clock of the cpu
		return []uintptr{address(attr), 0, ^uintptr(0), ^uintptr(0), 0}
	}, nil},
	"io_uring_setup": {unix.SYS_IO_URING_SETUP, func() []uintptr { return []uintptr{1, address(make([]byte, 120))} }, nil},
	"userfaultfd":    {unix.SYS_USERFAULTFD, ints(0), nil},
	"init_module": {
		unix.SYS_INIT_MODULE, func() []uintptr { return []uintptr{address(make([]byte, 8)), 8, text("")} },
		[]unix.Errno{unix.ENOEXEC},
	},
	"kexec_load":     {unix.SYS_KEXEC_LOAD, ints(0, 17, 0, 0), []unix.Errno{unix.EINVAL}},
	"swapon":         {unix.SYS_SWAPON, func() []uintptr { return []uintptr{text("/nowhere"), 0} }, []unix.Errno{unix.ENOENT}},
	"acct":           {unix.SYS_ACCT, func() []uintptr { return []uintptr{text("/nowhere")} }, []unix.Errno{unix.ENOENT}},
	"reboot":         {unix.SYS_REBOOT, ints(1, 2, 3, 0), []unix.Errno{unix.EINVAL}}, // magic that isn't
	"settimeofday":   {unix.SYS_SETTIMEOFDAY, ints(1, 0), []unix.Errno{unix.EFAULT}},
	"syslog":         {unix.SYS_SYSLOG, ints(10, 0, 0), nil}, // the size of the kernel's log
	"quotactl":       {unix.SYS_QUOTACTL_FD, ints(^uintptr(0), 0, 0, 0), []unix.Errno{unix.EBADF}},
	"fanotify_init":  {unix.SYS_FANOTIFY_INIT, ints(0, 0), nil},
	"memfd_secret":   {unix.SYS_MEMFD_SECRET, ints(0), nil},
	"kcmp":           {unix.SYS_KCMP, func() []uintptr { pid := uintptr(os.Getpid()); return []uintptr{pid, pid, 1, 0, 0} }, nil},
	"a call to come": {1000, ints(0), nil},
	"sethostname": {unix.SYS_SETHOSTNAME, func() []uintptr {
		name, _ := os.Hostname() // the one that it has
		return []uintptr{text(name), uintptr(len(name))}
	}, nil},
}

func ints(args ...uintptr) func() []uintptr { return func() []uintptr { return args } }

// rawSyscall makes the probe that Text names.
func rawSyscall(o Order) (string, error) {
	p, ok := probes[o.Text]
	if !ok {
		return "", fmt.Errorf("there is no probe %q", o.Text)
	}
	runtime.LockOSThread()
	var a [6]uintptr
	copy(a[:], p.args())
	result, _, errno := unix.RawSyscall6(p.number, a[0], a[1], a[2], a[3], a[4], a[5])
	if errno == 0 {
		return fmt.Sprintf("allowed: %d", result), nil
	}
	if slices.Contains(p.passed, errno) {
		return "allowed: " + errno.Error(), nil
	}
	return "", errno
}

// typeIntoTerminal makes a terminal and types into it as its user would.
func typeIntoTerminal(Order) (string, error) {
	runtime.LockOSThread()
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return "", err
	}
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return "", err
	}
	number, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		return "", err
	}
	terminal, err := unix.Open(fmt.Sprintf("/dev/pts/%d", number), unix.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return "", err
	}
	letter := []byte{'x'}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(terminal), unix.TIOCSTI, address(letter)); errno != 0 {
		return "", errors.Join(errors.New("TIOCSTI"), errno)
	}
	return "typed", nil
}
