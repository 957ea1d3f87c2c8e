package agents_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// TestExamples runs every example through the suite, on one program.
func TestExamples(t *testing.T) {
	h := harness.Start(t, harness.SharedPostgres(t))
	notes(t, h)
	all := t // whose folders stay until the end
	var runtimes []string
	for name, folder := range map[string]func(t, all *testing.T) string{
		"python":    inPlace("python"),
		"shell":     inPlace("shell"),
		"go":        built,
		"langgraph": installed,
	} {
		t.Run(name, func(t *testing.T) {
			h := h.In(t)
			runtime := apply(t, h, filepath.Join(examples, name, "runtime.yaml"), folder(t, all))
			runtimes = append(runtimes, runtime)
			suite(t, h, runtime)
		})
	}
	t.Run("parked through a restart", func(t *testing.T) { parkedThroughRestart(t, h, runtimes) })
}

// inPlace is the folder of an example that needs no building.
func inPlace(name string) func(t, all *testing.T) string {
	return func(_, _ *testing.T) string { return filepath.Join(examples, name) }
}

// built is a folder with the example in Go, built as its runtime.yaml says.
func built(t, all *testing.T) string {
	folder := all.TempDir()
	readable(t, folder)
	cmd := exec.Command("go", "build", "-o", filepath.Join(folder, "agent"), ".")
	cmd.Dir = filepath.Join(examples, "go")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return folder
}

// readable lets others read a folder, as which sandboxes run where the tests are root.
func readable(t *testing.T, folder string) {
	t.Helper()
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
}
