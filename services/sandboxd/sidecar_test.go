package main

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/services/internal/bind"
	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/internal/sandboxtoken"
)

// TestSidecarIsDeadUntilBound: before its bind a Pod's sandboxd says how it is, and no
// more to anybody.
func TestSidecarIsDeadUntilBound(t *testing.T) {
	t.Parallel()
	p := startPod(t)
	h, err := p.client().Health(deadline(t))
	must(t, err)
	if h.Bound || h.PodUID != testPodUID || h.Isolation != "container" || h.Entrypoint != sandboxapi.EntrypointStarting {
		t.Errorf("health: %+v", h)
	}
	if s, c := get(t, p.url()+sandboxapi.PathReady+"?wait=0"); s != http.StatusServiceUnavailable || c != sandboxapi.CodeNotReady {
		t.Errorf("ready without an agent: %d %s", s, c)
	}
	for _, path := range []string{sandboxapi.PathRuns, "/invoke/x", "/", "/v1/agent/session", "/holdfast/../invoke/x"} {
		if s, c := get(t, p.url()+path); s != http.StatusMisdirectedRequest || c != sandboxapi.CodeNotBound {
			t.Errorf("%s: %d %s", path, s, c)
		}
	}
	_, err = p.access(nil).Health(deadline(t))
	if status(err) != http.StatusMisdirectedRequest || code(err) != sandboxapi.CodeNotBound {
		t.Errorf("by an access token: %v", err)
	}
	if s, c := p.relayed("/v1/agent/session"); s != http.StatusServiceUnavailable || c != sandboxapi.CodeNotBound {
		t.Errorf("the agent's way out: %d %s", s, c)
	}
	if heard := p.gateway.heard(); len(heard) != 0 {
		t.Errorf("the gateway was asked: %q", heard)
	}
}

// TestSidecarServesOneSession: from its bind on it is one session's, for the holders of
// that session's access token and nobody else.
func TestSidecarServesOneSession(t *testing.T) {
	t.Parallel()
	p := startPod(t)
	launch(t, p.agentEnv(), "test-server")
	ready, err := p.client().WaitReady(deadline(t))
	must(t, err)
	if ready.Bound || ready.Entrypoint != sandboxapi.EntrypointReady {
		t.Errorf("ready: %+v", ready)
	}
	signed := p.sign(nil)
	for range 2 { // a reply may be lost
		h, err := p.client().Bind(deadline(t), signed)
		must(t, err)
		if !h.Bound || h.Session != testSession || h.Generation != 1 {
			t.Errorf("bound: %+v", h)
		}
	}
	if heard := p.gateway.heard(); !slices.Equal(heard, []string{sandboxapi.PathRedeem + " Bearer pod-token-1"}) {
		t.Errorf("the gateway was asked %q", heard)
	}
	_, err = p.client().Bind(deadline(t), p.sign(func(b *bind.Bind) { b.Session = "s-another" }))
	if status(err) != http.StatusConflict || code(err) != sandboxapi.CodeBoundToAnother {
		t.Errorf("another bind: %v", err)
	}

	h, err := p.client().Health(deadline(t))
	must(t, err)
	if !h.Bound || h.Session != "" || h.Generation != 0 {
		t.Errorf("strangers see whose it is: %+v", h)
	}
	for _, path := range []string{sandboxapi.PathRuns, "/invoke/echo/x", "/"} {
		if s, c := get(t, p.url()+path); s != http.StatusUnauthorized || c != sandboxapi.CodeNoAccess {
			t.Errorf("%s: %d %s", path, s, c)
		}
	}
	c := p.access(nil)
	if h, err := c.Health(deadline(t)); err != nil || h.Session != testSession {
		t.Errorf("the session's health: %+v, %v", h, err)
	}
	resp, err := c.InvokeTransport().RoundTrip(httpRequest(t, "/echo/a%2Fb?c=d"))
	must(t, err)
	var echo struct{ URI string }
	must(t, json.NewDecoder(resp.Body).Decode(&echo))
	must(t, resp.Body.Close())
	if echo.URI != "/echo/a%2Fb?c=d" {
		t.Errorf("invoked %q", echo.URI)
	}
	if s, _ := p.relayed("/v1/agent/session"); s != http.StatusOK {
		t.Errorf("the agent's way out: %d", s)
	}
	if heard := p.gateway.heard(); heard[len(heard)-1] != "/v1/agent/session Bearer session-token-1" {
		t.Errorf("the gateway was asked %q", heard)
	}
	if s, _ := p.relayed(sandboxapi.PathRenew); s != http.StatusNotFound {
		t.Errorf("the agent asks for a token: %d", s)
	}
	if got := p.sidecar.kill(unix.SIGTERM); got != 0 {
		t.Errorf("an orderly stop exits with %d", got)
	}
}

func httpRequest(t *testing.T, path string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(deadline(t), http.MethodGet, "http://sandbox"+path, nil)
	must(t, err)
	return r
}

// TestSidecarKeepsItsToken: it is sent nowhere but where a good bind of this Pod says.
func TestSidecarKeepsItsToken(t *testing.T) {
	t.Parallel()
	p := startPod(t)
	sign := func(key ed25519.PrivateKey, until time.Duration) string {
		signed, err := bind.Sign(key, bind.Bind{
			Tenant: "default", Session: testSession, Generation: 1, PodUID: testPodUID, Agents: p.gateway.server.URL,
		}, time.Now().Add(until))
		must(t, err)
		return signed
	}
	port := p.gateway.server.URL[strings.LastIndex(p.gateway.server.URL, ":"):]
	agents := func(url string) string { return p.sign(func(b *bind.Bind) { b.Agents = url }) }
	access, _, err := sandboxtoken.MintAccess(workloadKey, sandboxtoken.Claims{
		Tenant: "default", Session: testSession, Generation: 1, PodUID: testPodUID,
	}, time.Now())
	must(t, err)
	for name, signed := range map[string]string{
		"another key's":          sign(foreignKey, time.Minute),
		"after the deadline":     sign(workloadKey, -time.Minute),
		"of another Pod":         p.sign(func(b *bind.Bind) { b.PodUID = "11111111-0a55-4b7e-9d3f-0d1f0a6c7e11" }),
		"of another Pod's life":  p.sign(func(b *bind.Bind) { b.PodUID = "11111111-0a55-4b7e-9d3f-0d1f0a6c7e11.1" }),
		"of no life":             p.sign(func(b *bind.Bind) { b.PodUID += ".x" }),
		"a parent's":             agents(""),
		"to a name":              agents("http://localhost" + port),
		"to a socket":            agents("unix:/tmp/agents.sock"),
		"with a user":            agents("http://a@127.0.0.1" + port),
		"with a path":            agents(p.gateway.server.URL + "/x"),
		"without a port":         agents("http://127.0.0.1"),
		"by another protocol":    agents("https://127.0.0.1" + port),
		"a token of another use": access,
		"nothing":                "x",
		"endless":                strings.Repeat("x", 30<<10),
	} {
		_, err := p.client().Bind(deadline(t), signed)
		if status(err) != http.StatusForbidden || code(err) != sandboxapi.CodeBindRefused {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := p.client().Bind(deadline(t), strings.Repeat("x", 65<<10)); status(err) != http.StatusRequestEntityTooLarge {
		t.Errorf("too large: %v", err)
	}
	if heard := p.gateway.heard(); len(heard) != 0 {
		t.Errorf("the Pod's token went out: %q", heard)
	}
	p.bound() // and none of it did any harm
}

// TestSidecarAccess: only the session's access token opens the sandbox.
func TestSidecarAccess(t *testing.T) {
	t.Parallel()
	p := startPod(t)
	p.bound()
	claims := sandboxtoken.Claims{Tenant: "default", Session: testSession, Generation: 1, PodUID: testPodUID}
	mint := func(by func(ed25519.PrivateKey, sandboxtoken.Claims, time.Time) (string, time.Time, error), key ed25519.PrivateKey, at time.Time) *sandboxapi.Client {
		token, _, err := by(key, claims, at)
		must(t, err)
		return p.accessBy(token)
	}
	for name, test := range map[string]struct {
		client *sandboxapi.Client
		status int
	}{
		"the session's":       {p.access(nil), 0},
		"forged":              {mint(sandboxtoken.MintAccess, foreignKey, time.Now()), http.StatusUnauthorized},
		"expired":             {mint(sandboxtoken.MintAccess, workloadKey, time.Now().Add(-time.Hour)), http.StatusUnauthorized},
		"what an agent has":   {mint(sandboxtoken.Mint, workloadKey, time.Now()), http.StatusUnauthorized},
		"the bind":            {p.accessBy(p.sign(nil)), http.StatusUnauthorized},
		"the session's token": {p.accessBy("session-token-1"), http.StatusUnauthorized},
		"another tenant":      {p.access(func(c *sandboxtoken.Claims) { c.Tenant = "other" }), http.StatusMisdirectedRequest},
		"another session":     {p.access(func(c *sandboxtoken.Claims) { c.Session = "s-another" }), http.StatusMisdirectedRequest},
		"another generation":  {p.access(func(c *sandboxtoken.Claims) { c.Generation = 2 }), http.StatusMisdirectedRequest},
		"another life":        {p.access(func(c *sandboxtoken.Claims) { c.PodUID += ".1" }), http.StatusMisdirectedRequest},
	} {
		if _, err := test.client.Health(deadline(t)); status(err) != test.status || (err == nil) != (test.status == 0) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Whom the CONNECT was for is checked again on what comes through it.
	other, err := sandboxapi.NewClientAt(sandboxapi.Endpoint{URL: p.url(), Access: mustAccess(t, claims)}, "s-another", 1)
	must(t, err)
	t.Cleanup(other.Close)
	if err := other.CancelRun(deadline(t), "r-1"); code(err) != sandboxapi.CodeOtherSession {
		t.Errorf("another session's request: %v", err)
	}
}

func mustAccess(t *testing.T, c sandboxtoken.Claims) string {
	t.Helper()
	token, _, err := sandboxtoken.MintAccess(workloadKey, c, time.Now())
	must(t, err)
	return token
}

// TestSidecarRedeemsAgain: a gateway that is away, or loses its reply, costs time alone.
func TestSidecarRedeemsAgain(t *testing.T) {
	t.Parallel()
	p := startPod(t)
	p.gateway.script(10*time.Minute, func(w http.ResponseWriter, n int) bool {
		switch n {
		case 1:
			cut(t, w)
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 3:
			sandboxapi.NewProblem(http.StatusTooManyRequests, sandboxapi.CodeQuotaExceeded, "").Write(w)
		case 4:
			_, _ = w.Write([]byte("half a gra"))
		default:
			return false
		}
		return true
	})
	must(t, os.Remove(p.token)) // nor is the token there at first
	done := make(chan error, 1)
	go func() {
		_, err := p.client().Bind(deadline(t), p.sign(nil))
		done <- err
	}()
	eventually(t, "the bind is being redeemed", func() bool {
		_, err := p.client().Bind(cancelled(t), p.sign(nil))
		return err != nil
	})
	p.present("pod-token-late")
	must(t, <-done)
	if heard := p.gateway.heard(); len(heard) != 5 || heard[4] != sandboxapi.PathRedeem+" Bearer pod-token-late" {
		t.Errorf("the gateway was asked %q", heard)
	}
}

// TestSidecarProvesItsProcess: a bind that names this process is redeemed with its secret,
// the same one for as long as answers are lost, which it tells nobody else. What names
// another one, as the process before a restart is, is presented nowhere.
func TestSidecarProvesItsProcess(t *testing.T) {
	t.Parallel()
	p := startPod(t)
	h, err := p.client().Health(deadline(t))
	must(t, err)
	p.gateway.script(10*time.Minute, func(w http.ResponseWriter, n int) bool {
		if n < 3 {
			cut(t, w)
		}
		return n < 3
	})
	signed := p.sign(func(b *bind.Bind) { b.Process = h.Process })
	bound, err := p.client().Bind(deadline(t), signed)
	must(t, err)
	secrets := p.gateway.presented()
	if len(secrets) != 3 || secrets[0] != secrets[1] || secrets[1] != secrets[2] || len(secrets[0]) < 20 || bind.ProcessOf(secrets[0]) != h.Process {
		t.Errorf("%s presented %q", h.Process, secrets)
	}
	if bound.Process != h.Process || !bound.Bound {
		t.Errorf("bound: %+v", bound)
	}

	p.sidecar.kill(unix.SIGKILL)
	p.start()
	again, err := p.client().Health(deadline(t))
	must(t, err)
	if again.Process == h.Process || again.Process == "" {
		t.Errorf("it was %s, and is %s", h.Process, again.Process)
	}
	if _, err := p.client().Bind(deadline(t), signed); code(err) != sandboxapi.CodeBindRefused {
		t.Errorf("the bind of the process before: %v", err)
	}
	if n := len(p.gateway.presented()); n != 3 {
		t.Errorf("that was presented: %d", n)
	}
}

// TestSidecarRefused: what the gateway refuses for good is refused at once, and the next
// bind has its turn.
func TestSidecarRefused(t *testing.T) {
	t.Parallel()
	p := startPod(t)
	p.gateway.script(10*time.Minute, func(w http.ResponseWriter, n int) bool {
		switch n {
		case 1:
			sandboxapi.NewProblem(http.StatusForbidden, sandboxapi.CodeBindRefused, "The session has no such sandbox any more.").Write(w)
		case 2:
			_ = json.NewEncoder(w).Encode(sandboxapi.Grant{
				Tenant: "default", Session: "s-another", Generation: 1, PodUID: testPodUID, Token: "t", ExpiresUnix: time.Now().Add(time.Hour).Unix(),
			})
		default:
			return false
		}
		return true
	})
	for range 2 {
		_, err := p.client().Bind(deadline(t), p.sign(nil))
		if status(err) != http.StatusForbidden || code(err) != sandboxapi.CodeBindRefused {
			t.Fatalf("refused: %v", err)
		}
		if h, err := p.client().Health(deadline(t)); err != nil || h.Bound {
			t.Fatalf("bound by a refusal: %+v, %v", h, err)
		}
	}
	p.bound()
}

// TestSidecarRenews: with the token that the Pod has then.
func TestSidecarRenews(t *testing.T) {
	t.Parallel()
	p := startPod(t)
	p.gateway.script(2*time.Second, nil)
	p.bound()
	p.present("pod-token-2")
	eventually(t, "the token is renewed by the new one", func() bool {
		return slices.Contains(p.gateway.heard(), sandboxapi.PathRenew+" Bearer pod-token-2")
	})
	eventually(t, "the renewed token is used", func() bool {
		p.relayed("/v1/agent/session")
		heard := p.gateway.heard()
		last := heard[len(heard)-1]
		return strings.HasPrefix(last, "/v1/agent/session ") && last != "/v1/agent/session Bearer session-token-1"
	})
}

// TestSidecarRestarts: a container that was started again is nobody's, whatever it was;
// what was said before is still there, and the run that was open is over.
func TestSidecarRestarts(t *testing.T) {
	t.Parallel()
	p := startPod(t, sandboxapi.EnvAdapter+"=push", sandboxapi.EnvAgentPort+"=", sandboxapi.EnvReadyPath+"=")
	c := p.bound()
	awaitInput(t, p)
	startRun(t, c, input("r-1", "hello", nil))
	if got := p.sidecar.kill(unix.SIGKILL); got == 0 {
		t.Fatal("it wasn't killed")
	}
	p.start(sandboxapi.EnvAdapter+"=push", sandboxapi.EnvAgentPort+"=", sandboxapi.EnvReadyPath+"=")
	if _, err := p.access(nil).Health(deadline(t)); code(err) != sandboxapi.CodeNotBound {
		t.Errorf("after a restart: %v", err)
	}
	_, err := p.client().Bind(deadline(t), p.sign(func(b *bind.Bind) { b.PodUID += ".1" }))
	must(t, err)
	c = p.access(func(c *sandboxtoken.Claims) { c.PodUID += ".1" })
	tr := follow(t, c, "r-1", nil)
	if tr.end.Outcome != "error" || !strings.Contains(tr.end.Reason, "sandbox-lost") {
		t.Errorf("the open run ended so: %+v", tr.end)
	}
}

// awaitInput asks for an input as an agent of push does, until the test ends: it makes
// the entrypoint ready.
func awaitInput(t *testing.T, p *pod) {
	t.Helper()
	go func() {
		for t.Context().Err() == nil {
			resp, err := http.Get("http://" + p.ip + ":7777/v1/agent/input?wait=1")
			if err == nil {
				_ = resp.Body.Close()
			}
		}
	}()
	_, err := p.client().WaitReady(deadline(t))
	must(t, err)
}

// TestSidecarFlood: what an agent sends at port 7778 is bounded, and the session is
// served all the same.
func TestSidecarFlood(t *testing.T) {
	t.Parallel()
	p := startPod(t)
	c := p.bound()
	_, err := c.Health(deadline(t)) // the connection that is there stays
	must(t, err)
	refused := 0
	for range 1000 {
		if s, _ := get(t, p.url()+sandboxapi.PathHealth); s == http.StatusTooManyRequests {
			refused++
		}
	}
	if refused == 0 {
		t.Error("a thousand requests were let through")
	}
	if _, err := c.Health(deadline(t)); err != nil {
		t.Errorf("the session's own, in the flood: %v", err)
	}
}

// TestSidecarNeedsItsEnvironment: what is missing is named.
func TestSidecarNeedsItsEnvironment(t *testing.T) {
	t.Parallel()
	if got := launch(t, nil, "sidecar").kill(0); got != 1 {
		t.Errorf("exits with %d", got)
	}
}

func TestInstall(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sandboxd")
	must(t, os.WriteFile(path, []byte("an older one"), 0o600))
	if got := launch(t, nil, "install", path).kill(0); got != 0 {
		t.Fatalf("exits with %d", got)
	}
	info, err := os.Stat(path)
	must(t, err)
	self, err := os.Stat(os.Args[0])
	must(t, err)
	if info.Mode().Perm() != 0o755 || info.Size() != self.Size() {
		t.Errorf("installed %v, %d bytes of %d", info.Mode(), info.Size(), self.Size())
	}
	left, err := os.ReadDir(filepath.Dir(path))
	must(t, err)
	if len(left) != 1 {
		t.Errorf("left: %v", left)
	}
	if got := launch(t, nil, "install", filepath.Join(path, "x")).kill(0); got != 1 {
		t.Errorf("into a file: exits with %d", got)
	}
	if got := launch(t, nil, "install").kill(0); got != exitUsage {
		t.Errorf("nowhere: exits with %d", got)
	}
}

// TestExecAgent: the adapter exec in a Pod, where another container runs the program.
func TestExecAgent(t *testing.T) {
	t.Parallel()
	p := startPod(t, sandboxapi.EnvAdapter+"=exec", sandboxapi.EnvRunPath+"=/elsewhere")
	const script = `
case "$HOLDFAST_MESSAGE" in
die) echo dying >&2; exit 3;;
esac
printf '{"type":"RUN_STARTED","threadId":"%s","runId":"%s"}\n' "$HOLDFAST_THREAD_ID" "$HOLDFAST_RUN_ID"
printf '{"type":"TEXT_MESSAGE_CHUNK","messageId":"m-1","role":"assistant","delta":"%s, by %s"}\n' "$HOLDFAST_MESSAGE" "$HOLDFAST_URL"
case "$HOLDFAST_MESSAGE" in
stay) sleep 1000;;
esac
printf '{"type":"RUN_FINISHED","threadId":"%s","runId":"%s"}\n' "$HOLDFAST_THREAD_ID" "$HOLDFAST_RUN_ID"
`
	agent := launch(t, p.agentEnv(), "exec-agent", "--", "sh", "-c", script)
	_, err := p.client().WaitReady(deadline(t))
	must(t, err)
	c := p.bound()
	for n, message := range []string{"hello", "again"} {
		run := fmt.Sprintf("r-%d", n)
		startRun(t, c, input(run, message, nil))
		tr := follow(t, c, run, nil)
		if want := message + ", by http://" + p.ip + ":7777"; tr.end.Outcome != "success" || tr.text() != want {
			t.Errorf("%q: %+v %q", message, tr.end, tr.text())
		}
	}
	startRun(t, c, input("r-die", "die", nil))
	if tr := follow(t, c, "r-die", nil); tr.end.Outcome != "error" || !strings.Contains(tr.end.Reason, "exited with status 3") ||
		!strings.Contains(tr.end.Reason, "dying") {
		t.Errorf("a program that dies: %+v", tr.end)
	}
	startRun(t, c, input("r-stay", "stay", nil))
	tr := follow(t, c, "r-stay", func(e event) {
		if strings.HasPrefix(e.Delta, "stay") {
			must(t, c.CancelRun(deadline(t), "r-stay"))
		}
	})
	if tr.end.Outcome != "cancelled" {
		t.Errorf("cancelled: %+v", tr.end)
	}
	// The next one waits for the end of the one before.
	startRun(t, c, input("r-next", "next", nil))
	if tr := follow(t, c, "r-next", nil); tr.end.Outcome != "success" {
		t.Errorf("the next: %+v", tr.end)
	}
	if got := agent.kill(unix.SIGTERM); got != 0 {
		t.Errorf("an orderly stop exits with %d", got)
	}
	eventually(t, "the end of the agent is noticed", func() bool {
		h, err := c.Health(deadline(t))
		return err == nil && h.Entrypoint == sandboxapi.EntrypointStarting && h.Restarts == 1
	})
	if _, err := net.Dial("tcp", net.JoinHostPort(p.ip, p.port)); err == nil {
		t.Error("the agent's port still answers")
	}
}
