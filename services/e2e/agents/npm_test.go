package agents_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

const (
	// envRequireNPM makes a missing node, npm or registry a failure.
	envRequireNPM = "HOLDFAST_REQUIRE_NPM"
	// npmPatience bounds an install: some 70 MB.
	npmPatience = 4 * time.Minute
)

// installed is a folder with the example made with LangGraph and its packages, as its
// runtime.yaml says. It lies in the user's cache folder under the hash of what it is
// made of, so that it is installed once.
func installed(t, _ *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(examples, "langgraph")
	folder := filepath.Join(cache, "holdfast", "examples", "langgraph-"+fingerprint(t, source))
	if _, err := os.Stat(folder); err == nil {
		return folder
	}
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			lacking(t, "there is no %s in PATH", program)
		}
	}
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		t.Fatal(err)
	}
	// Another test may install at the same time: it is made beside, and moved.
	beside, err := os.MkdirTemp(filepath.Dir(folder), "new-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(beside) }) // moved away where all went well
	readable(t, beside)
	if err := os.CopyFS(beside, os.DirFS(source)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), npmPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts")
	cmd.Dir = beside
	if out, err := cmd.CombinedOutput(); err != nil {
		lacking(t, "npm ci: %v\n%s", err, out)
	}
	if err := os.Rename(beside, folder); err != nil && !exists(folder) {
		t.Fatal(err)
	}
	return folder
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// fingerprint is a hash of the files of a folder.
func fingerprint(t *testing.T, folder string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*.*"))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.New()
	for _, path := range paths { // in order, and without what is installed
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		sum.Write([]byte(filepath.Base(path) + "\x00"))
		sum.Write(raw)
	}
	return hex.EncodeToString(sum.Sum(nil))[:16]
}

// lacking skips the test, or fails it where it has to run.
func lacking(t *testing.T, why string, args ...any) {
	t.Helper()
	if os.Getenv(envRequireNPM) == "1" {
		t.Fatalf("the example with LangGraph can't be installed, and "+envRequireNPM+" asks for it: "+why, args...)
	}
	t.Skipf("SKIPPED: THE EXAMPLE WITH LANGGRAPH IS NOT TESTED: "+why, args...)
}
