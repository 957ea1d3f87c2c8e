package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// place is a data directory in which dev is run.
type place struct {
	t    *testing.T
	dir  string
	dev  *harness.Child
	addr string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	dir, err := os.MkdirTemp("", "hf-") // short: sockets are in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return &place{t: t, dir: dir}
}

// in is the same place for a subtest.
func (p *place) in(t *testing.T) *place {
	c := *p
	c.t = t
	return &c
}

var apiLine = regexp.MustCompile(`(?m)^ +api +http://(\S+)$`)

// begin starts dev and waits until it says that it is ready.
func (p *place) begin(flags ...string) {
	p.t.Helper()
	p.dev = harness.Spawn(p.t, nil, append([]string{
		"dev", "--data-dir", p.dir, "--addr", "127.0.0.1:0", "--isolation", harness.Isolation(),
	}, flags...)...)
	p.dev.Await("demo") // the next command to type is the last thing that it says
	found := apiLine.FindStringSubmatch(p.dev.Said())
	if found == nil {
		p.t.Fatalf("dev doesn't say where the API is: %s", p.dev.Said())
	}
	p.addr = found[1]
}

// nothingRuns wants no process to be left that dev started.
func (p *place) nothingRuns() {
	p.t.Helper()
	harness.Eventually(p.t, "nothing that dev started runs", func() bool { return len(harness.ProcessesNaming(p.dir)) == 0 })
}

// run runs a command to its end, wants an exit code, and gives what it said: its
// standard output where it went well, else all.
func (p *place) run(code int, args ...string) string {
	p.t.Helper()
	return p.runWith(nil, code, append(args, "--data-dir", p.dir)...)
}

func (p *place) runWith(env []string, code int, args ...string) string {
	p.t.Helper()
	c := harness.Spawn(p.t, env, args...)
	if got := c.Wait(); got != code {
		p.t.Fatalf("%s: exit %d, want %d: %s", strings.Join(args, " "), got, code, c.Said())
	}
	if code != 0 {
		return c.Said()
	}
	return c.Stdout()
}

// parse runs a command with -o json and reads what it prints.
func parse[T any](p *place, args ...string) T {
	p.t.Helper()
	var v T
	said := p.run(0, append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(said), &v); err != nil {
		p.t.Fatalf("%s -o json: %v: %s", strings.Join(args, " "), err, said)
	}
	return v
}

// lines runs a command with -o json that prints a value on each line.
func lines[T any](p *place, args ...string) []T {
	p.t.Helper()
	var all []T
	for line := range strings.Lines(p.run(0, append(args, "-o", "json")...)) {
		var v T
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			p.t.Fatalf("%s -o json: %v: %s", strings.Join(args, " "), err, line)
		}
		all = append(all, v)
	}
	return all
}

// file writes a file to apply.
func (p *place) file(name, content string) string {
	p.t.Helper()
	path := filepath.Join(p.t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return path
}

// says wants each part to be in what was said.
func says(t *testing.T, said string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(said, part) {
			t.Errorf("%q isn't in: %s", part, said)
		}
	}
}
