package jail

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
)

// systemPaths are the parts of the host that a sandbox shares, read-only:
// programs, libraries, and the few files of /etc that they need to run. What
// names users, hosts, networks or secrets isn't among them.
var systemPaths = []string{
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
	"/etc/alternatives", "/etc/ca-certificates", "/etc/fonts", "/etc/ld.so.cache", "/etc/ld.so.conf",
	"/etc/ld.so.conf.d", "/etc/localtime", "/etc/mime.types", "/etc/pki", "/etc/protocols",
	"/etc/services", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/timezone",
}

// devices are the only device nodes of a sandbox.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// etcFiles are the files of /etc that are made for every sandbox.
var etcFiles = map[string]string{ //nolint:gosec // a passwd file holds no passwords
	"passwd":        "root:x:0:0:sandboxd:/:/usr/sbin/nologin\nagent:x:1000:1000:agent:/tmp:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
	"group":         "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n",
	"hosts":         "127.0.0.1 localhost\n::1 localhost\n",
	"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}

// The names used while the root is built: below a scratch tmpfs, the new root
// and the host's.
const (
	newRoot  = "/new"
	hostRoot = "/host"
)

// buildRoot makes a new root file system of a small read-only tmpfs and bind
// mounts, and leaves the host's behind for good.
func buildRoot(spec sandboxapi.JailSpec) error {
	unix.Umask(0o022)
	if err := leaveHostRoot(); err != nil {
		return err
	}
	if err := mountTmpfs(newRoot, "mode=0755,size=1m,nr_inodes=2k", 0); err != nil {
		return err
	}
	for _, p := range systemPaths {
		if err := bindSystem(p); err != nil {
			return err
		}
	}
	if err := makeEtc(spec.Hostname); err != nil {
		return err
	}
	if err := makeDev(spec.TmpBytes); err != nil {
		return err
	}
	// /proc has to be mounted while the host's is still in sight: the kernel
	// gives a user namespace no more of it than it sees already.
	if err := mountProc(filepath.Join(newRoot, "proc")); err != nil {
		return err
	}
	if err := mountTmpfs(filepath.Join(newRoot, "tmp"), tmpOptions(spec.TmpBytes), 0); err != nil {
		return err
	}
	// The agent's stage covers it, whatever is mounted below.
	if err := makeTarget(newRoot+sandboxapi.JailPrivate, false); err != nil {
		return err
	}
	for _, m := range spec.Mounts {
		if err := bindSpec(m); err != nil {
			return err
		}
	}
	ro := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if err := unix.MountSetattr(unix.AT_FDCWD, newRoot, 0, &ro); err != nil {
		return fmt.Errorf("make / read-only: %w", err)
	}
	return switchRoot(newRoot)
}

// leaveHostRoot moves the host's root to hostRoot below a scratch tmpfs, so
// that mounting anywhere can't cover a source of a later bind mount.
func leaveHostRoot() error {
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("detach mount propagation: %w", err)
	}
	const scratch = "/tmp" // any directory that every machine has
	if err := mountTmpfs(scratch, "mode=0755,size=1m,nr_inodes=2k", 0); err != nil {
		return err
	}
	for _, d := range []string{scratch + newRoot, scratch + hostRoot} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return fmt.Errorf("scratch root: %w", err)
		}
	}
	if err := unix.PivotRoot(scratch, scratch+hostRoot); err != nil {
		return fmt.Errorf("pivot to the scratch root: %w", err)
	}
	return os.Chdir("/")
}

// switchRoot makes dir the root and drops everything that was mounted before.
func switchRoot(dir string) error {
	if err := os.Chdir(dir); err != nil {
		return fmt.Errorf("enter the new root: %w", err)
	}
	// The old root ends up stacked on the new one, and is what "." unmounts.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot to the new root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("drop the host's root: %w", err)
	}
	return os.Chdir("/")
}

// bindSystem shares a path of the host read-only. What the host doesn't have
// is left out; a symbolic link is copied (merged /usr), not followed.
func bindSystem(path string) error {
	src := hostRoot + path
	info, err := os.Lstat(src)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("share %s: %w", path, err)
	}
	dst := newRoot + path
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(src)
		if err != nil {
			return fmt.Errorf("share %s: %w", path, err)
		}
		if err := os.MkdirAll(filepath.Dir(dst), 0o755); err != nil {
			return fmt.Errorf("share %s: %w", path, err)
		}
		return os.Symlink(target, dst)
	}
	return bind(src, dst, !info.IsDir(), true)
}

// bindSpec mounts what the driver asked for.
func bindSpec(m sandboxapi.JailMount) error {
	dst := newRoot + m.Target
	if m.Source != "" {
		return bind(hostRoot+m.Source, dst, m.File, m.ReadOnly)
	}
	unix.CloseOnExec(m.FD)
	return attach(m.FD, dst, m.File, m.ReadOnly)
}

// bind mounts src (with all below it) at dst.
func bind(src, dst string, file, readOnly bool) error {
	fd, err := unix.OpenTree(unix.AT_FDCWD, src, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return fmt.Errorf("bind %s: %w", dst, err)
	}
	return attach(fd, dst, file, readOnly)
}

// attach puts a detached mount at dst, which it makes, and closes fd.
func attach(fd int, dst string, file, readOnly bool) error {
	defer unix.Close(fd)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID, Propagation: unix.MS_PRIVATE}
	if readOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if filepath.Dir(dst) != newRoot+"/dev" {
		attr.Attr_set |= unix.MOUNT_ATTR_NODEV
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		return fmt.Errorf("bind %s: set attributes: %w", dst, err)
	}
	if err := makeTarget(dst, file); err != nil {
		return err
	}
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, dst, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("bind %s: %w", dst, err)
	}
	return nil
}

// makeTarget makes an empty file or directory to mount on.
func makeTarget(dst string, file bool) error {
	dir := dst
	if file {
		dir = filepath.Dir(dst)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("mount point: %w", err)
	}
	if !file {
		return nil
	}
	f, err := os.OpenFile(dst, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("mount point: %w", err)
	}
	return f.Close()
}

// makeEtc writes the sandbox's own files of /etc.
func makeEtc(hostname string) error {
	dir := newRoot + "/etc"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make /etc: %w", err)
	}
	for name, text := range etcFiles {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("make /etc: %w", err)
		}
	}
	return os.WriteFile(filepath.Join(dir, "hostname"), []byte(hostname+"\n"), 0o644)
}

// makeDev builds /dev of a few harmless devices and a bounded shared memory.
func makeDev(shmBytes int64) error {
	for _, name := range devices {
		if err := bind(hostRoot+"/dev/"+name, newRoot+"/dev/"+name, true, false); err != nil {
			return err
		}
	}
	links := map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"}
	for name, target := range links {
		if err := os.Symlink(target, newRoot+"/dev/"+name); err != nil {
			return fmt.Errorf("make /dev: %w", err)
		}
	}
	return mountTmpfs(newRoot+"/dev/shm", tmpOptions(shmBytes), unix.MS_NOEXEC)
}

// tmpOptions are those of a file system in memory that the agent writes. Empty
// files take memory too, some 1 KiB each that no size bounds.
func tmpOptions(bytes int64) string {
	return fmt.Sprintf("mode=1777,size=%d,nr_inodes=%d", bytes, max(bytes>>12, 1024))
}

// mountTmpfs mounts an empty file system in memory at dir, which it makes.
func mountTmpfs(dir, options string, flags uintptr) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("mount point: %w", err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|flags, options); err != nil {
		return fmt.Errorf("mount tmpfs on %s: %w", dir, err)
	}
	return nil
}

// mountProc mounts the proc of the current pid namespace at dir, which it makes.
func mountProc(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("mount point: %w", err)
	}
	if err := unix.Mount("proc", dir, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount proc on %s: %w", dir, err)
	}
	return nil
}
