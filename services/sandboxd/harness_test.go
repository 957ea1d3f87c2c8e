package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/agui"
)

// mainEnv turns the test binary into sandboxd, or into an agent for tests.
const mainEnv = "SANDBOXD_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainEnv) == "" {
		os.Exit(m.Run())
	}
	if len(os.Args) > 1 && os.Args[1] == "test-server" {
		os.Exit(serveTestAgent())
	}
	os.Exit(dispatch(os.Args[1:]))
}

// patience bounds every wait; nothing takes nearly that long.
const patience = 20 * time.Second

const (
	testSession = "s-abcdefghijklmnopqrst"
	testPod     = "pod-1"
	testBind    = "signed.bind.1"
)

// parent plays the workload driver: it has started one sandboxd.
type parent struct {
	t        *testing.T
	cmd      *exec.Cmd
	control  *sandboxapi.Channel
	conn     net.Conn
	endpoint string
	policy   *fakePolicy
	said     chan sandboxapi.Control
	exited   chan error
}

// startSandbox starts sandboxd with the given agent in the given workspace.
func startSandbox(t *testing.T, workspace string, argv ...string) *parent {
	t.Helper()
	p := &parent{t: t, policy: newFakePolicy(t), said: make(chan sandboxapi.Control, 16), exited: make(chan error, 1)}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
	p.conn, err = net.FileConn(ours)
	must(t, err)
	must(t, ours.Close())

	socket := filepath.Join(t.TempDir(), strings.Repeat("long-", 20), "sandboxd.sock")
	listener := listenLong(t, socket)
	listenFile, err := listener.File()
	must(t, err)
	p.endpoint = "unix:" + socket

	p.cmd = exec.Command(os.Args[0], "supervise")
	p.cmd.Env = append(os.Environ(), mainEnv+"=1")
	p.cmd.Stderr = os.Stderr
	p.cmd.ExtraFiles = []*os.File{theirs, listenFile}
	must(t, p.cmd.Start())
	must(t, errors.Join(theirs.Close(), listenFile.Close(), listener.Close()))
	go func() { p.exited <- p.cmd.Wait() }()
	t.Cleanup(func() {
		_ = p.conn.Close()
		p.waitExit()
	})

	p.control = sandboxapi.NewChannel(p.conn)
	must(t, p.control.Send(sandboxapi.Control{Type: sandboxapi.ControlBoot, Boot: &sandboxapi.Boot{
		PodUID: testPod, Isolation: "none", Upstream: p.policy.server.URL, Workspace: workspace,
		SpoolDir: t.TempDir(), RelayAddr: "127.0.0.1:0",
		Agent: &sandboxapi.AgentProcess{
			Argv: append([]string{os.Args[0]}, argv...), Env: append(os.Environ(), mainEnv+"=1"),
			Adapter: "agui", ReadyPath: "/health", RunPath: "/run",
		},
	}}))
	go func() {
		defer close(p.said)
		for {
			m, err := p.control.Receive()
			if err != nil {
				return
			}
			p.said <- m
		}
	}()
	p.expect(sandboxapi.ControlBooted)
	return p
}

// listenLong listens on a path that is too long for a socket address.
func listenLong(t *testing.T, path string) *net.UnixListener {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	dir, err := os.Open(filepath.Dir(path))
	must(t, err)
	l, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
	must(t, err)
	must(t, dir.Close())
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	return l.(*net.UnixListener)
}

// waitExit waits for sandboxd's end and gives its exit code.
func (p *parent) waitExit() int {
	p.t.Helper()
	select {
	case err := <-p.exited:
		p.exited <- err
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		p.t.Fatal("sandboxd didn't end")
		return -1
	}
}

// expect waits for sandboxd's next word.
func (p *parent) expect(want sandboxapi.ControlType) sandboxapi.Control {
	p.t.Helper()
	select {
	case m, ok := <-p.said:
		if !ok || m.Type != want {
			p.t.Fatalf("sandboxd said %+v (open %v), want %s", m, ok, want)
		}
		return m
	case <-time.After(patience):
		p.t.Fatalf("sandboxd didn't say %s", want)
		return sandboxapi.Control{}
	}
}

func (p *parent) client(session string, generation uint64) *sandboxapi.Client {
	p.t.Helper()
	c, err := sandboxapi.NewClient(p.endpoint, session, generation)
	must(p.t, err)
	p.t.Cleanup(c.Close)
	return c
}

func testGrant() *sandboxapi.Grant {
	return &sandboxapi.Grant{
		Tenant: "default", Session: testSession, Generation: 1, PodUID: testPod,
		Token: "token-1", ExpiresUnix: time.Now().Add(10 * time.Minute).Unix(),
	}
}

// bound binds the sandbox, granting the redemption, and waits until it is ready.
func (p *parent) bound() *sandboxapi.Client {
	p.t.Helper()
	c := p.client(testSession, 1)
	done := make(chan error, 1)
	go func() {
		_, err := c.Bind(context.Background(), testBind)
		done <- err
	}()
	if m := p.expect(sandboxapi.ControlRedeem); m.Bind != testBind {
		p.t.Fatalf("redeems %q", m.Bind)
	}
	must(p.t, p.control.Send(sandboxapi.Control{Type: sandboxapi.ControlGranted, Grant: testGrant()}))
	must(p.t, <-done)
	_, err := c.WaitReady(deadline(p.t))
	must(p.t, err)
	return c
}

// deadline is a context for one wait.
func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually polls a condition that nothing announces.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(patience); ; {
		if cond() {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("never: %s", what)
		}
	}
}

// input makes a RunAgentInput.
func input(runID, message string, extra map[string]any) sandboxapi.RunRequest {
	in := map[string]any{
		"threadId": testSession, "runId": runID, "protocolVersion": "1.0", "state": map[string]any{},
		"messages": []any{map[string]any{"id": "m1", "role": "user", "content": message}},
		"tools":    []any{}, "context": []any{}, "forwardedProps": map[string]any{},
	}
	maps.Copy(in, extra)
	return sandboxapi.RunRequest{RunID: runID, Input: agui.Encode(in)}
}

// event is what tests look at.
type event struct {
	Type       string          `json:"type"`
	MessageID  string          `json:"messageId"`
	ToolCallID string          `json:"toolCallId"`
	Delta      string          `json:"delta"`
	Content    string          `json:"content"`
	Message    string          `json:"message"`
	Code       string          `json:"code"`
	Snapshot   json.RawMessage `json:"snapshot"`
	Outcome    *agui.Outcome   `json:"outcome"`
}

// transcript is one run as its spool told it.
type transcript struct {
	lines  []sandboxapi.SpoolLine
	events []event
	end    sandboxapi.SpoolLine
}

// follow reads a run to its end and holds it to the protocol and to k.
func follow(t *testing.T, c *sandboxapi.Client, run string, each func(event)) transcript {
	t.Helper()
	var tr transcript
	order := agui.NewOrder(testSession, run)
	for line, err := range c.Spool(deadline(t), run, 1) {
		must(t, err)
		if line.End {
			tr.end = line
			continue
		}
		if line.K != uint64(len(tr.lines)+1) {
			t.Fatalf("k %d after %d events", line.K, len(tr.lines))
		}
		_, _, err := order.Accept(line.Event)
		must(t, err)
		var e event
		must(t, json.Unmarshal(line.Event, &e))
		tr.lines, tr.events = append(tr.lines, line), append(tr.events, e)
		if each != nil {
			each(e)
		}
	}
	if !tr.end.End {
		t.Fatal("the spool ended without an end")
	}
	return tr
}

// text joins what a person saw.
func (tr transcript) text() string {
	var b strings.Builder
	for _, e := range tr.events {
		if e.Type == agui.TypeTextContent {
			b.WriteString(e.Delta)
		}
	}
	return b.String()
}

// state is the last snapshot.
func (tr transcript) state() json.RawMessage {
	for _, e := range slices.Backward(tr.events) {
		if e.Type == agui.TypeStateSnapshot {
			return e.Snapshot
		}
	}
	return nil
}

// types lists the event types.
func (tr transcript) types() []string {
	var list []string
	for _, e := range tr.events {
		list = append(list, e.Type)
	}
	return list
}

// fakePolicy plays the gateway's agent API: a command's verdict is its first
// word's ("ask …", "deny …", all else is allowed).
type fakePolicy struct {
	server *httptest.Server

	mu      sync.Mutex
	calls   map[string]string // call id by agentCallId
	nonces  map[string]string // by call id
	reports map[string]report // by call id
	seen    []string          // "METHOD path"
	tokens  []string
	outage  int // so many requests are still answered 503
}

// report is what the agent said of an execution.
type report struct {
	RunID    string `json:"runId"`
	Nonce    string `json:"nonce"`
	ExitCode int    `json:"exitCode"`
	Output   string `json:"output"`
}

func newFakePolicy(t *testing.T) *fakePolicy {
	f := &fakePolicy{calls: map[string]string{}, nonces: map[string]string{}, reports: map[string]report{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/agent/calls", f.propose)
	mux.HandleFunc("POST /v1/agent/calls/{id}/start", f.start)
	mux.HandleFunc("POST /v1/agent/calls/{id}/result", f.result)
	f.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.seen = append(f.seen, r.Method+" "+r.URL.Path)
		f.tokens = append(f.tokens, r.Header.Get("Authorization"))
		away := f.outage > 0
		if away {
			f.outage--
		}
		f.mu.Unlock()
		if away {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(f.server.Close)
	return f
}

func (f *fakePolicy) propose(w http.ResponseWriter, r *http.Request) {
	var p struct {
		AgentCallID, RunID, Tool string
		Args                     struct{ Command string }
		Modes                    []string
	}
	if json.NewDecoder(r.Body).Decode(&p) != nil || p.AgentCallID == "" || p.RunID == "" || p.Tool != "shell" || len(p.Modes) == 0 {
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	id := f.calls[p.AgentCallID]
	if id == "" {
		id = fmt.Sprintf("%s.c-%d", testSession, len(f.calls)+1)
		f.calls[p.AgentCallID] = id
	}
	answer := map[string]any{"call": id, "argsHash": "hash-of-" + id}
	switch verb, _, _ := strings.Cut(p.Args.Command, " "); verb {
	case "deny":
		answer["decision"], answer["reason"], answer["rule"] = "deny", "nobody needs this", "never"
	case "ask":
		answer = map[string]any{"approval": id, "argsHash": "hash-of-" + id, "mode": "park"}
		w.WriteHeader(http.StatusAccepted)
	default:
		answer["decision"] = "allow"
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func (f *fakePolicy) start(w http.ResponseWriter, r *http.Request) {
	var e struct{ RunID, ArgsHash, Nonce string }
	_ = json.NewDecoder(r.Body).Decode(&e)
	f.mu.Lock()
	defer f.mu.Unlock()
	id := r.PathValue("id")
	if e.ArgsHash != "hash-of-"+id || e.Nonce == "" {
		w.WriteHeader(http.StatusPreconditionFailed)
		return
	}
	if had := f.nonces[id]; had != "" && had != e.Nonce {
		w.WriteHeader(http.StatusConflict)
		_ = json.NewEncoder(w).Encode(map[string]any{"code": "already-started", "detail": "it was started already"})
		return
	}
	f.nonces[id] = e.Nonce
	_ = json.NewEncoder(w).Encode(map[string]any{"go": true})
}

func (f *fakePolicy) result(w http.ResponseWriter, r *http.Request) {
	var rep report
	_ = json.NewDecoder(r.Body).Decode(&rep)
	f.mu.Lock()
	defer f.mu.Unlock()
	id := r.PathValue("id")
	if f.nonces[id] != rep.Nonce {
		w.WriteHeader(http.StatusConflict)
		return
	}
	f.reports[id] = rep
	_ = json.NewEncoder(w).Encode(map[string]any{})
}

// report is what was reported of the n-th call.
func (f *fakePolicy) report(n int) (report, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	rep, ok := f.reports[fmt.Sprintf("%s.c-%d", testSession, n)]
	return rep, ok
}
