package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The names inside a server's folder.
const (
	dataName = "data"
	runName  = "run"
	lockName = "lock"
	freshPat = "fresh-*" // a cluster that initdb has not finished
)

// maxSocketPath is the longest path that a unix socket address holds.
const maxSocketPath = 107

// socketName is what PostgreSQL calls the socket of its default port.
const socketName = ".s.PGSQL.5432"

// graceOfOrphan is how long a server whose parent was killed may take to end
// before it counts as somebody's. An immediate shutdown takes well under a
// second, up to 5 s when a backend does not listen.
const graceOfOrphan = 7 * time.Second

// folder is a server's folder while this process holds it.
type folder struct {
	dir   string // absolute
	lock  *os.File
	owner owner
}

// hold takes the folder for this process, making it if it isn't there.
func hold(dir string) (*folder, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("server's folder: %w", err)
	}
	if err := os.MkdirAll(abs, 0o700); err != nil {
		return nil, fmt.Errorf("make the server's folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(abs, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, &InUseError{Dir: abs, PID: readPID(lock.Name())}
		}
		return nil, fmt.Errorf("lock the server's folder: %w", err)
	}
	f := &folder{dir: abs, lock: lock}
	if f.owner, err = ownerOf(f.data()); err == nil {
		err = f.open()
	}
	if err != nil {
		return nil, errors.Join(err, f.release())
	}
	return f, nil
}

func (f *folder) data() string { return filepath.Join(f.dir, dataName) }

// open writes the holder's id and lets the owner pass through.
func (f *folder) open() error {
	if f.owner.other {
		if err := os.Chmod(f.dir, 0o711); err != nil { //nolint:gosec // what is inside is closed by itself
			return fmt.Errorf("open the folder to the server's user: %w", err)
		}
	}
	if err := f.lock.Truncate(0); err != nil {
		return fmt.Errorf("write the lock: %w", err)
	}
	if _, err := f.lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		return fmt.Errorf("write the lock: %w", err)
	}
	return nil
}

// release lets go of the folder. Closing alone would not: a child that some
// other goroutine is just starting shares the lock until it executes.
func (f *folder) release() error {
	err := errors.Join(syscall.Flock(int(f.lock.Fd()), syscall.LOCK_UN), f.lock.Close())
	if err != nil {
		return fmt.Errorf("release the server's folder: %w", err)
	}
	return nil
}

// version is the major version of the cluster, 0 when there is none.
func (f *folder) version() (int, error) {
	text, err := os.ReadFile(filepath.Join(f.data(), "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the version of the data: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("read the version of the data: %w", err)
	}
	return major, nil
}

// waitForOrphan returns when no server runs on the cluster: it waits for one
// that a killed process left to end, and removes the pid file of one that is
// gone, which a process that got the same id would make valid again.
func (f *folder) waitForOrphan(ctx context.Context) error {
	pidFile := filepath.Join(f.data(), "postmaster.pid")
	ctx, cancel := context.WithTimeoutCause(ctx, graceOfOrphan, errStillThere)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		pid := readPID(pidFile)
		if pid == 0 || !servesFolder(pid, f.data()) {
			if err := os.Remove(pidFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove the file of a server that is gone: %w", err)
			}
			return nil
		}
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), errStillThere) {
				return &InUseError{Dir: f.dir, PID: pid, Server: true}
			}
			return fmt.Errorf("wait for an earlier server to end: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}

var errStillThere = errors.New("still there")

// readPID reads the process id in the first line of a file, 0 if there is none.
func readPID(path string) int {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || pid <= 0 {
		return 0
	}
	return pid
}

// socketDir returns the folder of the socket, made and owned.
func (f *folder) socketDir() (string, error) {
	own := filepath.Join(f.dir, runName)
	if len(own)+1+len(socketName) <= maxSocketPath && f.owner.reaches(own) {
		return own, f.ownDir(own)
	}
	// Too long or unreachable: a short one elsewhere, found again by the link.
	if target, err := os.Readlink(own); err == nil && f.isOwnDir(target) {
		return target, nil
	}
	if err := os.RemoveAll(own); err != nil {
		return "", fmt.Errorf("clear the socket's folder: %w", err)
	}
	short, err := os.MkdirTemp(f.shortRoot(), "holdfast-pg-")
	if err != nil {
		return "", fmt.Errorf("make a short folder for the socket: %w", err)
	}
	if err := errors.Join(f.owner.give(short), os.Symlink(short, own)); err != nil {
		return "", errors.Join(fmt.Errorf("make a short folder for the socket: %w", err), os.Remove(short))
	}
	return short, nil
}

// shortRoot is where short folders go: the usual one unless it is long itself
// or closed to the server's user.
func (f *folder) shortRoot() string {
	const short = 60
	if tmp := os.TempDir(); len(tmp) <= short && f.owner.reaches(filepath.Join(tmp, "any")) {
		return tmp
	}
	return "/tmp"
}

// clearSocket removes what a killed server left beside its socket: like a
// stale pid file, its lock would count as valid for whoever got the same id.
func clearSocket(dir string) error {
	for _, name := range []string{socketName, socketName + ".lock"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("clear the socket's folder: %w", err)
		}
	}
	return nil
}

// dropSocketDir removes a short folder and its link; one inside stays.
func (f *folder) dropSocketDir(dir string) error {
	own := filepath.Join(f.dir, runName)
	if dir == own {
		return nil
	}
	return errors.Join(clearSocket(dir), os.Remove(dir), os.Remove(own))
}

// ownDir makes dir a real folder of the owner's, replacing a link.
func (f *folder) ownDir(dir string) error {
	if info, err := os.Lstat(dir); err == nil && !info.IsDir() {
		if err := os.Remove(dir); err != nil {
			return fmt.Errorf("replace the socket's folder: %w", err)
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the socket's folder: %w", err)
	}
	return f.owner.give(dir)
}

// isOwnDir reports whether dir is a folder that only the owner can write to: a
// name in a folder for everybody may be somebody else's by now.
func (f *folder) isOwnDir(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	if f.owner.other {
		return st.Uid == f.owner.uid
	}
	return st.Uid == uint32(os.Geteuid())
}
