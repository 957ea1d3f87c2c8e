package agents_test

import (
	"path/filepath"
	"testing"

	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// TestExamples runs every example through the suite, on one program.
func TestExamples(t *testing.T) {
	h := harness.Start(t, harness.SharedPostgres(t))
	notes(t, h)
	var runtimes []string
	for name, folder := range map[string]func(*testing.T) string{
		"python": inPlace("python"),
		"shell":  inPlace("shell"),
	} {
		t.Run(name, func(t *testing.T) {
			h := h.In(t)
			runtime := apply(t, h, filepath.Join(examples, name, "runtime.yaml"), folder(t))
			runtimes = append(runtimes, runtime)
			suite(t, h, runtime)
		})
	}
	t.Run("parked through a restart", func(t *testing.T) { parkedThroughRestart(t, h, runtimes) })
}

// inPlace is the folder of an example that needs no building.
func inPlace(name string) func(*testing.T) string {
	return func(*testing.T) string { return filepath.Join(examples, name) }
}
