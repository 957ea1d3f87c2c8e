package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// errNotInSight says that no process was found to attack.
var errNotInSight = errors.New("not in sight")

// others lists the processes in sight but this attempt and the agent that started
// it: those whose secrets are not its own.
func others() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	own := []int{os.Getpid(), os.Getppid()}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && !slices.Contains(own, pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// victims are the processes that an order names: PID as the host numbers it, else
// those whose command line has Text, else all others.
func victims(o Order) []int {
	if o.PID != 0 {
		return []int{o.PID}
	}
	if o.Text == "" {
		return others()
	}
	var found []int
	for _, pid := range others() {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && strings.Contains(strings.ReplaceAll(string(line), "\x00", " "), o.Text) {
			found = append(found, pid)
		}
	}
	return found
}

// environments looks for a variable named Text in the environment of every other
// process that isn't empty, and gives its value.
func environments(o Order) (string, error) {
	for _, pid := range others() {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil {
			continue
		}
		for kv := range bytes.SplitSeq(env, []byte{0}) {
			if value, ok := bytes.CutPrefix(kv, []byte(o.Text+"=")); ok && len(value) > 0 {
				return string(value), nil
			}
		}
	}
	return "", errNotInSight
}

// region is a mapping of a process.
type region struct{ from, to uintptr }

// maxRegion is what is read of one mapping.
const maxRegion = 16 << 20

// writable lists the private writable mappings of a process: heap and stack.
func writable(pid int) ([]region, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var found []region
	for scan := bufio.NewScanner(f); scan.Scan(); {
		var r region
		var mode string
		if _, err := fmt.Sscanf(scan.Text(), "%x-%x %s", &r.from, &r.to, &mode); err == nil && mode == "rw-p" {
			r.to = min(r.to, r.from+maxRegion)
			found = append(found, r)
		}
	}
	return found, nil
}

// search looks for the pattern Address in the memory of victims, read by read.
func search(o Order, read func(pid int, at uintptr, into []byte) (int, error)) (string, error) {
	pattern, err := regexp.Compile(o.Address)
	if err != nil {
		return "", err
	}
	err = errNotInSight
	for _, pid := range victims(o) {
		regions, failed := writable(pid)
		if failed != nil {
			err = failed
			continue
		}
		for _, r := range regions {
			buf := make([]byte, r.to-r.from)
			n, failed := read(pid, r.from, buf)
			if failed != nil {
				err = failed
			}
			if found := pattern.Find(buf[:max(n, 0)]); found != nil {
				return string(found), nil
			}
		}
	}
	return "", err
}

// memory searches through /proc/<pid>/mem.
func memory(o Order) (string, error) {
	return search(o, func(pid int, at uintptr, into []byte) (int, error) {
		f, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
		if err != nil {
			return 0, err
		}
		defer f.Close()
		return f.ReadAt(into, int64(at))
	})
}

// vmReadv searches by process_vm_readv(2).
func vmReadv(o Order) (string, error) {
	return search(o, func(pid int, at uintptr, into []byte) (int, error) {
		return unix.ProcessVMReadv(pid, []unix.Iovec{{Base: &into[0], Len: uint64(len(into))}},
			[]unix.RemoteIovec{{Base: at, Len: len(into)}}, 0)
	})
}

// ptraceAttach takes hold of a victim, and lets it go.
func ptraceAttach(o Order) (string, error) {
	runtime.LockOSThread()
	err := errNotInSight
	for _, pid := range victims(o) {
		if err = unix.PtraceAttach(pid); err != nil {
			continue
		}
		if _, err := unix.Wait4(pid, nil, 0, nil); err != nil {
			return "", err
		}
		return fmt.Sprintf("attached to %d", pid), unix.PtraceDetach(pid)
	}
	return "", err
}

// signal asks whether a victim could be killed.
func signal(o Order) (string, error) {
	err := errNotInSight
	for _, pid := range victims(o) {
		if err = unix.Kill(pid, 0); err == nil {
			return fmt.Sprintf("%d can be killed", pid), nil
		}
	}
	return "", err
}

// descriptorsOf lists what a victim has open.
func descriptorsOf(o Order) (string, error) {
	err := errNotInSight
	for _, pid := range victims(o) {
		dir := fmt.Sprintf("/proc/%d/fd/", pid)
		entries, failed := os.ReadDir(dir)
		if failed != nil || len(entries) == 0 {
			err = errors.Join(errNotInSight, failed)
			continue
		}
		return os.Readlink(dir + entries[0].Name())
	}
	return "", err
}

// stealDescriptor takes a listening socket out of a victim.
func stealDescriptor(o Order) (string, error) {
	err := errNotInSight
	for _, pid := range victims(o) {
		var pidfd int
		if pidfd, err = unix.PidfdOpen(pid, 0); err != nil {
			continue
		}
		for fd := range 64 {
			var stolen int
			if stolen, err = unix.PidfdGetfd(pidfd, fd, 0); err != nil {
				continue
			}
			if listens(stolen) {
				return fmt.Sprintf("the listening socket %d of %d", fd, pid), nil
			}
			_ = unix.Close(stolen)
		}
	}
	return "", errors.Join(errNotInSight, err)
}

func listens(fd int) bool {
	on, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	return err == nil && on == 1
}

// inheritedSockets looks for sockets that this process was born with.
func inheritedSockets(Order) (string, error) {
	for fd := range 256 {
		if _, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err == nil {
			return fmt.Sprintf("descriptor %d is a socket", fd), nil
		}
	}
	return "", errNotInSight
}

// cloneNamespace starts a process in a new user namespace by clone (Text "clone")
// or clone3.
func cloneNamespace(o Order) (string, error) {
	runtime.LockOSThread()
	var pid uintptr
	var errno unix.Errno
	if o.Text == "clone" {
		pid, _, errno = unix.RawSyscall6(unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	} else {
		const size = 88 // of struct clone_args; its first field is the flags, its fifth the signal
		args := make([]byte, size)
		binary.NativeEndian.PutUint64(args, unix.CLONE_NEWUSER)
		binary.NativeEndian.PutUint64(args[32:], uint64(unix.SIGCHLD))
		pid, _, errno = unix.RawSyscall(unix.SYS_CLONE3, address(args), size, 0)
	}
	if errno != 0 {
		return "", errno
	}
	if pid == 0 {
		unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0) //nolint:errcheck // it doesn't come back
	}
	return fmt.Sprintf("process %d in a user namespace of its own", pid), nil
}

// enterNamespace joins the namespace at Path.
func enterNamespace(o Order) (string, error) {
	runtime.LockOSThread()
	fd, err := unix.Open(o.Path, unix.O_RDONLY, 0)
	if err != nil {
		return "", err
	}
	return "joined " + o.Path, unix.Setns(fd, 0)
}
