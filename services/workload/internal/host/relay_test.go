package host

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/internal/sandboxtoken"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	quiet = slog.New(slog.DiscardHandler)
	key   = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	ref   = driver.Ref{Tenant: "default", Session: "s-1", Generation: 1}
)

// located is a driver with one sandbox.
type located struct {
	driver.Driver
	endpoint driver.Endpoint
}

func (l located) Locate(_ context.Context, r driver.Ref) (driver.Endpoint, error) {
	if r != ref {
		return driver.Endpoint{}, driver.ErrNotFound
	}
	return l.endpoint, nil
}

// access is a token for an incarnation, changed.
func access(t *testing.T, change func(*sandboxtoken.Claims)) string {
	t.Helper()
	c := sandboxtoken.Claims{Tenant: ref.Tenant, Session: ref.Session, Generation: ref.Generation, PodUID: "pod-1"}
	if change != nil {
		change(&c)
	}
	token, _, err := sandboxtoken.MintAccess(key, c, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// relayTo starts a relay before a sandbox that a handler plays, and gives its URL and
// what ends it.
func relayTo(t *testing.T, sandbox http.HandlerFunc) (url string, stop func()) {
	t.Helper()
	outside, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cancel, done := relayOn(t, outside, sandbox)
	var ended bool
	stop = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("relay: %v", err)
		}
	}
	t.Cleanup(stop)
	return "http://" + outside.Addr().String(), stop
}

// relayOn is relayTo on a listener; what serving ends with comes by done.
func relayOn(t *testing.T, outside net.Listener, sandbox http.HandlerFunc) (stop func(), ended <-chan error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pod.sock")
	inside, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: sandbox}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(inside)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
	})
	public, _ := key.Public().(ed25519.PublicKey)
	v, err := sandboxtoken.NewAccessVerifier(public, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- newRelay(located{endpoint: driver.Endpoint{URL: "unix:" + path, PodUID: "pod-1"}}, v, quiet).serve(ctx, outside)
	}()
	t.Cleanup(cancel)
	return cancel, done
}

func clientOf(t *testing.T, url, token string) *sandboxapi.Client {
	t.Helper()
	c, err := sandboxapi.NewClientAt(sandboxapi.Endpoint{URL: url, Access: token}, ref.Session, ref.Generation)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// Nobody gets through without a token for exactly the incarnation that runs.
func TestRelayRefuses(t *testing.T) {
	t.Parallel()
	url, _ := relayTo(t, func(http.ResponseWriter, *http.Request) { t.Error("somebody got through") })
	_, stranger, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	claims := sandboxtoken.Claims{Tenant: ref.Tenant, Session: ref.Session, Generation: ref.Generation, PodUID: "pod-1"}
	forged, _, err := sandboxtoken.MintAccess(stranger, claims, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	old, _, err := sandboxtoken.MintAccess(key, claims, time.Now().Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	own, _, err := sandboxtoken.Mint(key, claims, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		token  string
		status int
		code   string
	}{
		"noise":                     {"a.b.c", http.StatusUnauthorized, sandboxapi.CodeNoAccess},
		"another's signature":       {forged, http.StatusUnauthorized, sandboxapi.CodeNoAccess},
		"an hour ago":               {old, http.StatusUnauthorized, sandboxapi.CodeNoAccess},
		"what a sandbox holds":      {own, http.StatusUnauthorized, sandboxapi.CodeNoAccess},
		"an earlier incarnation":    {access(t, func(c *sandboxtoken.Claims) { c.PodUID = "pod-0" }), http.StatusMisdirectedRequest, sandboxapi.CodeSandboxGone},
		"another generation":        {access(t, func(c *sandboxtoken.Claims) { c.Generation = 2 }), http.StatusMisdirectedRequest, sandboxapi.CodeSandboxGone},
		"another session":           {access(t, func(c *sandboxtoken.Claims) { c.Session = "s-2" }), http.StatusMisdirectedRequest, sandboxapi.CodeSandboxGone},
		"the session of a stranger": {access(t, func(c *sandboxtoken.Claims) { c.Tenant = "other" }), http.StatusMisdirectedRequest, sandboxapi.CodeSandboxGone},
	} {
		_, err := clientOf(t, url, tc.token).Health(t.Context())
		if p, ok := errors.AsType[*sandboxapi.Problem](err); !ok || p.Status != tc.status || p.Code != tc.code {
			t.Errorf("%s: %v, want %d %s", name, err, tc.status, tc.code)
		}
	}
	resp, err := http.Get(url + "/holdfast/health")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("a plain request: %s", resp.Status)
	}
	http.DefaultClient.CloseIdleConnections()
}

// What is said in a stream arrives when it is said, in both directions.
func TestRelayBuffersNothing(t *testing.T) {
	t.Parallel()
	url, _ := relayTo(t, func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		if err := control.EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusOK)
		_ = control.Flush()
		lines := bufio.NewScanner(r.Body)
		for lines.Scan() {
			fmt.Fprintf(w, "heard %s\n", lines.Text())
			_ = control.Flush()
		}
	})
	said, say := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://sandbox/x", said)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := clientOf(t, url, access(t, nil)).InvokeTransport().RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answers := bufio.NewReader(resp.Body)
	for i := range 3 { // each only after the answer to the one before
		if _, err := fmt.Fprintf(say, "%d\n", i); err != nil {
			t.Fatal(err)
		}
		if got, err := answers.ReadString('\n'); err != nil || got != fmt.Sprintf("heard %d\n", i) {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if err := say.Close(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(answers); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
}

// A connection that became something else (a WebSocket) passes as it is.
func TestRelayPassesUpgrades(t *testing.T) {
	t.Parallel()
	url, _ := relayTo(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.Copy(conn, conn)
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://sandbox/x", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	resp, err := clientOf(t, url, access(t, nil)).InvokeTransport().RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", resp, err)
	}
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		t.Fatalf("a %T", resp.Body)
	}
	defer conn.Close()
	big := strings.Repeat("0123456789", 100_000)
	go func() { _, _ = io.WriteString(conn, big) }()
	got := make([]byte, len(big))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != big {
		t.Errorf("%d bytes came back, %v", len(got), err)
	}
}

// A stream ends with its host, at once.
func TestStreamsEndWithTheRelay(t *testing.T) {
	t.Parallel()
	url, stop := relayTo(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://sandbox/x", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := clientOf(t, url, access(t, nil)).InvokeTransport().RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	stop()
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("the stream ended as if all had been said")
	}
}

// A relay that can take nothing more says so, and doesn't wait for streams that may
// last as long as their sandboxes.
func TestRelayWithoutItsListener(t *testing.T) {
	t.Parallel()
	outside, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, done := relayOn(t, outside, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://sandbox/x", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := clientOf(t, "http://"+outside.Addr().String(), access(t, nil)).InvokeTransport().RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := outside.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it waits for a stream that doesn't end")
	}
}
