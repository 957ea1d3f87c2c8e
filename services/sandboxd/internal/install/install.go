// Package install is `sandboxd install PATH`: it copies the running program to where the
// containers of a Pod see it, so that any image can have its agent run by it.
package install

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Run copies this program to the one path in args, and returns the exit code: 0, 1 after
// a failure that it has told, 64 for arguments that make no sense.
func Run(args []string) int {
	if len(args) != 1 || args[0] == "" {
		fmt.Fprintln(os.Stderr, "usage: sandboxd install PATH")
		return 64
	}
	self, err := os.Executable()
	if err == nil {
		err = copyTo(args[0], self)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sandboxd install:", err)
		return 1
	}
	return 0
}

// copyTo replaces path by a copy of the program, in one step: whoever runs path runs the
// old one or the whole new one.
func copyTo(path, program string) (err error) {
	from, err := os.Open(program)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // only read from
	to, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(to.Name()))
		}
	}()
	_, err = io.Copy(to, from)
	if err == nil {
		err = to.Chmod(0o755) // a program that other users run
	}
	if err := errors.Join(err, to.Close()); err != nil {
		return err
	}
	return os.Rename(to.Name(), path)
}
