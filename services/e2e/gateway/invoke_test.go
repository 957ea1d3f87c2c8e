package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	fold "github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
)

// box is a sandbox as the gateway meets it: what a call looks like inside, and
// answers that try everything.
type box struct {
	*httptest.Server
	session string

	mu   sync.Mutex
	last *http.Request
	body string
	// other answers 421: the address is another session's now.
	other bool
}

func startBox(t *testing.T, session string) *box {
	t.Helper()
	b := &box{session: session}
	b.Server = httptest.NewServer(b)
	t.Cleanup(b.Close)
	return b
}

func (b *box) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	other := b.other
	b.mu.Unlock()
	if other || r.Header.Get(sandboxapi.HeaderSession) != b.session || r.Header.Get(sandboxapi.HeaderGeneration) != "1" {
		w.WriteHeader(http.StatusMisdirectedRequest)
		return
	}
	switch strings.TrimPrefix(r.URL.Path, "/invoke") {
	case "/stream":
		for i := range 3 {
			fmt.Fprintf(w, "line %d\n", i)
			w.(http.Flusher).Flush()
		}
		<-r.Context().Done()
	case "/ws":
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		kind, message, err := c.Read(r.Context())
		if err == nil {
			err = c.Write(r.Context(), kind, append([]byte("echo "), message...))
		}
		if err == nil {
			_, _, _ = c.Read(r.Context()) // until the other side is gone
		}
	case "/redirect":
		http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusFound)
	default:
		content, _ := io.ReadAll(r.Body)
		b.mu.Lock()
		b.last, b.body = r, string(content)
		b.mu.Unlock()
		h := w.Header()
		h.Set("Set-Cookie", "holdfast_session=stolen; Path=/")
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Clear-Site-Data", `"*"`)
		h.Set("Service-Worker-Allowed", "/")
		h.Set("Content-Security-Policy", "default-src *")
		h.Set("Holdfast-Seq", "999")
		h.Set("X-Own", "kept")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "<script>alert(1)</script>")
	}
}

func (b *box) seen() (*http.Request, string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last, b.body
}

// boxed is a ready session with a box.
func (w *world) boxed() (string, *box) {
	w.t.Helper()
	w.shell()
	s := w.create()
	w.ready(s.ID)
	b := startBox(w.t, s.ID)
	w.mu.Lock()
	w.endpoints[s.ID] = b.URL
	w.mu.Unlock()
	return s.ID, b
}

func TestInvokeKeepsBothSidesApart(t *testing.T) {
	t.Parallel()
	w := start(t)
	id, b := w.boxed()
	got := w.call("alice", "PATCH", "/v1/sessions/"+id+"/invoke/api/a%2Fb?x=1&y=%20;z", "payload",
		"Cookie: holdfast_session=mine", "Forwarded: for=1.2.3.4", "X-Forwarded-For: 1.2.3.4", "X-Forwarded-Prefix: /x",
		"X-Real-Ip: 1.2.3.4", "Holdfast-Session: s-other", "Holdfast-Tenant: default", "X-Own: kept", "Content-Type: text/plain").want(http.StatusTeapot)
	inside, body := b.seen()
	if inside.Method != http.MethodPatch || inside.URL.EscapedPath() != "/invoke/api/a%2Fb" || inside.URL.RawQuery != "x=1&y=%20;z" || body != "payload" {
		t.Errorf("inside: %s %s %q", inside.Method, inside.RequestURI, body)
	}
	for _, gone := range []string{"Authorization", "Cookie", "Forwarded", "X-Forwarded-For", "X-Forwarded-Prefix", "X-Forwarded-Host", "X-Real-Ip", "Holdfast-Tenant"} {
		if v := inside.Header.Get(gone); v != "" {
			t.Errorf("inside is %s: %s", gone, v)
		}
	}
	if inside.Header.Get("X-Own") != "kept" || inside.Header.Get("Content-Type") != "text/plain" || inside.Header.Get("Holdfast-Session") != id {
		t.Errorf("inside: %v", inside.Header)
	}
	for _, gone := range []string{"Set-Cookie", "Access-Control-Allow-Origin", "Clear-Site-Data", "Service-Worker-Allowed", "Holdfast-Seq"} {
		if v := got.header.Get(gone); v != "" {
			t.Errorf("outside is %s: %s", gone, v)
		}
	}
	if csp := got.header.Values("Content-Security-Policy"); len(csp) != 1 || csp[0] != "sandbox" || got.header.Get("X-Content-Type-Options") != "nosniff" ||
		got.header.Get("X-Own") != "kept" || string(got.body) != "<script>alert(1)</script>" {
		t.Errorf("outside: %v %s", got.header, got.body)
	}
	if to := w.call("alice", "GET", "/v1/sessions/"+id+"/invoke/redirect", nil).want(http.StatusFound); to.header.Get("Location") != "http://169.254.169.254/latest" {
		t.Errorf("a redirect was followed, or lost: %v", to.header)
	}
	for _, path := range []string{"/../../me", "/a/%2e%2e/holdfast/bind", "/./x"} {
		req := "/v1/sessions/" + id + "/invoke" + path
		w.call("alice", "GET", req, nil).problem(api.CodeInvalidRequest)
	}
	w.call("bob", "GET", "/v1/sessions/"+id+"/invoke/", nil).problem(api.CodeForbidden)
	w.call("", "GET", "/v1/sessions/"+id+"/invoke/", nil).problem(api.CodeUnauthenticated)
	w.call("alice", "GET", "/v1/sessions/"+someSession+"/invoke/", nil).problem(api.CodeNotFound)
	w.call("alice", "GET", "/v1/sessions/nonsense/invoke/", nil).problem(api.CodeNotFound)
}

func TestInvokeStreamsBothWays(t *testing.T) {
	t.Parallel()
	w := start(t)
	id, _ := w.boxed()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/v1/sessions/"+id+"/invoke/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+tokenOf("alice"))
	resp, err := plain.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(resp.Body)
	for i := range 3 { // each line comes while the answer is still open
		if !lines.Scan() || lines.Text() != fmt.Sprintf("line %d", i) {
			t.Fatalf("line %d: %q, %v", i, lines.Text(), lines.Err())
		}
	}
	_ = resp.Body.Close()

	c, _, err := websocket.Dial(t.Context(), strings.Replace(w.url, "http", "ws", 1)+"/v1/sessions/"+id+"/invoke/ws", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + tokenOf("alice")}}, HTTPClient: plain,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Write(t.Context(), websocket.MessageText, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, message, err := c.Read(t.Context()); err != nil || string(message) != "echo hello" {
		t.Errorf("%q, %v", message, err)
	}
	_ = c.CloseNow()
}

// A sandbox is touched only under a noted use, which ends with the calls.
func TestInvokeNotesUse(t *testing.T) {
	t.Parallel()
	w := start(t)
	id, _ := w.boxed()
	for range 10 {
		w.call("alice", "GET", "/v1/sessions/"+id+"/invoke/", nil).want(http.StatusTeapot)
	}
	w.until(id, func(s *fold.State) bool { return len(s.Holders) == 0 && s.LastActivity.After(s.CreatedAt) })
	var notes int
	w.replay(id, func(m events.Message) {
		for _, r := range m.Envelope.Events {
			if r.Type == fold.TypeActivityNoted {
				notes++
			}
		}
	})
	if notes != 2 {
		t.Errorf("ten calls in a row made %d notes, want one and its release", notes)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.locates != 1 {
		t.Errorf("located %d times", w.locates)
	}
}

func TestInvokeFindsTheSandboxAgain(t *testing.T) {
	t.Parallel()
	w := start(t)
	id, first := w.boxed()
	path := "/v1/sessions/" + id + "/invoke/"
	w.call("alice", "GET", path, nil).want(http.StatusTeapot)
	// The address becomes another session's; the right one is found.
	second := startBox(t, id)
	w.mu.Lock()
	w.endpoints[id] = second.URL
	w.mu.Unlock()
	first.mu.Lock()
	first.other = true
	first.mu.Unlock()
	w.call("alice", "GET", path, nil).want(http.StatusTeapot)
	// It dies; where nobody answers it is said, and nothing of the inside with it.
	second.CloseClientConnections()
	second.Close()
	got := w.call("alice", "GET", path, nil)
	if p := got.problem(api.CodeSandboxUnreachable); strings.Contains(p.Detail, "127.0.0.1") {
		t.Errorf("the problem says where: %s", p.Detail)
	}
	third := startBox(t, id)
	w.mu.Lock()
	w.endpoints[id] = third.URL
	w.mu.Unlock()
	w.call("alice", "POST", path, "x").want(http.StatusTeapot)
}

// A call to a sleeping session wakes it; one that never gets ready, or is over, is
// refused with where it is.
func TestInvokeWakesASession(t *testing.T) {
	t.Parallel()
	w := start(t)
	id, _ := w.boxed()
	w.call("alice", "POST", "/v1/sessions/"+id+"/suspend", nil).want(202)
	w.append(w.workload, events.ServiceWorkload, id, fold.Suspended{Generation: 1})
	answered := make(chan answer, 1)
	go func() { answered <- w.call("alice", "GET", "/v1/sessions/"+id+"/invoke/", nil) }()
	w.until(id, func(s *fold.State) bool { return s.Phase() == fold.PhaseResuming })
	select {
	case got := <-answered:
		t.Fatalf("answered while it was resuming: %d %s", got.status, got.body)
	case <-time.After(50 * time.Millisecond): // long enough to see an answer that doesn't wait
	}
	w.append(w.workload, events.ServiceWorkload, id, fold.Resumed{Generation: 1, PodUID: "pod-2", Isolation: isolation})
	(<-answered).want(http.StatusTeapot)
	w.call("alice", "POST", "/v1/sessions/"+id+"/terminate", nil).want(202)
	if p := w.call("alice", "GET", "/v1/sessions/"+id+"/invoke/", nil).problem(api.CodeSessionEnded); p.Phase != "ending" {
		t.Errorf("after the end: %+v", p)
	}
}

// replay hands every message of a session to f, from the log itself.
func (w *world) replay(id string, f func(events.Message)) {
	w.t.Helper()
	subject, err := events.SessionSubject("default", id)
	if err != nil {
		w.t.Fatal(err)
	}
	m, ok, err := w.log.Last(w.t.Context(), subject)
	for ; ok && err == nil; m, err = w.log.Get(w.t.Context(), m.Envelope.Prev) {
		f(m)
		if m.Envelope.Prev == 0 {
			return
		}
	}
	w.t.Fatalf("replay of %s: %v, %v", id, ok, err)
}
