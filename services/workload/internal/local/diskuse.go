package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// diskUse is an amount of a disk: allocated bytes, and files (directories and
// links are files too).
type diskUse struct{ bytes, files int64 }

// beyond says whether u is more than limit in either.
func (u diskUse) beyond(limit diskUse) bool { return u.bytes > limit.bytes || u.files > limit.files }

// maxDepth is how deep a workspace may be nested: as deep as a path can name. A
// walk holds a descriptor for each level, so it has to end somewhere.
const maxDepth = 2048

// errTooDeep says that a tree is nested deeper than maxDepth.
var errTooDeep = fmt.Errorf("directories nested deeper than %d", maxDepth)

// readBatch is how many names of a directory are read at once.
const readBatch = 1024

// measureTree adds up what a tree takes, never leaving it by a link, and stops as
// soon as it is beyond limit: that much of the answer is enough. It is errTooDeep
// for a tree that isn't worth it. What vanishes meanwhile takes nothing.
func measureTree(ctx context.Context, dir string, limit diskUse) (diskUse, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return diskUse{}, fmt.Errorf("measure %s: %w", dir, err)
	}
	m := measurement{ctx: ctx, limit: limit}
	if err := m.directory(fd, 0); err != nil {
		return m.sum, fmt.Errorf("measure %s: %w", dir, err)
	}
	return m.sum, nil
}

// measurement is one walk of measureTree.
type measurement struct {
	ctx   context.Context //nolint:containedctx // lives as long as one call
	limit diskUse
	sum   diskUse
}

// directory adds what is in an open directory, and closes it.
func (m *measurement) directory(fd, depth int) error {
	dir := os.NewFile(uintptr(fd), "")
	defer dir.Close()
	if depth > maxDepth {
		return errTooDeep
	}
	for {
		names, err := dir.Readdirnames(readBatch)
		for _, name := range names {
			if err := m.entry(fd, name, depth); err != nil {
				return err
			}
			if m.sum.beyond(m.limit) {
				return nil
			}
		}
		if err := m.ctx.Err(); err != nil {
			return err
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, unix.ENOENT):
			return nil
		case err != nil:
			return err
		}
	}
}

// entry adds one name of a directory, and what is below it.
func (m *measurement) entry(dir int, name string, depth int) error {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	m.sum.files++
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		// All of a file's links are in the tree: none leads across a mount.
		m.sum.bytes += st.Blocks * blockBytes / max(int64(st.Nlink), 1)
		return nil
	}
	m.sum.bytes += st.Blocks * blockBytes
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return nil // replaced since
	case errors.Is(err, unix.EACCES):
		return nil // closed by its owner to this user; the reserve still bounds what is in it
	case err != nil:
		return err
	}
	return m.directory(fd, depth+1)
}

// blockBytes is the unit of st_blocks.
const blockBytes = 512

// measureUnlinked adds up the files of the device dev that processes hold open and
// that have no name any more: a tree doesn't show them.
func measureUnlinked(pids []int, dev uint64) int64 {
	type inode struct{ dev, ino uint64 }
	seen := map[inode]bool{}
	var sum int64
	for _, pid := range pids {
		dir := fmt.Sprintf("/proc/%d/fd", pid)
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // it ended
		}
		for _, e := range entries {
			var st unix.Stat_t
			if unix.Stat(filepath.Join(dir, e.Name()), &st) != nil || st.Nlink != 0 || st.Dev != dev || seen[inode{st.Dev, st.Ino}] {
				continue
			}
			seen[inode{st.Dev, st.Ino}] = true
			sum += st.Blocks * blockBytes
		}
	}
	return sum
}

// children maps the living processes of this host to those that they started.
type children map[int][]int

// listChildren reads the process table.
func listChildren() (children, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	c := children{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if st, err := readStat(pid); err == nil {
			c[st.parent] = append(c[st.parent], pid)
		}
	}
	return c, nil
}

// family lists a process and all below it: of a pid namespace's first process,
// everything that lives in it.
func (c children) family(pid int) []int {
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		all = append(all, c[all[i]]...)
	}
	return all
}

// written adds up the bytes that processes had written to disks, with those of
// their children that have ended.
func written(pids []int) int64 {
	var sum int64
	for _, pid := range pids {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
		if err != nil {
			continue // it ended
		}
		for line := range strings.Lines(string(raw)) {
			if value, ok := strings.CutPrefix(line, "write_bytes: "); ok {
				n, _ := strconv.ParseInt(strings.TrimSpace(value), 10, 64) // the kernel's own number
				sum += n
			}
		}
	}
	return sum
}
