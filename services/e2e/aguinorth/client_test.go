package aguinorth_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// envClient names the folder into which `make test-agui` has installed the client's
// packages.
const envClient = "HOLDFAST_AGUI_CLIENT"

// node prepares a folder with files of client/ beside the installed packages, and
// gives what runs a command there, against a world.
func (w *world) node(files map[string]string) func(args ...string) (string, error) {
	w.t.Helper()
	packages := os.Getenv(envClient)
	if packages == "" {
		w.t.Skip("SKIPPED: the official AG-UI client isn't installed here; make test-agui brings it from npm and runs this")
	}
	dir := w.t.TempDir()
	if err := os.Symlink(filepath.Join(packages, "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
		w.t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	tokens := map[string]string{}
	for _, who := range []string{"admin", "alice", "bob"} {
		tokens[who] = w.Token(who)
	}
	raw, err := json.Marshal(tokens)
	if err != nil {
		w.t.Fatal(err)
	}
	return func(args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, "node", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "HOLDFAST_URL="+w.URL, "HOLDFAST_TOKENS="+string(raw), "HOLDFAST_TOKEN="+tokens["admin"])
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
}

func file(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// The official client, through everything that it can do with us.
func TestOfficialClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	run := w.node(map[string]string{
		"harness.mjs": file(t, "client/harness.mjs"), "agui.test.mjs": file(t, "client/agui.test.mjs"),
	})
	out, err := run("--test", "--test-reporter", "spec", "agui.test.mjs")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const want = 8 // as many as agui.test.mjs has
	if !strings.Contains(out, "pass 8") || strings.Count(file(t, "client/agui.test.mjs"), "\ntest(") != want {
		t.Errorf("not all of the %d tests ran:\n%s", want, out)
	}
}

var snippet = regexp.MustCompile("(?s)```js\n(.*?)```")

// What the guide shows works as it stands.
func TestGuide(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	code := snippet.FindStringSubmatch(file(t, "../../../docs/ag-ui.md"))
	if code == nil {
		t.Fatal("the guide shows no program")
	}
	out, err := w.node(map[string]string{"guide.mjs": code[1]})("guide.mjs")
	if err != nil || !strings.Contains(out, "hello from AG-UI") || !strings.Contains(out, "exit 0") {
		t.Errorf("%v\n%s", err, out)
	}
}
