package agentsandbox

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/services/internal/kubetest"
)

// built is where the programs of Pods are.
var built string

func TestMain(m *testing.M) {
	if os.Getenv("KUBEBUILDER_ASSETS") != "" {
		dir, err := build()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		built = dir
	}
	goleak.VerifyTestMain(removing{kubetest.Main(m)},
		// klog flushes its files for ever, and a queue's metrics may be updated once more.
		goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
		// A queue of controller-runtime that is shut down while it hands something out waits for ever.
		goleak.IgnoreTopFunction("sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue.(*priorityqueue[...]).handleReadyItems.func1.1"))
}

// removing removes the programs after the tests.
type removing struct{ m interface{ Run() int } }

func (r removing) Run() int {
	code := r.m.Run()
	if err := os.RemoveAll(built); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return code
}

// build builds sandboxd and probeagent.
func build() (string, error) {
	dir, err := os.MkdirTemp("", "agentsandbox")
	if err != nil {
		return "", err
	}
	for name, pkg := range map[string]string{
		"sandboxd":   "github.com/holdfast-io/holdfast/services/sandboxd",
		"probeagent": "github.com/holdfast-io/holdfast/services/workload/internal/driver/drivertest/probeagent",
	} {
		if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, name), pkg).CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w: %s", name, err, out)
		}
	}
	return dir, nil
}
