package rules_test

import (
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/events/policy"
	"github.com/holdfast-io/holdfast/services/policy/internal/rules"
)

// The policy that a newcomer to a cluster applies first compiles, its own tests hold, and it
// allows the command that the guide (docs/kubernetes.md) has an agent run.
func TestExampleForACluster(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "examples", "kubernetes", "policy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var spec policy.Spec
	if err := yaml.UnmarshalStrict(raw, &spec); err != nil {
		t.Fatal(err)
	}
	if spec.Name != "default" {
		t.Errorf("it is called %q: runtimes that name no policy don't find it", spec.Name)
	}
	v, err := compile(t, spec).Evaluate(rules.Call{Tool: "shell", Args: []byte(`{"command":"id"}`)})
	if err != nil || v.Effect != policy.Allow {
		t.Errorf("id: %+v (%v), want it allowed", v, err)
	}
}
