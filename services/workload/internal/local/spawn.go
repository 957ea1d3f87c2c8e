package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
)

// spawner starts processes from one thread that lives as long as it does. The
// kernel sends a death signal when the parent *thread* ends, and the threads of
// a Go program come and go.
type spawner struct {
	requests chan spawnRequest
	done     chan struct{}
}

type spawnRequest struct {
	cmd  *exec.Cmd
	done chan<- error
}

func newSpawner() *spawner {
	s := &spawner{requests: make(chan spawnRequest), done: make(chan struct{})}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(s.done)
		for r := range s.requests {
			r.done <- r.cmd.Start()
		}
	}()
	return s
}

// start starts cmd.
func (s *spawner) start(cmd *exec.Cmd) error {
	done := make(chan error, 1)
	s.requests <- spawnRequest{cmd, done}
	return <-done
}

// close ends the thread; nothing may be started any more.
func (s *spawner) close() {
	close(s.requests)
	<-s.done
}

// cloneFlags are the namespaces of a sandbox.
const cloneFlags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// jailCommand returns the command that becomes sandboxd in a sandbox of its own,
// run by the host's uid and gid. Its first two extra files are to be control
// channel and listener; more are added here and must be closed by the caller.
func jailCommand(binary string, uid, gid int, spec sandboxapi.JailSpec, files []*os.File) (cmd *exec.Cmd, opened []*os.File, err error) {
	defer func() {
		if err != nil {
			closeAll(opened)
		}
	}()
	attr := &syscall.SysProcAttr{
		Cloneflags:  cloneFlags,
		UidMappings: []syscall.SysProcIDMap{{HostID: uid, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: gid, Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
		Setsid:      true,
	}
	path := binary
	if os.Getuid() == 0 {
		// The sandbox's uid can't pass root's directories. So root opens what is to
		// be mounted and executed, and hands over descriptors.
		attr.Credential = &syscall.Credential{}
		attr.GidMappingsEnableSetgroups = true
		spec.Mounts = slices.Clone(spec.Mounts)
		const firstExtra = 3
		for i := range spec.Mounts {
			m := &spec.Mounts[i]
			f, err := detachedMount(m.Source)
			if err != nil {
				return nil, opened, err
			}
			opened = append(opened, f)
			m.Source, m.FD = "", firstExtra+len(files)+len(opened)-1
		}
		f, err := os.Open(binary)
		if err != nil {
			return nil, opened, fmt.Errorf("sandboxd: %w", err)
		}
		opened = append(opened, f)
		path = fmt.Sprintf("/proc/self/fd/%d", firstExtra+len(files)+len(opened)-1)
	}
	arg, err := json.Marshal(spec)
	if err != nil {
		return nil, opened, fmt.Errorf("jail spec: %w", err)
	}
	return &exec.Cmd{
		Path:        path,
		Args:        []string{"sandboxd", "jail-init", string(arg)},
		Env:         []string{},
		Dir:         "/",
		ExtraFiles:  slices.Concat(files, opened),
		SysProcAttr: attr,
	}, opened, nil
}

// detachedMount clones the mount at path, to be attached by somebody else.
func detachedMount(path string) (*os.File, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return nil, &os.PathError{Op: "open_tree", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// plainCommand returns the command of a sandboxd without isolation. It gets no
// death signal: it has to end its agent when the control channel ends.
func plainCommand(binary string, files []*os.File) *exec.Cmd {
	cmd := exec.Command(binary, "supervise")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.Dir = "/"
	cmd.ExtraFiles = files
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // read-only descriptors: nothing to lose
	}
}

// installBinary copies sandboxd to where sandboxes run it from, so that a new
// build in its old place changes nothing under running ones, and so that it is
// readable by every sandbox's uid.
func installBinary(src, dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	data, err := os.ReadFile(src)
	if err != nil {
		return "", err
	}
	dst := filepath.Join(dir, "sandboxd")
	tmp := dst + ".new"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	// While it is open for writing no child may be forked in this process: the child
	// would hold it open until its own exec, and "text file busy" would be the answer
	// to whoever runs it then.
	syscall.ForkLock.RLock()
	err = os.WriteFile(tmp, data, 0o755) //nolint:gosec // a program that other uids run
	syscall.ForkLock.RUnlock()
	if err != nil {
		return "", err
	}
	// The umask may have taken more than others' rights to write.
	if err := os.Chmod(tmp, 0o755); err != nil { //nolint:gosec // as above
		return "", err
	}
	return dst, os.Rename(tmp, dst)
}
