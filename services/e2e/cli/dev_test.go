package cli_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
	"github.com/holdfast-io/holdfast/projections"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// From the first start over what stands in a second one's way to a start after
// kill -9, in one place.
func TestDev(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.begin("--origin", site)
	says(t, p.dev.Said(),
		"starts on "+p.dir, "✓ NATS JetStream", "✓ Postgres", "✓ services", "ready in ",
		"http://"+p.addr+"/#code=", harness.Isolation(), "shell", filepath.Join(p.dir, "tokens.yaml"), "demo --data-dir "+p.dir)

	t.Run("tokens", func(t *testing.T) { tokens(t, p.in(t)) })
	t.Run("a browser behind a proxy", func(t *testing.T) { signIn(t, p.in(t)) })
	t.Run("a second dev", func(t *testing.T) {
		said := p.in(t).run(1, "dev", "--addr", "127.0.0.1:0")
		says(t, said, "process "+strconv.Itoa(p.dev.PID()), p.dir, "--data-dir")
	})
	t.Run("a taken port", func(t *testing.T) {
		other := newPlace(t)
		says(t, other.run(1, "dev", "--addr", p.addr), p.addr+" is in use", "--addr")
	})
	t.Run("no Postgres", func(t *testing.T) {
		other := newPlace(t)
		said := other.runWith([]string{"PATH=/nowhere", "HOLDFAST_POSTGRES_BIN=/nowhere"}, 1, "dev", "--addr", "127.0.0.1:0", "--data-dir", other.dir)
		says(t, said, "HOLDFAST_POSTGRES_URL")
	})
	t.Run("the views of a dev that runs", func(t *testing.T) {
		says(t, p.in(t).run(1, "projections", "rebuild"), "stop it")
	})

	created := parse[api.Session](p, "session", "create", "shell", "-m", "echo kept", "--wait", "30")
	harness.Eventually(t, "its run is over", func() bool { return parse[api.Session](p, "session", "show", created.ID).Run == "" })
	if code := p.dev.Interrupt(); code != 0 {
		t.Fatalf("Ctrl-C: exit %d: %s", code, p.dev.Said())
	}
	says(t, p.dev.Said(), "stopped; everything accepted is kept")
	if left := harness.ProcessesNaming(p.dir); len(left) > 0 {
		t.Errorf("Ctrl-C leaves %q", left)
	}
	says(t, p.run(4, "session", "list"), "holdfast dev", "HOLDFAST_URL")

	t.Run("the views of a dev that is stopped", func(t *testing.T) { rebuild(t, p.in(t)) })

	p.begin()
	if again := parse[api.Session](p, "session", "show", created.ID); again.ID != created.ID || again.CreatedAt != created.CreatedAt {
		t.Errorf("after the restart it is %+v", again)
	}
	killed := p.dev
	killed.Kill()
	p.nothingRuns()
	p.begin()
	if again := parse[api.Session](p, "session", "show", created.ID); again.ID != created.ID {
		t.Errorf("after kill -9 it is %+v", again)
	}
	says(t, p.run(0, "session", "send", created.ID, "-w", "echo", "on"), "on\n")
	token := p.run(0, "token", "alice")
	p.dev.Interrupt()

	p.begin("--reset")
	if list := parse[api.SessionList](p, "session", "list"); len(list.Items) != 0 {
		t.Errorf("after a reset there are %d sessions", len(list.Items))
	}
	if p.run(0, "token", "alice") != token {
		t.Error("a reset takes people's tokens")
	}
	if err := syscall.Kill(p.dev.PID(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.dev.Wait(); code != 0 {
		t.Errorf("SIGTERM: exit %d: %s", code, p.dev.Said())
	}
	p.nothingRuns()
}

// site is what a dev is told that browsers call it.
const site = "https://holdfast.example.com"

// A dev takes browsers from where its flag says, and from nowhere else.
func signIn(t *testing.T, p *place) {
	client, err := apiclient.New(apiclient.Config{URL: "http://" + p.addr})
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(p.run(0, "token", "alice"))
	from := func(origin string) (*apiclient.LoginResponse, error) {
		return client.LoginWithResponse(harness.Context(t), api.Login{Token: token}, func(_ context.Context, req *http.Request) error {
			req.Header.Set("Origin", origin)
			return nil
		})
	}
	if r, err := from(site); err != nil || !strings.Contains(r.HTTPResponse.Header.Get("Set-Cookie"), "; Secure") {
		t.Errorf("from where it was told: %v, %v", r, err)
	}
	_, err = from("https://elsewhere.example.com")
	if refused, ok := errors.AsType[*api.Error](err); !ok || refused.Problem.Code != api.CodeOriginRefused {
		t.Errorf("from elsewhere: %v", err)
	}
}

func tokens(t *testing.T, p *place) {
	info, err := os.Stat(filepath.Join(p.dir, "tokens.yaml"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("tokens.yaml: %v, %v", info, err)
	}
	raw, err := os.ReadFile(filepath.Join(p.dir, "tokens.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, name := range []string{"admin", "alice", "bob"} {
		token := strings.TrimSpace(p.run(0, "token", name))
		if token == "" || seen[token] || !strings.Contains(string(raw), token) {
			t.Errorf("the token of %s is %q", name, token)
		}
		seen[token] = true
	}
	says(t, p.run(2, "token", "mallory"), "mallory", "alice")
}

func rebuild(t *testing.T, p *place) {
	report := parse[projections.Report](p, "projections", "rebuild", "--compare")
	if !report.Compared || len(report.Differences) > 0 || report.Swapped {
		t.Errorf("compared: %+v", report)
	}
	says(t, p.run(0, "projections", "rebuild"), "sessions", "the live views were the same", "what was built is live now")
	if left := harness.ProcessesNaming(p.dir); len(left) > 0 {
		t.Errorf("a rebuild leaves %q", left)
	}
}

// Nothing is bound, made or left by a start that can't be.
func TestDevCannotListen(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := newPlace(t)
	says(t, p.run(1, "dev", "--addr", l.Addr().String()), "is in use")
	says(t, p.run(1, "dev", "--addr", "256.0.0.1:80"), "--addr")
	p.nothingRuns()
	p.begin()
	p.dev.Interrupt()
}
