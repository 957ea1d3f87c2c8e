package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// ownerOf returns the uid that a file belongs to.
func ownerOf(path string) (int, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("owner of %s: unknown", path)
	}
	return int(st.Uid), nil
}

// exists says whether a path does.
func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// makeOwned makes a private directory that belongs to uid.
func makeOwned(dir string, uid int) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if uid == os.Getuid() {
		return nil
	}
	return os.Chown(dir, uid, uid)
}

// remakeOwned empties a directory by making it again.
func remakeOwned(dir string, uid int) error {
	if err := removeTree(dir); err != nil {
		return err
	}
	return makeOwned(dir, uid)
}

// reown gives a tree to another uid: that of a driver that ran as somebody else. Its
// top comes last: by that it is seen to be done, so one that was cut off is repeated.
func reown(dir string, uid int) error {
	err := walkRooted(dir, func(root *os.Root, path string, _ fs.DirEntry, err error) error {
		if err != nil || path == filepath.Base(dir) {
			return err
		}
		return root.Lchown(path, uid, uid)
	})
	if err != nil {
		return err
	}
	return os.Lchown(dir, uid, uid)
}

// removeTree removes a tree that an agent may have filled: also directories
// that their owner made unreadable.
func removeTree(dir string) error {
	err := os.RemoveAll(dir)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	err = walkRooted(dir, func(root *os.Root, path string, d fs.DirEntry, err error) error {
		switch {
		case d == nil:
			return err
		case err != nil:
			return err
		case d.IsDir():
			return root.Chmod(path, 0o700)
		}
		return nil
	})
	return errors.Join(err, os.RemoveAll(dir))
}

// walkRooted walks a tree without ever leaving it by a link in it.
func walkRooted(dir string, visit func(root *os.Root, path string, d fs.DirEntry, err error) error) error {
	root, err := os.OpenRoot(filepath.Dir(dir))
	if err != nil {
		return err
	}
	err = fs.WalkDir(root.FS(), filepath.Base(dir), func(path string, d fs.DirEntry, err error) error {
		return visit(root, path, d, err)
	})
	return errors.Join(err, root.Close())
}
