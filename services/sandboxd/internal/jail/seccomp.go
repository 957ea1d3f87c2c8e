package jail

import (
	"fmt"
	"unsafe"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// deniedSyscalls are the ways to new namespaces and mounts, into other
// processes and into rarely used parts of the kernel: what a container engine's
// default profile denies. The agent gets EPERM.
var deniedSyscalls = []string{
	// Mounts and namespaces.
	"mount", "umount", "umount2", "pivot_root", "chroot", "unshare", "setns", "open_tree", "move_mount",
	"fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "open_tree_attr", "statmount", "listmount",
	"name_to_handle_at", "open_by_handle_at", "quotactl", "quotactl_fd",
	// Other processes.
	"ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp", "pidfd_getfd",
	// The kernel itself.
	"bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register",
	"init_module", "finit_module", "delete_module", "create_module", "kexec_load", "kexec_file_load",
	"add_key", "request_key", "keyctl", "lookup_dcookie", "fanotify_init", "memfd_secret",
	// The machine.
	"reboot", "swapon", "swapoff", "acct", "syslog", "settimeofday", "clock_settime", "adjtimex", "clock_adjtime",
	"sethostname", "setdomainname", "iopl", "ioperm", "vhangup", "nfsservctl", "uselib", "ustat", "sysfs", "_sysctl",
	"mbind", "migrate_pages", "move_pages", "set_mempolicy",
}

// newNamespaces are the flags of clone(2) that make namespaces.
const newNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// filterSyscalls installs the filter on every thread. no_new_privs must be set.
func filterSyscalls() error {
	raw, err := assembleFilter()
	if err != nil {
		return err
	}
	insns := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		insns[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	program := unix.SockFprog{Len: uint16(len(insns)), Filter: &insns[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return fmt.Errorf("seccomp: install filter: %w", errno)
	}
	return nil
}

// assembleFilter compiles the policy for the native architecture.
func assembleFilter() ([]bpf.RawInstruction, error) {
	native, err := arch.GetInfo("")
	if err != nil {
		return nil, fmt.Errorf("seccomp: %w", err)
	}
	policy := filterPolicy(native)
	insns, err := policy.Assemble()
	if err != nil {
		return nil, fmt.Errorf("seccomp: assemble: %w", err)
	}
	raw, err := bpf.Assemble(append(guard(native), insns...))
	if err != nil {
		return nil, fmt.Errorf("seccomp: assemble: %w", err)
	}
	return raw, nil
}

// The places of struct seccomp_data; of an argument, its low half.
const (
	numberOffset = 0
	archOffset   = 4
	arg0Offset   = 16
	arg1Offset   = 24
)

// families are the address families of an agent's sockets. Others lead out of the
// network namespace (AF_VSOCK reaches the hypervisor) or into rarely used parts of
// the kernel.
var families = []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}

// typing are the ioctls that type into a terminal as if its user did.
var typing = []uint32{unix.TIOCSTI, tiocLinux}

const tiocLinux = 0x541c // of linux/tty.h, which x/sys has not

// guard refuses what the library's rules can't. It lets calls of a foreign
// architecture pass to the default action, which is to allow here: a 32-bit call
// would get round every rule. It doesn't know system calls that are newer than it
// is. And it compares the whole of an argument, of which the kernel takes the low
// half where that is an int.
func guard(native *arch.Info) []bpf.Instruction {
	newest := 0
	for number := range native.SyscallNumbers {
		newest = max(newest, number)
	}
	deny := func(errno unix.Errno) bpf.Instruction {
		return bpf.RetConstant{Val: uint32(errnoAction(errno))}
	}
	rules := []bpf.Instruction{
		bpf.LoadAbsolute{Off: archOffset, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(native.ID), SkipTrue: 1},
		deny(unix.ENOSYS),
		bpf.LoadAbsolute{Off: numberOffset, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpLessOrEqual, Val: uint32(newest), SkipTrue: 1},
		deny(unix.ENOSYS),
	}
	// A call of this number has its argument compared; others go on behind.
	of := func(name string, body ...bpf.Instruction) {
		rules = append(rules, bpf.LoadAbsolute{Off: numberOffset, Size: 4},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(native.SyscallNames[name]), SkipTrue: uint8(len(body))})
		rules = append(rules, body...)
	}
	for _, name := range []string{"socket", "socketpair"} {
		body := make([]bpf.Instruction, 0, 1+len(families)+1)
		body = append(body, bpf.LoadAbsolute{Off: arg0Offset, Size: 4})
		for i, family := range families {
			body = append(body, bpf.JumpIf{Cond: bpf.JumpEqual, Val: family, SkipTrue: uint8(len(families) - i)})
		}
		of(name, append(body, deny(unix.EAFNOSUPPORT))...)
	}
	body := make([]bpf.Instruction, 0, 1+2*len(typing))
	body = append(body, bpf.LoadAbsolute{Off: arg1Offset, Size: 4})
	for _, request := range typing {
		body = append(body, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: request, SkipTrue: 1}, deny(unix.EPERM))
	}
	of("ioctl", body...)
	return rules
}

// filterPolicy allows all but deniedSyscalls and new namespaces by clone.
func filterPolicy(native *arch.Info) seccomp.Policy {
	var names []string
	for _, name := range deniedSyscalls {
		if _, ok := native.SyscallNames[name]; ok {
			names = append(names, name)
		}
	}
	conditions := []seccomp.NameWithConditions{{
		Name:       "clone",
		Conditions: seccomp.ArgumentConditions{{Argument: 0, Operation: seccomp.BitsSet, Value: newNamespaces}},
	}}
	return seccomp.Policy{
		DefaultAction: seccomp.ActionAllow,
		Syscalls: []seccomp.SyscallGroup{
			{Action: errnoAction(unix.EPERM), Names: names, NamesWithCondtions: conditions},
			// Its flags are in memory, out of a filter's sight; callers fall back to clone.
			{Action: errnoAction(unix.ENOSYS), Names: []string{"clone3"}},
		},
	}
}

// errnoAction is the action that fails a call with errno.
func errnoAction(errno unix.Errno) seccomp.Action {
	const retErrno = 0x00050000 // SECCOMP_RET_ERRNO
	return seccomp.Action(retErrno | uint32(errno))
}
