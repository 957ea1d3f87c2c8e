package gateway_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	fold "github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/migrations/pgtest"
	"github.com/holdfast-io/holdfast/services/gateway"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/broker/brokertest"
	"github.com/holdfast-io/holdfast/services/internal/command"
)

func TestHealthReadinessAndMetrics(t *testing.T) {
	t.Parallel()
	w := start(t, withPostgres)
	if got := w.call("", "GET", "/healthz", nil).want(200); string(got.body) != "ok\n" {
		t.Errorf("healthz: %q", got.body)
	}
	ready := decode[api.Readiness](w.call("", "GET", "/readyz", nil).want(503)) // there is no runner
	for _, p := range ready.Parts {
		if p.Ready == (p.Name == "runner") {
			t.Errorf("part %+v", p)
		}
	}
	server, err := command.Serve(w.nats.NC(broker.UserRunner), events.ServiceRunner, map[string]command.Handler{}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	brokertest.Eventually(t, 10*time.Second, "every part works", func() bool {
		return w.call("", "GET", "/readyz", nil).status == http.StatusOK
	})
	if err := server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.call("", "GET", "/metrics", nil).problem(api.CodeUnauthenticated)
	w.call("alice", "GET", "/metrics", nil).problem(api.CodeForbidden)
	got := w.call("olga", "GET", "/metrics", nil).want(200)
	for _, want := range []string{`holdfast_gateway_request_seconds_count{listener="public",method="GET",route="/readyz",status="200"}`, "holdfast_gateway_open_requests"} {
		if !strings.Contains(string(got.body), want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}

// A log that was made anew, or is of another epoch, is nothing to be ready with.
func TestAnotherLogIsNotReady(t *testing.T) {
	t.Parallel()
	w := start(t, withPostgres, func(_ *world, cfg *gateway.Config) { cfg.Epoch = "another" })
	brokertest.Eventually(t, 10*time.Second, "the log is refused", func() bool {
		ready := decode[api.Readiness](w.call("", "GET", "/readyz", nil).want(503))
		return slices.ContainsFunc(ready.Parts, func(p api.Part) bool { return p.Name == "log" && !p.Ready && p.Detail != "" })
	})
}

func TestConsole(t *testing.T) {
	t.Parallel()
	w := start(t)
	page := w.call("", "GET", "/", nil).want(200)
	if page.header.Get("Content-Type") != "text/html; charset=utf-8" || !strings.Contains(string(page.body), "Holdfast") {
		t.Errorf("page: %v %s", page.header, page.body)
	}
	for name, want := range map[string]string{
		"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache",
	} {
		if got := page.header.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	csp := page.header.Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"} {
		if !strings.Contains(csp, want) || strings.Contains(csp, "unsafe") {
			t.Errorf("CSP: %s", csp)
		}
	}
	module := w.call("", "GET", "/app.js", nil).want(200)
	if module.header.Get("Content-Type") != "text/javascript; charset=utf-8" {
		t.Errorf("module: %v", module.header)
	}
	if got := w.call("", "GET", "/app.js", nil, "If-None-Match: "+module.header.Get("ETag")).want(http.StatusNotModified); len(got.body) != 0 {
		t.Errorf("not modified, with a body: %q", got.body)
	}
	if got := w.call("", "HEAD", "/", nil).want(200); len(got.body) != 0 {
		t.Error("HEAD has a body")
	}
	for _, none := range []string{"/none.js", "/../go.mod", "/%2e%2e/go.mod", "/index.html/x"} {
		w.call("", "GET", none, nil).problem(api.CodeNotFound)
	}
}

// Secrets and contents don't get into logs, whatever is logged.
func TestLogsHoldNoSecrets(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var logged bytes.Buffer
	locked := writer(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return logged.Write(p)
	})
	w := start(t, func(_ *world, cfg *gateway.Config) {
		cfg.Logger = slog.New(slog.NewJSONHandler(locked, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	id, run, token := w.working()
	code := w.gateway.NewCode("alice")
	cookie, set := cookieOf(w.call("", "POST", "/v1/login", api.Login{Code: code}, "Origin: "+w.url).want(200))
	w.call("", "GET", "/v1/me?token=query-secret", nil, cookie)
	w.call("alice", "POST", "/v1/sessions/"+id+"/messages", api.SendMessage{Content: "content-secret"}).want(202)
	w.ask(token, "POST", "/v1/agent/calls", shellCall(run, "c1", "args-secret", "park")).want(202)
	w.call("", "GET", "/path-secret", nil).problem(api.CodeNotFound)
	mu.Lock()
	defer mu.Unlock()
	if !strings.Contains(logged.String(), "/v1/sessions/{id}/messages") || !strings.Contains(logged.String(), "user:alice") {
		t.Errorf("nothing useful was logged: %s", logged.String())
	}
	for _, secret := range []string{tokenOf("alice"), token, code, set.Value, "query-secret", "content-secret", "args-secret", "path-secret"} {
		if strings.Contains(logged.String(), secret) {
			t.Errorf("%s is in the log", secret)
		}
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// Stopping ends waits at once, lets what is under way finish, and leaves nothing.
func TestStop(t *testing.T) {
	pgtest.New(t) // the tests' own Postgres outlives them
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	t.Run("in the middle of waits", stopInTheMiddle) // a test of its own: its NATS ends with it
}

func stopInTheMiddle(t *testing.T) {
	w := start(t)
	id, _, token := w.working()
	waiting := make(chan answer, 1)
	go func() { waiting <- w.call("alice", "POST", "/v1/sessions/"+id+"/suspend", nil) }() // 409, and done before the stop
	(<-waiting).problem(api.CodeSessionInUse)
	go func() { waiting <- w.ask(token, "GET", "/v1/agent/input?wait=60", nil) }()
	go func() {
		waiting <- w.call("alice", "POST", "/v1/sessions", map[string]any{"runtime": "coder"}, "Prefer: wait=60", "Idempotency-Key: stop")
	}()
	w.until(events.HashID(events.PrefixSession, "default", "alice", "stop"), func(s *fold.State) bool { return s.Exists() })
	begin := time.Now()
	w.stopGateway()
	for range 2 {
		if got := <-waiting; got.status/100 != 2 {
			t.Errorf("a wait ended with %d %s", got.status, got.body)
		}
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("stopping took %s", took)
	}
	if _, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://")); err == nil {
		t.Error("it still listens")
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	w := start(t)
	for name, spoil := range map[string]func(*gateway.Config){
		"no connection": func(c *gateway.Config) { c.NC = nil },
		"no log":        func(c *gateway.Config) { c.Log = nil },
		"no epoch":      func(c *gateway.Config) { c.Epoch = "" },
		"no output":     func(c *gateway.Config) { c.Output = nil },
		"no views":      func(c *gateway.Config) { c.Views = nil },
		"no tokens":     func(c *gateway.Config) { c.TokensFile = "" },
		"missing file":  func(c *gateway.Config) { c.TokensFile = filepath.Join(t.TempDir(), "none.yaml") },
		"no key":        func(c *gateway.Config) { c.SandboxKey = ed25519.PublicKey("short") },
		"no listener":   func(c *gateway.Config) { c.Listener = nil },
		"no agents":     func(c *gateway.Config) { c.AgentListener = nil },
		"no logger":     func(c *gateway.Config) { c.Logger = nil },
	} {
		cfg := w.cfg
		cfg.Metrics = nil
		spoil(&cfg)
		if err := gateway.Run(t.Context(), cfg); err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
