package agents_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// examples is where they are.
const examples = "../../../examples"

// apply applies a runtime of a file, with the agent in a folder.
func apply(t *testing.T, h *harness.Holdfast, file, folder string) string {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if folder, err = filepath.Abs(folder); err != nil {
		t.Fatal(err)
	}
	var spec api.RuntimeSpec
	if err := yaml.UnmarshalStrict(raw, &spec); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if spec.Sandbox.HostFolder == "" {
		t.Fatalf("%s names no folder", file)
	}
	spec.Sandbox.HostFolder = folder
	if _, err := h.Client("admin").ApplyRuntimeWithResponse(h.Context(), spec.Name, nil, spec); err != nil {
		t.Fatalf("apply %s: %v", file, err)
	}
	return spec.Name
}

// notes applies the policy that the examples share.
func notes(t *testing.T, h *harness.Holdfast) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(examples, "policy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var spec api.PolicySpec
	if err := yaml.UnmarshalStrict(raw, &spec); err != nil {
		t.Fatal(err)
	}
	h.Policy(spec)
}

// says sends a message and wants the run that answers it to finish with all that.
func says(t *testing.T, h *harness.Holdfast, id, message string, want ...string) {
	t.Helper()
	run := h.Send("alice", id, message)
	finishes(t, h, id, run, want...)
}

// finishes waits for the end of a run, which has to be a good one, and looks for what
// was said in it.
func finishes(t *testing.T, h *harness.Holdfast, id, run string, want ...string) {
	t.Helper()
	var is api.Run
	harness.Eventually(t, "run "+run+" is over", func() bool {
		is = runOf(h, id, run)
		return is.State != api.RunStateQueued && is.State != api.RunStateStarted
	})
	if is.State != api.RunStateFinished {
		t.Fatalf("the run is %s: %+v", is.State, is)
	}
	said := harness.Said(h.Facts(id), run)
	for _, w := range want {
		if !strings.Contains(said, w) {
			t.Errorf("it said %q, not %q", said, w)
		}
	}
}

func runOf(h *harness.Holdfast, id, run string) api.Run {
	for _, r := range h.Runs(id) {
		if r.ID == run {
			return r
		}
	}
	return api.Run{}
}
