package main

import (
	"os/exec"
	"strings"
	"testing"
)

// allowedImports is all that may be in a sandbox besides the standard library:
// whatever is linked in is within the agent's reach.
var allowedImports = []string{
	"github.com/holdfast-io/holdfast/services/sandboxd",
	"github.com/holdfast-io/holdfast/services/internal/sandboxapi",
	"github.com/holdfast-io/holdfast/services/internal/sandboxtoken", // verifies who calls
	"github.com/holdfast-io/holdfast/services/internal/bind",         // verifies whose it is
	"github.com/holdfast-io/holdfast/services/internal/connlimit",
	"github.com/golang-jwt/jwt/v5",
	"github.com/holdfast-io/holdfast/services/internal/sandboxprobe",
	"golang.org/x/sys/",
	"golang.org/x/net/bpf", // seccomp filters
	"golang.org/x/time/rate",
	"github.com/landlock-lsm/go-landlock/",
	"kernel.org/pub/linux/libs/security/libcap/psx", // landlock on all threads
	"github.com/elastic/go-seccomp-bpf",
}

func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	imports := strings.Fields(string(out))
	if len(imports) < 5 {
		t.Fatalf("go list names too few packages to be right: %v", imports)
	}
	for _, path := range imports {
		if !allowed(path) {
			t.Errorf("sandboxd links in %s, which isn't allowed in a sandbox", path)
		}
	}
}

func TestForbiddenImportsAreSeen(t *testing.T) {
	for _, path := range []string{
		"github.com/nats-io/nats.go", "k8s.io/client-go/rest", "cel.dev/cel-go/cel", "github.com/jackc/pgx/v5",
		"github.com/holdfast-io/holdfast/services/sandboxd-other", "github.com/holdfast-io/holdfast/events",
	} {
		if allowed(path) {
			t.Errorf("%s counts as allowed", path)
		}
	}
}

func allowed(path string) bool {
	for _, a := range allowedImports {
		dir := strings.TrimSuffix(a, "/")
		if path == dir || strings.HasPrefix(path, dir+"/") {
			return true
		}
	}
	return false
}
