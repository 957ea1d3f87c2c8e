package gateway_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	fold "github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
	"github.com/holdfast-io/holdfast/services/gateway"
	"github.com/holdfast-io/holdfast/services/internal/bind"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/broker/brokertest"
	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/internal/sandboxtoken"
	"github.com/holdfast-io/holdfast/services/workload/workloadtest"
)

const (
	podUID   = "4f6b2c1e-0a55-4b7e-9d3f-0d1f0a6c7e11"
	otherPod = "11111111-0a55-4b7e-9d3f-0d1f0a6c7e11"
	// The tokens that Kubernetes gave to the two.
	podToken   = "projected-token-of-the-pod"
	otherToken = "projected-token-of-another"
)

// kubernetes plays its TokenReview; what the real one says of real tokens is tested at
// package tokenreview.
type kubernetes struct {
	mu    sync.Mutex
	asked []string
	away  bool
}

var errAway = errors.New("the API server is away")

// Review implements app.Reviewer.
func (k *kubernetes) Review(_ context.Context, token string) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked = append(k.asked, token)
	switch {
	case k.away:
		return "", errAway
	case token == podToken:
		return podUID, nil
	case token == otherToken:
		return otherPod, nil
	}
	return "", fmt.Errorf("%w: forged", workloadtest.ErrUnproven)
}

func (k *kubernetes) reviews() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.asked)
}

// words is a log that can be searched.
type words struct {
	mu   sync.Mutex
	said bytes.Buffer
}

// Write implements io.Writer.
func (w *words) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.said.Write(p)
}

func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.said.String()
}

// podWorld is a world whose sandboxes are Pods: what these present is decided by the
// workload service's own code, and the test says which Pod a session gets.
type podWorld struct {
	*world

	kube *kubernetes
	logs *words
}

func startPods(t *testing.T) *podWorld {
	t.Helper()
	p := &podWorld{kube: &kubernetes{}, logs: &words{}}
	p.startWith(t, p.kube)
	return p
}

func (p *podWorld) startWith(t *testing.T, reviewer *kubernetes) {
	t.Helper()
	p.world = start(t, func(w *world, cfg *gateway.Config) {
		cfg.Logger = slog.New(slog.NewTextHandler(p.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
		log, _ := w.logAs(broker.UserWorkload)
		app := workloadtest.AppConfig{Log: log, Epoch: cfg.Epoch, Key: w.key, Logger: cfg.Logger}
		if reviewer != nil {
			app.Reviewer = reviewer
		}
		w.redeemBind = workloadtest.RedeemBind(app)
	})
	p.await(events.ServiceWorkload)
	p.shell()
}

// claimed makes a session and gives it a Pod; bind is what the workload service signs for it.
func (p *podWorld) claimed(pod string) (session, signed string) {
	p.t.Helper()
	session = p.create().ID
	p.append(p.workload, events.ServiceWorkload, session, fold.ClaimRequested{Generation: 1, Deadline: time.Now().Add(time.Minute)})
	p.append(p.workload, events.ServiceWorkload, session,
		fold.Claimed{Generation: 1, SandboxUID: "box-1", PodUID: pod, Path: "warm", Isolation: "runc"})
	return session, p.sign(p.key, bind.Bind{Tenant: "default", Session: session, Generation: 1, PodUID: pod, Agents: p.agents})
}

func (p *podWorld) sign(key ed25519.PrivateKey, b bind.Bind) string {
	p.t.Helper()
	signed, err := bind.Sign(key, b, time.Now().Add(time.Minute))
	if err != nil {
		p.t.Fatal(err)
	}
	return signed
}

// sidecar starts the real sandboxd as a Pod's, at a loopback address of its own, and says
// where it is reached from outside and by its agent.
func (p *podWorld) sidecar(ip string) (url, inside string) {
	p.t.Helper()
	dir := p.t.TempDir()
	tokenFile := filepath.Join(dir, "token")
	if err := os.WriteFile(tokenFile, []byte(podToken), 0o600); err != nil {
		p.t.Fatal(err)
	}
	cmd := exec.Command(harness.Sandboxd(p.t), "sidecar")
	cmd.Env = []string{
		sandboxapi.EnvPodUID + "=" + podUID,
		sandboxapi.EnvBindKey + "=" + base64.StdEncoding.EncodeToString(p.key.Public().(ed25519.PublicKey)),
		sandboxapi.EnvSpool + "=" + filepath.Join(dir, "spool"), sandboxapi.EnvTokenFile + "=" + tokenFile,
		sandboxapi.EnvListen + "=" + ip + ":7778", sandboxapi.EnvRelay + "=" + ip + ":7777",
	}
	cmd.Stderr = p.logs
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			p.t.Errorf("sandboxd: %v", err)
		}
	})
	url, inside = "http://"+ip+":7778", "http://"+ip+":7777"
	brokertest.Eventually(p.t, 10*time.Second, "sandboxd answers", func() bool {
		resp, err := plain.Get(url + sandboxapi.PathHealth)
		return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	})
	return url, inside
}

// A Pod's sandboxd, bound by way of the gateway and the workload service, speaks for its
// session, and is reached for it.
func TestPodIsBound(t *testing.T) {
	t.Parallel()
	p := startPods(t)
	session, signed := p.claimed(podUID)
	url, inside := p.sidecar("127.77.0.1")
	request(t, "GET", inside+"/v1/agent/session", nil).want(503)
	direct, err := sandboxapi.NewClient(url, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	for range 2 {
		if h, err := direct.Bind(t.Context(), signed); err != nil || h.Session != session {
			t.Fatalf("bound: %+v, %v", h, err)
		}
	}
	if n := p.kube.reviews(); n != 1 {
		t.Errorf("redeemed %d times", n)
	}
	me := decode[api.AgentSession](request(t, "GET", inside+"/v1/agent/session", nil).want(200))
	if me.ID != session {
		t.Errorf("the agent is %+v", me)
	}
	access, _, err := sandboxtoken.MintAccess(p.key, sandboxtoken.Claims{Tenant: "default", Session: session, Generation: 1, PodUID: podUID}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	through, err := sandboxapi.NewClientAt(sandboxapi.Endpoint{URL: url, Access: access}, session, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer through.Close()
	if h, err := through.Health(t.Context()); err != nil || h.Session != session {
		t.Errorf("reached: %+v, %v", h, err)
	}
	p.nothingTold(signed)
}

// nothingTold looks for what must be nowhere: in logs and in events.
func (p *podWorld) nothingTold(secrets ...string) {
	p.t.Helper()
	_, nc := p.logAs(broker.UserInstaller)
	js, err := jetstream.New(nc)
	if err != nil {
		p.t.Fatal(err)
	}
	said := p.logs.String()
	if !strings.Contains(said, "redeem-bind") {
		p.t.Error("the log tells nothing of the bind at all")
	}
	for _, secret := range append(secrets, podToken, otherToken) {
		if strings.Contains(said, secret) {
			p.t.Errorf("%.20s… is in a log", secret)
		}
	}
	stream, err := js.Stream(p.t.Context(), events.StreamEvents)
	if err != nil {
		p.t.Fatal(err)
	}
	last := stream.CachedInfo().State.LastSeq
	for seq := uint64(1); seq <= last; seq++ {
		m, err := stream.GetMsg(p.t.Context(), seq)
		if err != nil {
			p.t.Fatal(err)
		}
		for _, secret := range append(secrets, podToken, otherToken) {
			if bytes.Contains(m.Data, []byte(secret)) {
				p.t.Errorf("%.20s… is in event %d", secret, seq)
			}
		}
	}
}

// A gateway that restarts costs the bind time alone.
func TestPodIsBoundAcrossARestart(t *testing.T) {
	t.Parallel()
	p := startPods(t)
	session, signed := p.claimed(podUID)
	url, inside := p.sidecar("127.77.0.2")
	p.stopGateway()
	bound := make(chan error, 1)
	go func() {
		c, err := sandboxapi.NewClient(url, "", 0)
		if err == nil {
			defer c.Close()
			_, err = c.Bind(t.Context(), signed)
		}
		bound <- err
	}()
	brokertest.Eventually(t, 10*time.Second, "it was tried in vain", func() bool {
		return strings.Contains(p.logs.String(), "bind not redeemed yet")
	})
	cfg := p.cfg
	cfg.Listener, cfg.Metrics = listen(t), nil
	var err error
	if cfg.AgentListener, err = net.Listen("tcp", strings.TrimPrefix(p.agents, "http://")); err != nil {
		t.Fatal(err)
	}
	p.run("gateway again", func(ctx context.Context) error { return gateway.Run(ctx, cfg) })
	if err := <-bound; err != nil {
		t.Fatal(err)
	}
	if me := decode[api.AgentSession](request(t, "GET", inside+"/v1/agent/session", nil).want(200)); me.ID != session {
		t.Errorf("the agent is %+v", me)
	}
}

// Whoever presents what isn't its own gets nothing, and where no bind is, nobody asks
// Kubernetes.
func TestPodIsRefused(t *testing.T) {
	t.Parallel()
	p := startPods(t)
	session, signed := p.claimed(podUID)
	_, foreign, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	own := bind.Bind{Tenant: "default", Session: session, Generation: 1, PodUID: podUID, Agents: p.agents}
	with := func(change func(*bind.Bind)) string {
		b := own
		change(&b)
		return p.sign(p.key, b)
	}
	old, err := bind.Sign(p.key, own, time.Now().Add(-time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	sessionToken := p.sandboxToken(session, 1, podUID)
	for _, test := range []struct {
		name, bearer, bind string
		code               api.Code
		reviews            int
	}{
		{"no token", "", signed, api.CodeUnauthenticated, 0},
		{"an endless token", strings.Repeat("x", 20<<10), signed, api.CodeUnauthenticated, 0},
		{"another Pod's token", otherToken, signed, api.CodeBindRefused, 1},
		{"a forged token", "forged", signed, api.CodeUnauthenticated, 1},
		{"a session's token", sessionToken, signed, api.CodeUnauthenticated, 1},
		{"a person's token", tokenOf("admin"), signed, api.CodeUnauthenticated, 1},
		{"a forged bind", podToken, p.sign(foreign, own), api.CodeBindRefused, 0},
		{"no bind at all", podToken, "x", api.CodeBindRefused, 0},
		{"a session's token as the bind", podToken, sessionToken, api.CodeBindRefused, 0},
		{"an endless bind", podToken, strings.Repeat("x", 5000), api.CodeInvalidRequest, 0},
		{"an empty bind", podToken, "", api.CodeInvalidRequest, 0},
		{"a bind of another Pod", podToken, with(func(b *bind.Bind) { b.PodUID = otherPod }), api.CodeBindRefused, 1},
		{"another life of the Pod", podToken, with(func(b *bind.Bind) { b.PodUID += ".1" }), api.CodeBindRefused, 1},
		{"another session", podToken, with(func(b *bind.Bind) { b.Session = someSession }), api.CodeBindRefused, 1},
		{"another generation", podToken, with(func(b *bind.Bind) { b.Generation = 2 }), api.CodeBindRefused, 1},
		{"another tenant", podToken, with(func(b *bind.Bind) { b.Tenant = "other" }), api.CodeBindRefused, 1},
		{"after the deadline", podToken, old, api.CodeBindRefused, 1},
	} {
		before := p.kube.reviews()
		p.ask(test.bearer, "POST", "/v1/agent/bind", api.BindPresented{Bind: test.bind}).problem(test.code)
		if got := p.kube.reviews() - before; got != test.reviews {
			t.Errorf("%s: Kubernetes was asked %d times", test.name, got)
		}
	}
	renewed := decode[api.SandboxGrant](p.ask(podToken, "POST", "/v1/agent/renew", api.BindPresented{Bind: old}).want(200))
	if renewed.Session != session || renewed.PodUID != podUID || renewed.Token == "" {
		t.Errorf("renewed after the deadline: %+v", renewed)
	}
	p.ask(renewed.Token, "GET", "/v1/agent/session", nil).want(200)
	p.kube.mu.Lock()
	p.kube.away = true
	p.kube.mu.Unlock()
	p.ask(podToken, "POST", "/v1/agent/bind", api.BindPresented{Bind: signed}).problem(api.CodeNotReady)
	p.nothingTold(signed, old, renewed.Token)
}

// A flood of one incarnation's stays the gateway's.
func TestPodFloods(t *testing.T) {
	t.Parallel()
	p := startPods(t)
	_, signed := p.claimed(podUID)
	statuses := map[int]int{}
	for range 100 {
		statuses[p.ask(podToken, "POST", "/v1/agent/bind", api.BindPresented{Bind: signed}).status]++
	}
	if statuses[http.StatusOK] == 0 || statuses[http.StatusTooManyRequests] == 0 || len(statuses) != 2 {
		t.Errorf("answered %v", statuses)
	}
	if got := p.kube.reviews(); got != statuses[http.StatusOK] {
		t.Errorf("Kubernetes was asked %d times, for %d answers", got, statuses[http.StatusOK])
	}
	// Another's has room.
	_, other := p.claimed(otherPod)
	p.ask(otherToken, "POST", "/v1/agent/bind", api.BindPresented{Bind: other}).want(200)
}

// Where the workload service runs no Pods, nobody is granted anything this way.
func TestNoPods(t *testing.T) {
	t.Parallel()
	p := &podWorld{logs: &words{}}
	p.startWith(t, nil)
	_, signed := p.claimed(podUID)
	got := p.ask(podToken, "POST", "/v1/agent/bind", api.BindPresented{Bind: signed})
	got.problem(api.CodeBindRefused)
	if !slices.Contains(got.header.Values("Content-Type"), api.ProblemContentType) {
		t.Errorf("headers: %v", got.header)
	}
}

// An agent in a Pod may open what it likes at the agents' listener: it is dropped there,
// and others are heard.
func TestPodOpensTooMuch(t *testing.T) {
	t.Parallel()
	const most = 2048 // gateway's maxAgentConns
	p := startPods(t)
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	var last net.Conn
	for range most + 1 {
		conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(p.agents, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		last = conn
	}
	if err := last.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil { // sooner than a silent one is dropped
		t.Fatal(err)
	}
	if _, err := last.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("one too many: %v", err)
	}
	_, signed := p.claimed(podUID)
	p.ask(podToken, "POST", "/v1/agent/bind", api.BindPresented{Bind: signed}).want(200)
}
