package local

import (
	"os/exec"
	"path/filepath"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// findRunsc returns the absolute path of gVisor's runsc: the configured one, or the
// one in this process's PATH.
func findRunsc(configured string) (string, error) {
	name := configured
	if name == "" {
		name = "runsc"
	}
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", &driver.IsolationError{
			Missing: "gVisor's runsc can't be found: " + err.Error(),
			WayOut:  "install it (https://gvisor.dev/docs/user_guide/install), or run with --isolation=namespaces",
		}
	}
	return path, nil
}

// gvisorWayOut says what to do about a runsc that doesn't run in a sandbox.
func gvisorWayOut(runsc string) string {
	return "see whether " + runsc + " runs at all ('runsc do true'), or run with --isolation=namespaces"
}

// runscMount is where sandboxes find gVisor; none without one.
func runscMount(runsc string) []sandboxapi.JailMount {
	if runsc == "" {
		return nil
	}
	return []sandboxapi.JailMount{{Source: runsc, Target: sandboxapi.JailRunsc, ReadOnly: true, File: true}}
}
