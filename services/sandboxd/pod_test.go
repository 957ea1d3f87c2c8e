package main

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/services/internal/bind"
	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/internal/sandboxtoken"
)

// testPodUID is a UID as Kubernetes gives them.
const testPodUID = "4f6b2c1e-0a55-4b7e-9d3f-0d1f0a6c7e11"

var (
	workloadKey = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	foreignKey  = ed25519.NewKeyFromSeed([]byte(strings.Repeat("f", ed25519.SeedSize)))
)

// addresses numbers the Pods of this process; each has a loopback address of its own, as
// it would have its own network.
var addresses atomic.Uint32

func podAddress() string {
	n := addresses.Add(1)
	return fmt.Sprintf("127.%d.%d.%d", 10+os.Getpid()>>8%200, os.Getpid()&0xff, 1+n%250)
}

// agentPort is one that nobody listens on and that no connection going out gets by
// chance before the agent does: those have ports from 32768 on.
func agentPort(t *testing.T) string {
	t.Helper()
	for {
		port := strconv.Itoa(10000 + (os.Getpid()*61+int(addresses.Add(1)))%20000)
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err == nil {
			must(t, l.Close())
			return port
		}
	}
}

// pod is a Pod with sandboxd in it, and a gateway.
type pod struct {
	t       *testing.T
	ip      string
	port    string // the agent's
	spool   string
	token   string // its file
	gateway *agentsListener
	sidecar *program
}

// program is a process of the test binary.
type program struct {
	t      *testing.T
	cmd    *exec.Cmd
	exited chan struct{}
}

// launch starts this binary as one of sandboxd's mains; it ends with the test.
func launch(t *testing.T, env []string, args ...string) *program {
	t.Helper()
	p := &program{t: t, cmd: exec.Command(os.Args[0], args...), exited: make(chan struct{})}
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), mainEnv + "=1"}, env...)
	p.cmd.Stderr = os.Stderr
	must(t, p.cmd.Start())
	go func() { _ = p.cmd.Wait(); close(p.exited) }()
	t.Cleanup(func() { p.kill(unix.SIGKILL) })
	return p
}

// kill signals the process, waits for its end and gives its exit code.
func (p *program) kill(sig unix.Signal) int {
	p.t.Helper()
	_ = p.cmd.Process.Signal(sig) // it may have ended
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		p.t.Fatalf("%v didn't end", p.cmd.Args)
		return -1
	}
}

// startPod starts sandboxd as a sidecar. Its agent isn't started; env says more of it.
func startPod(t *testing.T, env ...string) *pod {
	t.Helper()
	p := &pod{
		t: t, ip: podAddress(), port: agentPort(t), spool: filepath.Join(t.TempDir(), "spool"), token: filepath.Join(t.TempDir(), "token"),
		gateway: newAgentsListener(t),
	}
	p.present("pod-token-1")
	p.start(env...)
	return p
}

// present changes the Pod's token, as the kubelet does.
func (p *pod) present(token string) { must(p.t, os.WriteFile(p.token, []byte(token+"\n"), 0o600)) }

func (p *pod) start(env ...string) {
	p.t.Helper()
	p.sidecar = launch(p.t, append([]string{
		sandboxapi.EnvPodUID + "=" + testPodUID,
		sandboxapi.EnvBindKey + "=" + base64.StdEncoding.EncodeToString(workloadKey.Public().(ed25519.PublicKey)),
		sandboxapi.EnvSpool + "=" + p.spool, sandboxapi.EnvTokenFile + "=" + p.token, sandboxapi.EnvIsolation + "=container",
		sandboxapi.EnvListen + "=" + p.ip + ":7778", sandboxapi.EnvRelay + "=" + p.ip + ":7777",
		sandboxapi.EnvAdapter + "=agui", sandboxapi.EnvAgentPort + "=" + p.port, sandboxapi.EnvReadyPath + "=/health",
	}, env...), "sidecar")
	c := p.client()
	eventually(p.t, "sandboxd answers", func() bool {
		_, err := c.Health(p.t.Context())
		return err == nil
	})
}

func (p *pod) url() string { return "http://" + p.ip + ":7778" }

// agentEnv is what the agent's container has.
func (p *pod) agentEnv() []string {
	return []string{sandboxapi.EnvPort + "=" + p.port, sandboxapi.EnvAgentURL + "=http://" + p.ip + ":7777", "HOME=" + p.t.TempDir()}
}

// client asks without an access token.
func (p *pod) client() *sandboxapi.Client {
	p.t.Helper()
	c, err := sandboxapi.NewClient(p.url(), "", 0)
	must(p.t, err)
	p.t.Cleanup(c.Close)
	return c
}

// sign makes a bind of this Pod; change may spoil it.
func (p *pod) sign(change func(*bind.Bind)) string {
	p.t.Helper()
	b := bind.Bind{
		Tenant: "default", Session: testSession, Generation: 1, PodUID: testPodUID, Agents: p.gateway.server.URL,
	}
	if change != nil {
		change(&b)
	}
	signed, err := bind.Sign(workloadKey, b, time.Now().Add(time.Minute))
	must(p.t, err)
	return signed
}

// access is a client of the session, with the token that the workload service gives.
func (p *pod) access(change func(*sandboxtoken.Claims)) *sandboxapi.Client {
	p.t.Helper()
	claims := sandboxtoken.Claims{Tenant: "default", Session: testSession, Generation: 1, PodUID: testPodUID}
	if change != nil {
		change(&claims)
	}
	token, _, err := sandboxtoken.MintAccess(workloadKey, claims, time.Now())
	must(p.t, err)
	return p.accessBy(token)
}

func (p *pod) accessBy(token string) *sandboxapi.Client {
	p.t.Helper()
	c, err := sandboxapi.NewClientAt(sandboxapi.Endpoint{URL: p.url(), Access: token}, testSession, 1)
	must(p.t, err)
	p.t.Cleanup(c.Close)
	return c
}

// bound binds the Pod.
func (p *pod) bound() *sandboxapi.Client {
	p.t.Helper()
	_, err := p.client().Bind(deadline(p.t), p.sign(nil))
	must(p.t, err)
	return p.access(nil)
}

// relayed asks as the agent does, and gives the status and the problem's code.
func (p *pod) relayed(path string) (int, string) {
	p.t.Helper()
	return get(p.t, "http://"+p.ip+":7777"+path)
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	var problem sandboxapi.Problem
	raw, err := io.ReadAll(resp.Body)
	must(t, err)
	_ = json.Unmarshal(raw, &problem) // what isn't one has no code
	return resp.StatusCode, problem.Code
}

// agentsListener plays the gateway's listener for agents.
type agentsListener struct {
	t      *testing.T
	server *httptest.Server

	mu    sync.Mutex
	asked []string // "path bearer"
	// secrets are those that came with binds.
	secrets []string
	// answer overrides what is answered to a bind or a renewal; true says that it did.
	answer func(w http.ResponseWriter, n int) bool
	life   time.Duration // of a token
}

func newAgentsListener(t *testing.T) *agentsListener {
	g := &agentsListener{t: t, life: 10 * time.Minute}
	g.server = httptest.NewServer(http.HandlerFunc(g.serve))
	t.Cleanup(g.server.Close)
	return g
}

func (g *agentsListener) serve(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	g.asked = append(g.asked, r.URL.Path+" "+r.Header.Get("Authorization"))
	n, answer, life := len(g.asked), g.answer, g.life
	g.mu.Unlock()
	if r.URL.Path != sandboxapi.PathRedeem && r.URL.Path != sandboxapi.PathRenew {
		return
	}
	var req sandboxapi.BindRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		g.t.Error(err)
	}
	g.mu.Lock()
	g.secrets = append(g.secrets, req.Secret)
	g.mu.Unlock()
	if answer != nil && answer(w, n) {
		return
	}
	b, err := bind.Read(workloadKey.Public().(ed25519.PublicKey), req.Bind)
	if err != nil {
		g.t.Errorf("a bind that is none was presented: %v", err)
	}
	if !b.IsBy(req.Secret) {
		g.t.Error("a bind was presented with a secret that isn't its process's")
	}
	if err := json.NewEncoder(w).Encode(sandboxapi.Grant{
		Tenant: b.Tenant, Session: b.Session, Generation: b.Generation, PodUID: b.PodUID,
		Token: fmt.Sprintf("session-token-%d", n), ExpiresUnix: time.Now().Add(life).Unix(), PolicyRevision: 1,
	}); err != nil {
		g.t.Error(err)
	}
}

// script changes how it answers.
func (g *agentsListener) script(life time.Duration, answer func(w http.ResponseWriter, n int) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.life, g.answer = life, answer
}

// heard is all that it was asked.
func (g *agentsListener) heard() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string(nil), g.asked...)
}

// presented are the secrets of all binds that were presented.
func (g *agentsListener) presented() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string(nil), g.secrets...)
}

// status is the HTTP status of a problem.
func status(err error) int {
	if p, ok := errors.AsType[*sandboxapi.Problem](err); ok {
		return p.Status
	}
	return 0
}

// cut ends the connection without an answer.
func cut(t *testing.T, w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	_ = conn.Close()
}

// cancelled is a context that ends in a moment: the asker goes, what it began goes on.
func cancelled(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}
