package gateway_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/eventlog/natslog"
	"github.com/holdfast-io/holdfast/events/output"
	"github.com/holdfast-io/holdfast/events/output/natsoutput"
	"github.com/holdfast-io/holdfast/events/runtime"
	fold "github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/gateway"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/broker/brokertest"
	"github.com/holdfast-io/holdfast/services/internal/command"
	"github.com/holdfast-io/holdfast/services/internal/sandboxtoken"
	"github.com/holdfast-io/holdfast/services/internal/serving"
	"github.com/holdfast-io/holdfast/services/internal/tokenfile"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
	"github.com/holdfast-io/holdfast/services/policy"
	"github.com/holdfast-io/holdfast/services/session"
)

var quiet = slog.New(slog.DiscardHandler)

// people are in the tokens file, each with the token "hf_test_token_of_<name>".
var people = []tokenfile.Entry{
	{Name: "admin", Roles: []api.Role{"admin", "developer", "operator", "approver", "auditor"}, Tenants: []string{"default"}},
	{Name: "alice", Roles: []api.Role{"developer"}, Tenants: []string{"default"}},
	{Name: "bob", Roles: []api.Role{"approver"}, Groups: []string{"sre"}, Tenants: []string{"default"}},
	{Name: "olga", Roles: []api.Role{"operator"}, Tenants: []string{"default"}},
	{Name: "ada", Roles: []api.Role{"auditor"}, Tenants: []string{"default"}},
	{Name: "nobody", Roles: []api.Role{}, Tenants: []string{"default"}},
	{Name: "mallory", Roles: []api.Role{"admin", "developer"}, Tenants: []string{"other"}},
	{Name: "trent", Roles: []api.Role{"admin", "developer"}, Tenants: []string{"default", "other"}},
}

func tokenOf(name string) string { return "hf_test_token_of_" + name }

// world is everything that runs in one test.
type world struct {
	t       *testing.T
	nats    *brokertest.Server
	gateway *gateway.Gateway
	cfg     gateway.Config
	// stopGateway and stopAll end what runs, and return when it has ended.
	stopGateway, stopAll func()
	// run runs something until stop or the test's end.
	run func(name string, f func(context.Context) error) (stop func())
	// url and agents are the two listeners.
	url, agents string
	tokens      string
	key         ed25519.PrivateKey
	log         eventlog.Log

	workload, runner *eventlog.Store[*fold.State]
	runtimes         *eventlog.Store[*runtime.State]

	mu sync.Mutex
	// endpoints say where a session's sandbox answers.
	endpoints map[string]string
	locates   int
	// redeemBind answers Pods, where there are any.
	redeemBind command.Handler
}

// option changes a world before it starts.
type option func(*world, *gateway.Config)

// start runs a world until the test ends.
func start(t *testing.T, options ...option) *world {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, nats: brokertest.Start(t), key: private, endpoints: map[string]string{}}
	w.log, _ = w.logAs(broker.UserGateway)
	w.tokens = writeTokens(t)
	running, stop := context.WithCancel(context.Background())
	var services sync.WaitGroup
	w.stopAll = func() { stop(); services.Wait() }
	t.Cleanup(w.stopAll)
	w.run = func(name string, f func(context.Context) error) (stop func()) {
		ctx, cancel := context.WithCancel(running)
		ended := make(chan struct{})
		services.Go(func() {
			defer close(ended)
			if err := f(ctx); err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
		})
		return func() { cancel(); <-ended }
	}
	w.run("session", func(ctx context.Context) error { return session.Run(ctx, w.serving(broker.UserSession)) })
	w.run("policy", func(ctx context.Context) error { return policy.Run(ctx, w.serving(broker.UserPolicy)) })
	w.workload, w.runner = w.storeAs(broker.UserWorkload), w.storeAs(broker.UserRunner)

	cfg := gateway.Config{
		NC: w.nats.NC(broker.UserGateway), Log: w.log, Epoch: w.nats.Genesis.Epoch, Views: down(t, w.nats.Genesis.Epoch), Output: w.output(),
		TokensFile: w.tokens, SandboxKey: public, Listener: listen(t), AgentListener: listen(t), Logger: quiet,
		Console: fstest.MapFS{
			"index.html": {Data: []byte("<!doctype html><title>Holdfast</title>")},
			"app.js":     {Data: []byte("export {}")},
		},
	}
	for _, o := range options {
		o(w, &cfg)
	}
	w.serveWorkload(cfg.Logger)
	if w.gateway, err = gateway.New(cfg); err != nil {
		t.Fatal(err)
	}
	w.url, w.agents = "http://"+cfg.Listener.Addr().String(), "http://"+cfg.AgentListener.Addr().String()
	w.cfg = cfg
	w.stopGateway = w.run("gateway", w.gateway.Run)
	w.await(events.ServiceSession, events.ServicePolicy)
	return w
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func writeTokens(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	entries := make([]tokenfile.Entry, len(people))
	for i, p := range people {
		p.Token = tokenOf(p.Name)
		entries[i] = p
	}
	if err := tokenfile.Write(path, entries); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("tokens file: %v, %v", info.Mode(), err)
	}
	return path
}

func (w *world) logAs(u broker.User) (*natslog.Log, *nats.Conn) {
	w.t.Helper()
	nc := w.nats.NC(u)
	js, err := jetstream.New(nc)
	if err != nil {
		w.t.Fatal(err)
	}
	log, err := natslog.New(js, nc, natslog.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	return log, nc
}

func (w *world) serving(u broker.User) serving.Config {
	log, nc := w.logAs(u)
	return serving.Config{NC: nc, Log: log, Epoch: w.nats.Genesis.Epoch, Views: idle{}, Logger: quiet}
}

func (w *world) storeAs(u broker.User) *eventlog.Store[*fold.State] {
	log, _ := w.logAs(u)
	return eventlog.NewStore(eventlog.Config[*fold.State]{Log: log, New: fold.New, Service: events.Service(u)})
}

func (w *world) output() output.Stream {
	w.t.Helper()
	nc := w.nats.NC(broker.UserGateway)
	js, err := jetstream.New(nc)
	if err != nil {
		w.t.Fatal(err)
	}
	out, err := natsoutput.New(js, nc, natsoutput.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// await waits until services answer.
func (w *world) await(services ...events.Service) {
	w.t.Helper()
	nc := w.nats.NC(broker.UserInstaller)
	for _, s := range services {
		brokertest.Eventually(w.t, 10*time.Second, string(s)+" answers", func() bool {
			_, err := nc.Request("$SRV.PING.holdfast-"+string(s), nil, time.Second)
			return err == nil
		})
	}
}

// serveWorkload answers the workload service's verbs: runtimes are applied as
// they come, and sandboxes are where the test says.
func (w *world) serveWorkload(logger *slog.Logger) {
	log, nc := w.logAs(broker.UserWorkload)
	w.runtimes = eventlog.NewStore(eventlog.Config[*runtime.State]{Log: log, New: runtime.New, Service: events.ServiceWorkload})
	handlers := map[string]command.Handler{
		verbs.RuntimeApply: w.applyRuntime, verbs.RuntimeRemove: w.removeRuntime, verbs.Locate: w.locate,
	}
	if w.redeemBind != nil {
		handlers[verbs.RedeemBind] = w.redeemBind
	}
	server, err := command.Serve(nc, events.ServiceWorkload, handlers, logger)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = server.Stop(context.Background()) })
}

func (w *world) applyRuntime(ctx context.Context, tenant string, req command.Request) (command.Reply, error) {
	body, err := command.Decode[verbs.ApplyBody](req)
	if err != nil {
		return command.Reply{}, err
	}
	var spec runtime.Spec
	if err := json.Unmarshal(body.Spec, &spec); err != nil {
		return command.Reply{}, err
	}
	subject, err := events.SubjectOf(events.AggregateRuntime, tenant, body.Name)
	if err != nil {
		return command.Reply{}, err
	}
	res, err := w.runtimes.Execute(ctx, subject, eventlog.Command{ID: req.CommandID, Actor: req.Actor},
		func(s *runtime.State, _ time.Time) ([]events.Record, error) {
			if rev, ok := s.Current(); ok {
				before, _ := json.Marshal(rev.Spec)
				if now, _ := json.Marshal(spec); bytes.Equal(before, now) {
					return nil, nil
				}
			}
			r, err := s.ApplyRecord(spec)
			return []events.Record{r}, err
		})
	if err != nil {
		return command.Reply{}, err
	}
	return command.Result(res.N, res.Seq, res.Repeated, verbs.ApplyResult{Revision: res.N, Changed: len(res.Records) > 0})
}

func (w *world) removeRuntime(ctx context.Context, tenant string, req command.Request) (command.Reply, error) {
	body, err := command.Decode[verbs.RemoveBody](req)
	if err != nil {
		return command.Reply{}, err
	}
	subject, err := events.SubjectOf(events.AggregateRuntime, tenant, body.Name)
	if err != nil {
		return command.Reply{}, err
	}
	res, err := w.runtimes.Execute(ctx, subject, eventlog.Command{ID: req.CommandID, Actor: req.Actor},
		func(s *runtime.State, _ time.Time) ([]events.Record, error) {
			if _, ok := s.Current(); !ok {
				return nil, api.Err(api.CodeRuntimeNotFound)
			}
			return []events.Record{s.RemoveRecord()}, nil
		})
	return command.Reply{N: res.N, Seq: res.Seq}, err
}

func (w *world) locate(ctx context.Context, tenant string, req command.Request) (command.Reply, error) {
	subject, err := events.SessionSubject(tenant, req.Session)
	if err != nil {
		return command.Reply{}, err
	}
	var found verbs.LocateResult
	w.mu.Lock()
	found.Endpoint = w.endpoints[req.Session]
	w.locates++
	w.mu.Unlock()
	if found.Endpoint == "" {
		return command.Reply{}, api.Err(api.CodeSandboxUnreachable)
	}
	err = w.workload.Read(ctx, subject, func(s eventlog.Snapshot[*fold.State]) error {
		found.Generation, found.PodUID = s.State.Workload.Generation, s.State.Workload.PodUID
		return nil
	})
	if err != nil {
		return command.Reply{}, err
	}
	return command.Result(0, 0, false, found)
}

// append writes a service's own events on a session, as that service would.
func (w *world) append(store *eventlog.Store[*fold.State], service events.Service, id string, payloads ...fold.Payload) {
	w.t.Helper()
	subject, err := events.SessionSubject("default", id)
	if err != nil {
		w.t.Fatal(err)
	}
	_, err = store.Execute(w.t.Context(), subject, eventlog.Command{
		ID: events.RandomID(events.PrefixCommand), Actor: events.Actor{Kind: events.ActorService, ID: string(service)},
	}, func(*fold.State, time.Time) ([]events.Record, error) { return fold.Records(service, payloads...) })
	if err != nil {
		w.t.Fatal(err)
	}
}

const isolation = "namespaces+landlock+seccomp"

// ready gives a session its sandbox.
func (w *world) ready(id string) {
	w.t.Helper()
	w.append(w.workload, events.ServiceWorkload, id, fold.ClaimRequested{Generation: 1, Deadline: time.Now().Add(time.Minute)})
	w.append(w.workload, events.ServiceWorkload, id,
		fold.Claimed{Generation: 1, SandboxUID: "box-1", PodUID: "pod-1", Path: "warm", Isolation: isolation},
		fold.Ready{Generation: 1, SandboxUID: "box-1", PodUID: "pod-1", Path: "warm", Isolation: isolation})
}

// runStarted opens the run of the session's oldest queued message.
func (w *world) runStarted(id, run, requester string) {
	w.t.Helper()
	w.append(w.runner, events.ServiceRunner, id, fold.RunStarted{
		RunID: run, Instance: "i-1", Generation: 1, PodUID: "pod-1", Requester: requester,
	})
}

// lastSeq is the log's last sequence.
func (w *world) lastSeq() uint64 {
	w.t.Helper()
	info, err := w.log.Info(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return info.LastSeq
}

// sandboxToken is what a sandbox of the session holds.
func (w *world) sandboxToken(session string, generation uint64, pod string) string {
	w.t.Helper()
	token, _, err := sandboxtoken.Mint(w.key, sandboxtoken.Claims{
		Tenant: "default", Session: session, Generation: generation, PodUID: pod,
	}, time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	return token
}

// answer is what came back.
type answer struct {
	t      *testing.T
	status int
	header http.Header
	body   []byte
}

// call makes a request as somebody ("" for nobody). Headers are "Name: value". A
// body is JSON, or sent as it is if it is a string; a string's type is JSON too.
func (w *world) call(who, method, path string, body any, headers ...string) answer {
	w.t.Helper()
	if who != "" {
		headers = append(headers, "Authorization: Bearer "+tokenOf(who))
	}
	return request(w.t, method, w.url+path, body, headers...)
}

// ask makes an agent's request with a token.
func (w *world) ask(token, method, path string, body any, headers ...string) answer {
	w.t.Helper()
	if token != "" {
		headers = append(headers, "Authorization: Bearer "+token)
	}
	return request(w.t, method, w.agents+path, body, headers...)
}

// plain follows no redirects and keeps no connections, so that none outlives its
// test.
var plain = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true, DisableCompression: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func request(t *testing.T, method, url string, body any, headers ...string) answer {
	t.Helper()
	var content io.Reader
	if text, ok := body.(string); ok {
		content = strings.NewReader(text)
	} else if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		content = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url, content)
	if err != nil {
		t.Fatal(err)
	}
	if content != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if req.Header.Set(name, value); name == "Host" {
			req.Host = value // where net/http takes it from
		}
	}
	resp, err := plain.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer func() { _ = resp.Body.Close() }()
	out := answer{t: t, status: resp.StatusCode, header: resp.Header}
	if out.body, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	return out
}

// want fails the test unless the status is this one.
func (a answer) want(status int) answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	return a
}

// problem fails the test unless it is a problem of this code.
func (a answer) problem(code api.Code) api.Problem {
	a.t.Helper()
	var p api.Problem
	if err := json.Unmarshal(a.body, &p); err != nil || a.header.Get("Content-Type") != api.ProblemContentType {
		a.t.Fatalf("status %d, no problem (%s): %s", a.status, a.header.Get("Content-Type"), a.body)
	}
	if p.Code != code || p.Status != a.status || p.Type != "urn:holdfast:problem:"+string(code) || a.status != code.Status() {
		a.t.Fatalf("status %d, want %s: %s", a.status, code, a.body)
	}
	return p
}

// decode reads a body as T.
func decode[T any](a answer) T {
	a.t.Helper()
	var out T
	d := json.NewDecoder(bytes.NewReader(a.body))
	d.DisallowUnknownFields()
	if err := d.Decode(&out); err != nil {
		a.t.Fatalf("%v in %s", err, a.body)
	}
	return out
}

// shell is a runtime that asks about everything but ls.
func (w *world) shell() {
	w.t.Helper()
	w.call("admin", "PUT", "/v1/policies/coder", api.PolicySpec{
		Default: "ask", Rules: []api.PolicyRule{
			{Name: "reading", When: `tool == "shell" && args.command == "ls"`, Then: "allow"},
			{Name: "never", When: `tool == "shell" && args.command.startsWith("sudo ")`, Then: "deny", Reason: "nobody needs this"},
		},
	}).want(201)
	w.call("admin", "PUT", "/v1/runtimes/coder", map[string]any{
		"kind": "agent", "adapter": map[string]any{"protocol": "agui"}, "sandbox": map[string]any{"command": []string{"/bin/agent"}},
		"workspace": map[string]any{"path": "/workspace"}, "policy": "coder",
		"timeouts": map[string]any{"claim": "1m", "idle": "15m", "max": "8h", "suspendWhileWaiting": "2m"},
		"onIdle":   "suspend", "onLoss": "restart",
	}).want(201)
}

// create makes a session and says which.
func (w *world) create(headers ...string) api.Session {
	w.t.Helper()
	return decode[api.Session](w.call("alice", "POST", "/v1/sessions", map[string]any{"runtime": "coder"}, headers...).want(201))
}

// until waits until a session's state is as it should be.
func (w *world) until(id string, holds func(*fold.State) bool) {
	w.t.Helper()
	subject, err := events.SessionSubject("default", id)
	if err != nil {
		w.t.Fatal(err)
	}
	brokertest.Eventually(w.t, 10*time.Second, "the session came there", func() bool {
		done := false
		err := w.runner.Read(w.t.Context(), subject, func(s eventlog.Snapshot[*fold.State]) error {
			done = holds(s.State)
			return nil
		})
		return err == nil && done
	})
}
