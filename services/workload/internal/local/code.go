package local

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// code is an agent's program as a sandbox runs it, with what that takes of the host
// besides the system's directories.
type code struct {
	argv, env []string
	mounts    []sandboxapi.JailMount
}

// systemPrograms is where every sandbox finds programs, and systemPlaces what every
// sandbox has of the host.
var (
	systemPrograms = []string{"/usr/local/bin", "/usr/bin", "/bin"}
	systemPlaces   = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}
)

// code finds the program of a runtime and its folder. It fails with driver.ErrInvalid
// where a sandbox couldn't see them.
func (d *Driver) code(spec driver.RuntimeSpec) (code, error) {
	c := code{argv: slices.Clone(spec.Argv), env: slices.Clone(spec.Env)}
	if len(c.argv) == 0 {
		return c, nil
	}
	if d.plain() {
		if c.argv[0] == sandboxapi.JailBinary {
			c.argv[0] = d.binary
		}
		if spec.Folder != "" {
			c.move(sandboxapi.JailAgent, spec.Folder)
		}
		return c, nil
	}
	if spec.Folder == "" {
		return c, nil
	}
	folder, err := d.checkFolder(spec.Folder)
	if err != nil {
		return c, fmt.Errorf("%w: runtime %s: folder: %w", driver.ErrInvalid, spec.Name, err)
	}
	c.mounts = []sandboxapi.JailMount{{Source: folder, Target: sandboxapi.JailAgent, ReadOnly: true}}
	if err := c.findProgram(); err != nil {
		return c, fmt.Errorf("%w: runtime %s: program: %w", driver.ErrInvalid, spec.Name, err)
	}
	return c, nil
}

// move makes what names a place in the sandbox name its place on the host, for
// agents that aren't moved to a file system of their own.
func (c *code) move(from, to string) {
	inside := func(path string) bool { return path == from || strings.HasPrefix(path, from+"/") }
	for i, arg := range c.argv {
		if inside(arg) {
			c.argv[i] = to + strings.TrimPrefix(arg, from)
		}
	}
	for i, kv := range c.env {
		if name, value, _ := strings.Cut(kv, "="); inside(value) {
			c.env[i] = name + "=" + to + strings.TrimPrefix(value, from)
		}
	}
}

// checkFolder refuses what sandboxes couldn't read, and what they must not: what the
// system has for itself, and Holdfast's data, where the keys, the tokens and all
// workspaces are. It gives where the folder really is, for that is what was checked: a
// link may lead elsewhere by the time of the mount.
func (d *Driver) checkFolder(path string) (resolved string, err error) {
	if err := checkPlace(path); err != nil {
		return "", err
	}
	if resolved, err = filepath.EvalSymlinks(path); err != nil {
		return "", err
	}
	if err := checkPlace(resolved); err != nil {
		return "", fmt.Errorf("%s leads to %s: %w", path, resolved, err)
	}
	info, err := os.Stat(resolved)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return "", fmt.Errorf("%s is no folder", path)
	}
	switch data, err := filepath.EvalSymlinks(d.cfg.DataDir); {
	case err != nil:
		return "", err
	case underAny(data, resolved):
		return "", fmt.Errorf("%s has Holdfast's data in it", path)
	case underAny(resolved, data):
		return "", fmt.Errorf("%s is in Holdfast's data", path)
	}
	const othersRead = 0o005
	if os.Getuid() == 0 && info.Mode().Perm()&othersRead != othersRead {
		return "", fmt.Errorf("sandboxes run as users of their own, and others can't read %s: chmod -R o+rX %s", path, path)
	}
	return resolved, nil
}

// checkPlace refuses the system's own places, but for /usr, which sandboxes see anyway.
func checkPlace(path string) error {
	if err := driver.ValidatePlace(path); err != nil && !underAny(path, "/usr") {
		return err
	}
	return nil
}

// findProgram looks a bare name up: in the system's directories, which every sandbox
// has, then in this process's PATH. What is found there, as an interpreter in
// somebody's home, is mounted with what belongs to it, and nothing else of the place.
func (c *code) findProgram() error {
	name := c.argv[0]
	if strings.Contains(name, "/") {
		return nil
	}
	for _, dir := range systemPrograms {
		path, err := exec.LookPath(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		// What links out of the system's directories leads nowhere in a sandbox.
		if resolved, err := filepath.EvalSymlinks(path); err == nil && underAny(resolved, systemPlaces...) {
			return nil
		}
	}
	found, err := exec.LookPath(name)
	if err != nil {
		return fmt.Errorf("%q is neither in %s nor in the PATH of this process", name, strings.Join(systemPrograms, ":"))
	}
	resolved, err := filepath.EvalSymlinks(found)
	if err != nil {
		return err
	}
	if resolved, err = filepath.Abs(resolved); err != nil {
		return err
	}
	mount := home(resolved)
	if err := driver.ValidatePlace(mount.Target); err != nil {
		return err
	}
	c.argv[0] = resolved
	c.mounts = append(c.mounts, mount)
	c.env = withPath(c.env, filepath.Dir(resolved))
	return nil
}

// home is what has to be mounted for a program: the prefix that it was installed
// under, as …/node-v22 for …/node-v22/bin/node. Where that is no folder of its own
// but somebody's home or the root, it is the file alone.
func home(program string) sandboxapi.JailMount {
	dir := filepath.Dir(program)
	prefix := filepath.Dir(dir)
	personal := filepath.Dir(prefix) == "/" || filepath.Dir(prefix) == "/home" || filepath.Base(prefix) == ".local"
	if own, err := os.UserHomeDir(); err == nil && underAny(own, prefix) {
		personal = true
	}
	if filepath.Base(dir) != "bin" || personal {
		return sandboxapi.JailMount{Source: program, Target: program, ReadOnly: true, File: true}
	}
	return sandboxapi.JailMount{Source: prefix, Target: prefix, ReadOnly: true}
}

// withPath puts a directory at the end of the environment's PATH.
func withPath(env []string, dir string) []string {
	for i, kv := range env {
		if strings.HasPrefix(kv, "PATH=") {
			env[i] += ":" + dir
			return env
		}
	}
	return append(env, "PATH="+strings.Join(systemPrograms, ":")+":"+dir)
}

// underAny says whether a path is one of dirs or below one.
func underAny(path string, dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool {
		return dir == "/" || path == dir || strings.HasPrefix(path, dir+"/")
	})
}
