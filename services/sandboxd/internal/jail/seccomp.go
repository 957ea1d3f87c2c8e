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
	// The library lets calls of a foreign architecture pass to the default
	// action, which is to allow here: a 32-bit call would get round every rule.
	// They are refused up front.
	const archOffset = 4 // of struct seccomp_data
	guard := []bpf.Instruction{
		bpf.LoadAbsolute{Off: archOffset, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(native.ID), SkipTrue: 1},
		bpf.RetConstant{Val: uint32(errnoAction(unix.ENOSYS))},
	}
	raw, err := bpf.Assemble(append(guard, insns...))
	if err != nil {
		return nil, fmt.Errorf("seccomp: assemble: %w", err)
	}
	return raw, nil
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
