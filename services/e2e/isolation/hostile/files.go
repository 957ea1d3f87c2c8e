package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// readFile reads Path, and gives its first bytes.
func readFile(o Order) (string, error) {
	f, err := os.Open(o.Path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	buf := make([]byte, 4096)
	n, err := f.Read(buf)
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(buf[:n])), nil
}

// listDirectory lists Path and wants something in it.
func listDirectory(o Order) (string, error) {
	entries, err := os.ReadDir(o.Path)
	if err != nil {
		return "", err
	}
	if len(entries) == 0 {
		return "", errors.New("it is empty")
	}
	return entries[0].Name(), nil
}

// overwrite writes Text into Path, a file that exists.
func overwrite(o Order) (string, error) {
	f, err := os.OpenFile(o.Path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(o.Text)
	return "written", errors.Join(err, f.Close())
}

// create makes a new file beside this program, or at Path.
func create(o Order) (string, error) {
	path := o.Path
	if path == "" {
		path = filepath.Join(filepath.Dir(self()), "planted")
	}
	return "created " + path, os.WriteFile(path, []byte(o.Text), 0o600)
}

// openForWriting opens Path, a switch of the kernel, and writes nothing.
func openForWriting(o Order) (string, error) {
	f, err := os.OpenFile(o.Path, os.O_WRONLY, 0)
	if err != nil {
		return "", err
	}
	return "open", f.Close()
}

// makeNode makes a device (the kernel's zeroes, of all) and reads it.
func makeNode(Order) (string, error) {
	const zero = 1<<8 | 5
	path := filepath.Join(os.TempDir(), fmt.Sprintf("node-%d", os.Getpid()))
	if err := unix.Mknod(path, unix.S_IFCHR|0o600, zero); err != nil {
		return "", err
	}
	defer os.Remove(path)
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if _, err := f.Read(make([]byte, 1)); err != nil {
		return "", err
	}
	return "read a device", nil
}

// setUID becomes another user.
func setUID(o Order) (string, error) {
	if err := unix.Setuid(o.Count); err != nil {
		return "", err
	}
	return fmt.Sprintf("user %d", os.Getuid()), nil
}

// openByHandle opens a file of the host's by its number (a well-known way out of
// containers): it needs no name of it in sight, but any directory of its disk.
func openByHandle(o Order) (string, error) {
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, o.Path, 0)
	if err != nil {
		return "", err
	}
	dir, err := unix.Open(filepath.Dir(o.Path), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return "", err
	}
	fd, err := unix.OpenByHandleAt(dir, handle, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	buf := make([]byte, 4096)
	n, err := unix.Read(fd, buf)
	return string(buf[:max(n, 0)]), err
}
