package supervise

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
)

// words records what is said to the parent.
type words chan sandboxapi.Control

// Send implements sender.
func (w words) Send(m sandboxapi.Control) error { w <- m; return nil }

func grant(token string, life time.Duration) *sandboxapi.Grant {
	return &sandboxapi.Grant{Session: "s", Generation: 1, PodUID: "p", Token: token, ExpiresUnix: time.Now().Add(life).Unix()}
}

func TestTokenIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := make(words, 10)
		b := newBinding("p", said, slog.New(slog.DiscardHandler))
		defer b.Close()
		done := make(chan error)
		go func() { done <- b.Bind(t.Context(), "bind") }()
		if m := <-said; m.Type != sandboxapi.ControlRedeem {
			t.Fatalf("said %+v", m)
		}
		b.Granted(grant("one", 10*time.Minute))
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		renewal := func(after time.Duration) {
			t.Helper()
			begin := time.Now()
			m := <-said
			if took := time.Since(begin).Round(time.Second); m.Type != sandboxapi.ControlRenew || took != after {
				t.Fatalf("said %s after %s, want a renewal after %s", m.Type, took, after)
			}
		}
		renewal(7 * time.Minute)
		b.Refused("not now")
		renewal(renewRetry)
		if b.Grant().Token != "one" {
			t.Error("a refused renewal took the token")
		}
		stray := grant("stray", time.Hour)
		stray.Session = "another"
		b.Granted(stray)
		renewal(renewRetry)
		b.Granted(grant("two", time.Minute))
		if b.Grant().Token != "two" {
			t.Error("the renewed token isn't used")
		}
		renewal(42 * time.Second)
	})
}

// TestBindIsRedeemedOnce: askers that go, come again or come together change nothing.
func TestBindIsRedeemedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := make(words, 10)
		b := newBinding("p", said, slog.New(slog.DiscardHandler))
		defer b.Close()
		hasty, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.Bind(hasty, "bind"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("an asker that left: %v", err)
		}
		same, other := make(chan error, 1), make(chan error, 1)
		go func() { same <- b.Bind(t.Context(), "bind") }()
		go func() { other <- b.Bind(t.Context(), "another") }()
		synctest.Wait()
		b.Granted(grant("one", time.Hour))
		if err := <-same; err != nil {
			t.Errorf("the same bind: %v", err)
		}
		if err := <-other; !errors.Is(err, errBoundToAnother) {
			t.Errorf("another bind: %v", err)
		}
		if len(said) != 1 {
			t.Errorf("%d words to the parent, want one redeem", len(said))
		}
	})
}

func TestRelay(t *testing.T) {
	type arrival struct {
		uri, host, body string
		header          http.Header
	}
	arrived := make(chan arrival, 1)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the relay gave up on the request
		}
		arrived <- arrival{r.RequestURI, r.Host, string(body), r.Header}
		w.Header().Set("Set-Cookie", "a=b")
		w.WriteHeader(http.StatusAccepted)
	}))
	defer upstream.Close()
	var bound *sandboxapi.Grant
	r, idle, err := newRelay(upstream.URL, func() *sandboxapi.Grant { return bound })
	if err != nil {
		t.Fatal(err)
	}
	defer idle()
	server := httptest.NewServer(r)
	defer server.Close()
	send := func(path, body string) *http.Response {
		t.Helper()
		req, err := http.NewRequest(http.MethodPost, server.URL, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.URL.Opaque = path
		for _, name := range []string{"Authorization", "Cookie", "Forwarded", "X-Forwarded-Host", "Holdfast-Session", "Holdfast-Tenant"} {
			req.Header.Set(name, "forged")
		}
		req.Header.Set("X-Mine", "kept")
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Fatal(err)
		}
		return resp
	}

	if resp := send("/v1/agent/calls", "{}"); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("before the bind: %d", resp.StatusCode)
	}
	bound = grant("secret", time.Hour)
	for _, path := range []string{
		"/v1/sessions", "/v1/agent", "/v1/agent/", "/", "/v1/agent/../sessions", "/v1/agent/%2e%2e/sessions",
		"/v1/agentx/calls", "//v1/agent/calls", "/v1/agent/./calls",
	} {
		if resp := send(path, ""); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
	resp := send("/v1/agent/calls/x?wait=30", `{"a":1}`)
	if resp.StatusCode != http.StatusAccepted || resp.Header.Get("Set-Cookie") != "" {
		t.Errorf("answer %d %v", resp.StatusCode, resp.Header)
	}
	got := <-arrived
	if got.uri != "/v1/agent/calls/x?wait=30" || got.body != `{"a":1}` {
		t.Errorf("arrived: %+v", got)
	}
	for name, values := range got.header {
		if strings.Contains(strings.Join(values, ""), "forged") {
			t.Errorf("%s passed", name)
		}
	}
	if got.header.Get("Authorization") != "Bearer secret" || got.header.Get("X-Mine") != "kept" {
		t.Errorf("headers: %v", got.header)
	}
	if resp := send("/v1/agent/events", strings.Repeat("x", maxRelayBody+1)); resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a body too large: %d", resp.StatusCode)
	}
	upstream.Close()
	if resp := send("/v1/agent/calls", "{}"); resp.StatusCode != http.StatusBadGateway {
		t.Errorf("upstream gone: %d", resp.StatusCode)
	}
}
