package clusterfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const good = `
namespace: holdfast-system
instance: holdfast
agentsURL: http://holdfast-agents.holdfast-system:7071
apiURL: http://holdfast.holdfast-system:7070
image: holdfast:local
tenants: {default: holdfast-default}
runtimeClasses: {gvisor: gvisor}
verified: [default]
`

func read(t *testing.T, text string) (File, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Read(path)
}

func TestRead(t *testing.T) {
	t.Parallel()
	f, err := read(t, good)
	if err != nil {
		t.Fatal(err)
	}
	if f.Tenants["default"] != "holdfast-default" || !f.IsVerified("") || f.IsVerified("gvisor") {
		t.Errorf("%+v", f)
	}
}

func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ old, new, says string }{
		{"namespace: holdfast-system", "namespace: Holdfast", "namespace"},
		{"instance: holdfast", "instance: ''", "instance"},
		{"http://holdfast-agents.holdfast-system:7071", "holdfast-agents", "agentsURL"},
		{"http://holdfast.holdfast-system:7070", "https://holdfast", "apiURL"},
		{"image: holdfast:local", "image: ''", "image"},
		{"{default: holdfast-default}", "{}", "tenants"},
		{"{default: holdfast-default}", "{Default: holdfast-default}", "tenant's name"},
		{"{default: holdfast-default}", "{a: x, b: x}", "share"},
		{"{default: holdfast-default}", "{a: holdfast-system}", "Holdfast itself"},
		{"{default: holdfast-default}", "{a: A_B}", "no name of a namespace"},
		{"verified:", "volumeSize: much\nverified:", "volumeSize"},
		{"verified:", "verifyed:", "verifyed"},
	} {
		if _, err := read(t, strings.Replace(good, c.old, c.new, 1)); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; it should speak of %s", c.new, err, c.says)
		}
	}
}
