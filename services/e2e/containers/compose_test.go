//go:build containers

package containers_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// What `make up` starts works, and is still there after `make down` and another up.
func TestCompose(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 4*harness.Patience)
	defer cancel()
	needDocker(ctx, t)
	addr, err := freeAddr(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "HOLDFAST_COMPOSE_DIR="+t.TempDir(), "HOLDFAST_PORT="+port, "HOLDFAST_ISOLATION="+harness.Isolation(),
		"COMPOSE_PROJECT_NAME=holdfast-test-"+port, "COMPOSE_PROGRESS=plain")
	compose := func(ctx context.Context, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(ctx, filepath.Join(root, "scripts/compose.sh"), args...)
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("compose %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
		defer cancel()
		if t.Failed() {
			t.Logf("the containers said: %s", compose(ctx, "logs", "--tail", "30"))
		}
		compose(ctx, "down", "-v", "--timeout", "5")
	})
	client := []string{"exec", "-T", "gateway", "holdfast", "--url", "http://127.0.0.1:7070", "--data-dir", "/var/lib/holdfast/people"}

	if said := compose(ctx, "up"); !strings.Contains(said, "Holdfast is ready at http://127.0.0.1:"+port) {
		t.Fatalf("up doesn't say where: %s", said)
	}
	said := compose(ctx, append(client, "demo")...)
	for _, part := range []string{"isolation " + harness.Isolation(), "a person is asked", "HTTP 201", "written by an agent", "run.finished"} {
		if !strings.Contains(said, part) {
			t.Fatalf("the demo doesn't show %q: %s", part, said)
		}
	}
	before := compose(ctx, append(client, "session", "list", "-o", "json")...)
	compose(ctx, "down", "--timeout", "5")
	compose(ctx, "up")
	if after := compose(ctx, append(client, "session", "list", "-o", "json")...); !strings.Contains(after, firstID(t, before)) {
		t.Errorf("the session of before is gone: %s", after)
	}
}

// firstID finds a session's id in a listing.
func firstID(t *testing.T, listing string) string {
	t.Helper()
	_, rest, ok := strings.Cut(listing, `"s-`)
	id, _, closed := strings.Cut(rest, `"`)
	if !ok || !closed {
		t.Fatalf("no session in %s", listing)
	}
	return "s-" + id
}
