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

// questions is a binder whose answers a test gives.
type questions struct {
	asked   chan string // "redeem <bind>", "renew <bind>"
	answers chan answer
}

func newQuestions() *questions {
	return &questions{asked: make(chan string, 10), answers: make(chan answer)}
}

func (q *questions) ask(ctx context.Context, what string) (*sandboxapi.Grant, error) {
	q.asked <- what
	select {
	case a := <-q.answers:
		return a.grant, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Redeem implements Binder.
func (q *questions) Redeem(ctx context.Context, bind string) (*sandboxapi.Grant, error) {
	return q.ask(ctx, "redeem "+bind)
}

// Renew implements Binder.
func (q *questions) Renew(ctx context.Context, bind string) (*sandboxapi.Grant, error) {
	return q.ask(ctx, "renew "+bind)
}

// Upstream implements Binder.
func (q *questions) Upstream() *Upstream { return nil }

func grant(token string, life time.Duration) *sandboxapi.Grant {
	return &sandboxapi.Grant{Session: "s", Generation: 1, PodUID: "p", Token: token, ExpiresUnix: time.Now().Add(life).Unix()}
}

func TestTokenIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		binder := newQuestions()
		b := newBinding(binder, slog.New(slog.DiscardHandler))
		defer b.Close()
		done := make(chan error)
		go func() { done <- b.Bind(t.Context(), "bind") }()
		if asked := <-binder.asked; asked != "redeem bind" {
			t.Fatalf("asked %q", asked)
		}
		binder.answers <- answer{grant: grant("one", 10*time.Minute)}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		renewal := func(after time.Duration, token string, a func() answer) {
			t.Helper()
			begin := time.Now()
			asked := <-binder.asked
			if took := time.Since(begin).Round(time.Second); asked != "renew bind" || took != after {
				t.Fatalf("asked %q after %s, want a renewal after %s", asked, took, after)
			}
			binder.answers <- a()
			synctest.Wait()
			if got := b.Grant().Token; got != token {
				t.Errorf("the token is %q, want %q", got, token)
			}
		}
		renewal(7*time.Minute, "one", func() answer { return answer{err: ErrRefused} })
		renewal(renewRetry, "one", func() answer { return answer{err: errors.New("nobody there")} })
		renewal(renewRetry, "one", func() answer {
			stray := grant("stray", time.Hour)
			stray.Session = "another"
			return answer{grant: stray}
		})
		renewal(renewRetry, "two", func() answer { return answer{grant: grant("two", time.Minute)} })
		renewal(42*time.Second, "three", func() answer { return answer{grant: grant("three", time.Minute)} })
	})
}

// TestBindIsRedeemedOnce: askers that go, come again or come together change nothing.
func TestBindIsRedeemedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		binder := newQuestions()
		b := newBinding(binder, slog.New(slog.DiscardHandler))
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
		binder.answers <- answer{grant: grant("one", time.Hour)}
		if err := <-same; err != nil {
			t.Errorf("the same bind: %v", err)
		}
		if err := <-other; !errors.Is(err, errBoundToAnother) {
			t.Errorf("another bind: %v", err)
		}
		if len(binder.asked) != 1 {
			t.Errorf("%d questions, want one redeem", len(binder.asked))
		}
	})
}

// TestBindAfterFailure: a bind that came to nothing binds nobody.
func TestBindAfterFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		binder := newQuestions()
		b := newBinding(binder, slog.New(slog.DiscardHandler))
		try := func(bind string, a answer) error {
			done := make(chan error)
			go func() { done <- b.Bind(t.Context(), bind) }()
			if asked := <-binder.asked; asked != "redeem "+bind {
				t.Errorf("asked %q", asked)
			}
			binder.answers <- a
			return <-done
		}
		away := errors.New("nobody there")
		if err := try("bind", answer{err: away}); !errors.Is(err, away) || b.Grant() != nil {
			t.Errorf("nobody there: %v", err)
		}
		if err := try("bind", answer{err: ErrRefused}); !errors.Is(err, ErrRefused) || b.Grant() != nil {
			t.Errorf("refused: %v", err)
		}
		if err := try("another", answer{grant: grant("one", time.Hour)}); err != nil {
			t.Errorf("after a refusal: %v", err)
		}
		b.Close()
		b.Close()
		fresh := newBinding(newQuestions(), slog.New(slog.DiscardHandler))
		fresh.Close()
		if err := fresh.Bind(t.Context(), "bind"); !errors.Is(err, context.Canceled) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// said records what is said to the parent.
type said chan sandboxapi.Control

// Send implements sender.
func (s said) Send(m sandboxapi.Control) error { s <- m; return nil }

// TestPipe: an answer is to what was asked last, and for this sandbox.
func TestPipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		control := make(said, 1)
		p := newPipe("p", control, nil)
		p.Refused("nobody asked")
		p.Refused("nobody asked again")
		results := make(chan answer)
		ask := func(question func(context.Context, string) (*sandboxapi.Grant, error)) sandboxapi.Control {
			go func() {
				g, err := question(t.Context(), "bind")
				results <- answer{g, err}
			}()
			return <-control
		}
		if m := ask(p.Redeem); m.Type != sandboxapi.ControlRedeem || m.Bind != "bind" {
			t.Errorf("said %+v", m)
		}
		p.Granted(grant("one", time.Hour))
		if got := <-results; got.err != nil || got.grant.Token != "one" {
			t.Errorf("granted: %+v", got)
		}
		if m := ask(p.Renew); m.Type != sandboxapi.ControlRenew {
			t.Errorf("said %+v", m)
		}
		p.Refused("not now")
		if got := <-results; !errors.Is(got.err, ErrRefused) || !strings.Contains(got.err.Error(), "not now") {
			t.Errorf("refused: %+v", got)
		}
		foreign := grant("two", time.Hour)
		foreign.PodUID = "another"
		ask(p.Redeem)
		p.Granted(foreign)
		if got := <-results; !errors.Is(got.err, ErrRefused) {
			t.Errorf("for another sandbox: %+v", got)
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
	up, err := NewUpstream(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer up.CloseIdle()
	server := httptest.NewServer(newRelay(func() *sandboxapi.Grant { return bound }, func() *Upstream { return up }))
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
		"/v1/agent/bind", "/v1/agent/renew", "/v1/agent/renew/", "/v1/agent/%62ind",
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
