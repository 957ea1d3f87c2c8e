package local

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// quotas bounds workspaces by project quotas of the file system (ext4 made with
// -O quota,project, or XFS; mounted with prjquota). A workspace's project has the
// number of the uid that no other sandbox has, so they are there only as root.
// Writing beyond the limit fails with EDQUOT; the sandbox lives on.
type quotas struct {
	dir *os.File // on the file system
}

// The kernel's words, of linux/quota.h, linux/dqblk_xfs.h and linux/fs.h, which
// x/sys has not.
const (
	projectQuota    = 2
	quotaGet        = 0x800007<<8 | projectQuota
	quotaSet        = 0x800008<<8 | projectQuota
	quotaState      = ('X'<<8+5)<<8 | projectQuota
	stateEnforced   = 1 << 5 // of the limits of projects
	quotaValidLimit = 1 | 4  // limits of blocks, and of files
	quotaBlock      = 1024
	getAttributes   = 0x801c581f
	setAttributes   = 0x401c5820
	inheritProject  = 0x200
)

// quotaBlk is the kernel's struct if_dqblk.
type quotaBlk struct {
	BlockHard, BlockSoft, Bytes uint64
	FileHard, FileSoft, Files   uint64
	BlockTime, FileTime         uint64
	Valid                       uint32
	_                           uint32
}

// fileAttributes is the kernel's struct fsxattr.
type fileAttributes struct {
	Flags, ExtentSize, Extents, Project, CopyExtentSize uint32
	_                                                   [8]byte
}

// openQuotas returns nil where there are no enforced project quotas on dir's file
// system. It believes only what it has tried: a limit that was set has to be read
// back. trial is a project that no workspace has at this time.
func openQuotas(dir string, trial int) *quotas {
	if os.Getuid() != 0 {
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	q := &quotas{f}
	if q.try(trial) != nil {
		_ = f.Close() // nothing was written through it
		return nil
	}
	return q
}

// try proves that limits can be set.
func (q *quotas) try(project int) error {
	var state [256]byte // more than the kernel's struct fs_quota_stat
	if err := q.control(quotaState, 0, unsafe.Pointer(&state)); err != nil {
		return err
	}
	const flagsAt = 2
	if *(*uint16)(unsafe.Pointer(&state[flagsAt]))&stateEnforced == 0 {
		return errors.New("the limits of projects are not enforced")
	}
	want := diskUse{64 << 20, 4242}
	dir, err := os.MkdirTemp(q.dir.Name(), "quota-")
	if err != nil {
		return err
	}
	err = q.limit(dir, project, want)
	var got quotaBlk
	if err == nil {
		err = q.control(quotaGet, project, unsafe.Pointer(&got))
	}
	if err == nil && (got.BlockHard != uint64(want.bytes/quotaBlock) || got.FileHard != uint64(want.files)) {
		err = errors.New("a limit that was set isn't there")
	}
	return errors.Join(err, q.set(project, diskUse{}), os.Remove(dir))
}

// limit makes dir, which is empty or belongs to the project already, a project
// with a limit. Nil quotas do nothing.
func (q *quotas) limit(dir string, project int, limit diskUse) error {
	if q == nil {
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("quota: %w", err)
	}
	defer f.Close()
	var a fileAttributes
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), getAttributes, uintptr(unsafe.Pointer(&a))); errno != 0 {
		return fmt.Errorf("quota: read the project of %s: %w", dir, errno)
	}
	a.Project, a.Flags = uint32(project), a.Flags|inheritProject
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), setAttributes, uintptr(unsafe.Pointer(&a))); errno != 0 {
		return fmt.Errorf("quota: set the project of %s: %w", dir, errno)
	}
	return q.set(project, limit)
}

// set sets a project's limit; zero is none.
func (q *quotas) set(project int, limit diskUse) error {
	blk := quotaBlk{BlockHard: uint64(limit.bytes / quotaBlock), FileHard: uint64(limit.files), Valid: quotaValidLimit}
	return q.control(quotaSet, project, unsafe.Pointer(&blk))
}

// control is quotactl_fd(2).
func (q *quotas) control(command, project int, data unsafe.Pointer) error {
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, q.dir.Fd(), uintptr(command), uintptr(project), uintptr(data), 0, 0)
	if errno != 0 {
		return fmt.Errorf("quota: %w", errno)
	}
	return nil
}

// close gives the descriptor back; limits stay with the files.
func (q *quotas) close() error {
	if q == nil {
		return nil
	}
	return q.dir.Close()
}
