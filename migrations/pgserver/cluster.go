package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// superuser is the cluster's only role until somebody makes another. There is
// no password: the socket's folder is closed to everybody else.
const superuser = "holdfast"

// create makes the cluster. initdb works in a folder beside, renamed when it is
// complete, so that a kill in between leaves nothing that looks like a cluster.
func (f *folder) create(ctx context.Context, programs Programs, noSync bool) error {
	leftovers, _ := filepath.Glob(filepath.Join(f.dir, freshPat)) // the pattern is well-formed
	for _, dir := range leftovers {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove an unfinished cluster: %w", err)
		}
	}
	fresh, err := os.MkdirTemp(f.dir, freshPat)
	if err != nil {
		return fmt.Errorf("make the cluster's folder: %w", err)
	}
	if err := f.owner.give(fresh); err != nil {
		return err
	}
	args := []string{
		"--username=" + superuser, "--auth=trust", "--no-instructions",
		// Bytes sort the same on every machine, whatever locales it has.
		"--encoding=UTF8", "--no-locale",
	}
	if noSync {
		args = append(args, "--no-sync")
	}
	cmd, done, err := f.command(filepath.Join(programs.Bin, "initdb"), fresh, args, syscall.SIGKILL)
	if err != nil {
		return err
	}
	defer done()
	if out, err := runWhile(ctx, cmd); err != nil {
		return errors.Join(fmt.Errorf("initdb: %w: %s", err, lastLine(out)), os.RemoveAll(fresh))
	}
	if err := os.Rename(fresh, f.data()); err != nil {
		return fmt.Errorf("put the new cluster in its place: %w", err)
	}
	if noSync {
		return nil
	}
	return syncDir(f.dir)
}

// command prepares a program of PostgreSQL that works on the cluster in data,
// as the owner. done releases what it needs, after the program has started.
func (f *folder) command(program, data string, args []string, onParentDeath syscall.Signal) (_ *exec.Cmd, done func(), _ error) {
	cmd := exec.Command(program)
	cmd.Dir = "/"
	cmd.SysProcAttr = f.owner.attributes(onParentDeath)
	// None of the caller's PG… variables, and messages that we can read.
	cmd.Env = []string{"PATH=" + filepath.Dir(program) + ":" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	done = func() {}
	if f.owner.other {
		dir, err := os.Open(data)
		if err != nil {
			return nil, nil, fmt.Errorf("open the cluster's folder: %w", err)
		}
		done = func() { dir.Close() }
		cmd.ExtraFiles = []*os.File{dir}
		data = inherited
	}
	cmd.Args = append([]string{program, "-D", data}, args...)
	return cmd, done, nil
}

// runWhile runs cmd to its end, or kills it when ctx ends.
func runWhile(ctx context.Context, cmd *exec.Cmd) ([]byte, error) {
	// The child dies with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended by itself
	})
	defer stop()
	err := cmd.Wait()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return []byte(out.String()), err
}

// lastLine is where a program says what went wrong.
func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}

// syncDir makes the names in a folder durable.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync the server's folder: %w", err)
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("sync the server's folder: %w", err)
	}
	return nil
}

// Clone copies the cluster of the server's folder from, which nobody may be
// serving, into the folder to, which must have none. It is not durable: for
// data that nobody will miss.
func Clone(from, to string) (err error) {
	source, err := hold(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.release()) }()
	target, err := hold(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.release()) }()
	if err := os.CopyFS(target.data(), os.DirFS(source.data())); err != nil {
		return fmt.Errorf("copy the cluster: %w", err)
	}
	err = filepath.WalkDir(target.data(), func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return source.owner.give(path)
	})
	if err != nil {
		return fmt.Errorf("copy the cluster: %w", err)
	}
	// PostgreSQL refuses a cluster that others can look into.
	if err := os.Chmod(target.data(), 0o700); err != nil { //nolint:gosec // a folder
		return fmt.Errorf("copy the cluster: %w", err)
	}
	return nil
}
