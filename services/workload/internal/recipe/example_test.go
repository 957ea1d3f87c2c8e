package recipe_test

import (
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/events/runtime"
)

// The runtime that a newcomer applies first (docs/kubernetes.md) is taken in a cluster as it
// stands, field by field.
func TestExampleForACluster(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "examples", "kubernetes", "runtime.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var spec runtime.Spec
	if err := yaml.UnmarshalStrict(raw, &spec); err != nil {
		t.Fatal(err)
	}
	checked, wrong := cluster().Checked(spec)
	if len(wrong) > 0 {
		t.Fatalf("wrong are %+v", wrong)
	}
	if checked.Name != "shell" || checked.Policy != "default" || checked.OnIdle != "suspend" {
		t.Errorf("becomes %+v, which isn't what the guide says of it", checked)
	}
}
