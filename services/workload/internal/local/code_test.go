package local

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// What is mounted for a program is the prefix that it was installed under, and never
// the folder of a person.
func TestHomeOfAProgram(t *testing.T) {
	t.Setenv("HOME", "/people/ann")
	bob := filepath.Join("/home", "bob", "bin", "agent")
	for program, want := range map[string]sandboxapi.JailMount{
		"/opt/node-v22/bin/node":                 {Source: "/opt/node-v22", Target: "/opt/node-v22", ReadOnly: true},
		"/people/ann/.nvm/versions/v22/bin/node": {Source: "/people/ann/.nvm/versions/v22", Target: "/people/ann/.nvm/versions/v22", ReadOnly: true},
		"/people/ann/bin/agent":                  {Source: "/people/ann/bin/agent", Target: "/people/ann/bin/agent", ReadOnly: true, File: true},
		bob:                                      {Source: bob, Target: bob, ReadOnly: true, File: true},
		"/people/ann/.local/bin/agent":           {Source: "/people/ann/.local/bin/agent", Target: "/people/ann/.local/bin/agent", ReadOnly: true, File: true},
		"/opt/bin/agent":                         {Source: "/opt/bin/agent", Target: "/opt/bin/agent", ReadOnly: true, File: true},
		"/srv/tools/agent":                       {Source: "/srv/tools/agent", Target: "/srv/tools/agent", ReadOnly: true, File: true},
	} {
		if got := home(program); got != want {
			t.Errorf("for %s %+v is mounted, want %+v", program, got, want)
		}
	}
}

// tool makes a program that does nothing.
func tool(t *testing.T, path string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// A bare name is a program of the system, or else of this process's PATH, with what
// belongs to it; a path is taken as it is.
func TestFindProgram(t *testing.T) {
	place, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	prefix := filepath.Join(place, "tool-v1")
	resolved := tool(t, filepath.Join(prefix, "bin", "holdfast-test-tool"))
	links := filepath.Join(place, "shims")
	if err := errors.Join(os.Mkdir(links, 0o700), os.Symlink(resolved, filepath.Join(links, "holdfast-test-tool"))); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", links+":/usr/bin:/bin")

	c := code{argv: []string{"holdfast-test-tool", "x"}, env: []string{"A=b"}}
	if err := c.findProgram(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.argv, []string{resolved, "x"}) || len(c.mounts) != 1 || c.mounts[0].Source != prefix {
		t.Errorf("found %q with %+v", c.argv, c.mounts)
	}
	if want := "PATH=/usr/local/bin:/usr/bin:/bin:" + filepath.Dir(resolved); !slices.Contains(c.env, want) {
		t.Errorf("its environment is %q", c.env)
	}

	for _, as := range []string{"sh", "/agent/run", "./run"} {
		c := code{argv: []string{as}}
		if err := c.findProgram(); err != nil || c.argv[0] != as || len(c.mounts) > 0 {
			t.Errorf("%s: %q with %+v, %v", as, c.argv, c.mounts, err)
		}
	}
	c = code{argv: []string{"holdfast-no-such-tool"}}
	if err := c.findProgram(); err == nil || !strings.Contains(err.Error(), "nor in the PATH") {
		t.Errorf("no such program: %v", err)
	}
}

// Without a file system of its own an agent's folder is where it is on the host.
func TestFolderWithoutIsolation(t *testing.T) {
	d := &Driver{cfg: Config{Isolation: sandboxapi.IsolationNone}, binary: "/data/sandboxd"}
	c, err := d.code(driver.RuntimeSpec{
		Folder: "/srv/a", Argv: []string{"python3", "/agent/agent.py", "/agents", "/agent"}, Env: []string{"LIB=/agent/lib", "X=/agent-x"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.argv, []string{"python3", "/srv/a/agent.py", "/agents", "/srv/a"}) ||
		!slices.Equal(c.env, []string{"LIB=/srv/a/lib", "X=/agent-x"}) || len(c.mounts) > 0 {
		t.Errorf("%+v", c)
	}
}

// A folder that sandboxes can't read, or must not, is refused.
func TestCheckFolder(t *testing.T) {
	place, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file := tool(t, filepath.Join(place, "file"))
	shut := filepath.Join(place, "shut")
	open := filepath.Join(place, "open")
	data := filepath.Join(open, "data")
	if err := errors.Join(os.Mkdir(shut, 0o700), os.Mkdir(open, 0o755), os.Mkdir(data, 0o755)); err != nil {
		t.Fatal(err)
	}
	beside := filepath.Join(place, "beside")
	if err := os.Mkdir(beside, 0o755); err != nil {
		t.Fatal(err)
	}
	workspace := filepath.Join(data, "workspace")
	toData, toSystem := filepath.Join(place, "to-data"), filepath.Join(place, "to-system")
	toBeside := filepath.Join(place, "to-beside")
	if err := errors.Join(os.Mkdir(workspace, 0o755), os.Symlink(workspace, toData),
		os.Symlink("/etc/ssl", toSystem), os.Symlink(beside, toBeside)); err != nil {
		t.Fatal(err)
	}
	d := &Driver{cfg: Config{DataDir: data}}
	for path, why := range map[string]string{
		beside:                          "",
		filepath.Join(place, "none"):    "no such file",
		file:                            "no folder",
		open:                            "Holdfast's data",
		data:                            "Holdfast's data",
		workspace:                       "is in Holdfast's data",
		toData:                          "is in Holdfast's data",
		toSystem:                        "belongs to the system",
		toBeside:                        "",
		"/etc/ssl":                      "belongs to the system",
		"/":                             "no clean absolute path",
		filepath.Join(open, "..") + "/": "no clean absolute path",
	} {
		if _, err := d.checkFolder(path); (why == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %q", path, err, why)
		}
	}
	if resolved, err := d.checkFolder(toBeside); err != nil || resolved != beside {
		t.Errorf("what a link leads to is mounted from %s, %v", resolved, err)
	}
	if _, err := d.checkFolder(shut); (err != nil) != (os.Getuid() == 0) {
		t.Errorf("a folder that others can't read: %v", err)
	}
}
