package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/agui"
)

func code(err error) string {
	if p, ok := errors.AsType[*sandboxapi.Problem](err); ok {
		return p.Code
	}
	return ""
}

func startRun(t *testing.T, c *sandboxapi.Client, req sandboxapi.RunRequest) {
	t.Helper()
	started, err := c.StartRun(deadline(t), req)
	must(t, err)
	if !started {
		t.Fatalf("run %s was known already", req.RunID)
	}
}

func TestCommandsRunAsDecided(t *testing.T) {
	p := startSandbox(t, t.TempDir(), "shell-agent")
	c := p.bound()
	p.policy.mu.Lock()
	p.policy.outage = 2 // a control plane that restarts
	p.policy.mu.Unlock()
	startRun(t, c, input("r-1", "echo hello\n\ndeny rm -rf /\nmkdir sub; cd sub; export COLOR=blue; false\npwd; echo $COLOR; exit 7\n", nil))
	tr := follow(t, c, "r-1", nil)

	if tr.end.Outcome != agui.OutcomeSuccess {
		t.Fatalf("end: %+v", tr.end)
	}
	text := tr.text()
	for _, want := range []string{
		"$ echo hello\nhello\nexit 0\n",
		"$ deny rm -rf /\ndenied: nobody needs this (rule \"never\")\n",
		"false\nexit 1\n",
		"/sub\nblue\nexit 7\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %q", want, text)
		}
	}
	for n, exit := range map[int]int{1: 0, 3: 1, 4: 7} {
		rep, ok := p.policy.report(n)
		if !ok || rep.ExitCode != exit || rep.RunID != "r-1" {
			t.Errorf("call %d: reported %+v (%v), want exit %d", n, rep, ok, exit)
		}
	}
	if _, ok := p.policy.report(2); ok {
		t.Error("a denied call was reported as run")
	}
	for _, token := range p.policy.tokens {
		if token != "Bearer token-1" {
			t.Errorf("upstream saw authorization %q", token)
		}
	}
	if types := tr.types(); types[len(types)-2] != agui.TypeStateSnapshot {
		t.Errorf("no state before the end: %v", types)
	}

	t.Run("a repeated start changes nothing", func(t *testing.T) {
		started, err := c.StartRun(deadline(t), input("r-1", "echo again", nil))
		if started || err != nil {
			t.Fatalf("started %v, err %v", started, err)
		}
	})
	t.Run("a reader resumes at every k", func(t *testing.T) {
		for from := uint64(0); from <= uint64(len(tr.lines))+1; from++ {
			var got []sandboxapi.SpoolLine
			for line, err := range c.Spool(deadline(t), "r-1", from) {
				must(t, err)
				got = append(got, line)
			}
			want := append(slices.Clone(tr.lines[max(from, 1)-1:]), tr.end)
			if !slices.EqualFunc(got, want, sameLine) {
				t.Fatalf("from %d: got %d lines, want %d", from, len(got), len(want))
			}
		}
	})
}

func sameLine(a, b sandboxapi.SpoolLine) bool {
	return a.K == b.K && string(a.Event) == string(b.Event) && a.End == b.End && a.Outcome == b.Outcome
}

func TestParkedRunGoesOnWhereItWas(t *testing.T) {
	for _, tc := range []struct {
		name    string
		resume  map[string]any
		text    string
		written string
		outcome string
	}{
		{"approved", map[string]any{"status": "resolved", "payload": map[string]any{"approved": true}}, "exit 0", "before asked after ", "success"},
		{"denied", map[string]any{"status": "resolved", "payload": map[string]any{"approved": false, "reason": "not today"}}, "denied: not today", "before after ", "success"},
		{"expired", map[string]any{"status": "cancelled"}, "not run: the question ended without an answer", "before after ", "success"},
		{"edited", map[string]any{"status": "resolved", "payload": map[string]any{"approved": true, "editedArgs": map[string]any{"command": "true"}}}, "not run: edited arguments", "before after ", "success"},
		{"stale", map[string]any{"interruptId": "another", "status": "resolved"}, "", "before ", "error"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			workspace := t.TempDir()
			log := filepath.Join(workspace, "log")
			p := startSandbox(t, workspace, "shell-agent")
			c := p.bound()
			lines := "printf 'before ' >> " + log + "\nask () { printf 'asked ' >> " + log + "; }; ask\nprintf 'after ' >> " + log
			startRun(t, c, input("r-1", lines, nil))
			first := follow(t, c, "r-1", nil)
			last := first.events[len(first.events)-1]
			if first.end.Outcome != agui.OutcomeInterrupt || len(last.Outcome.Interrupts) != 1 {
				t.Fatalf("end: %+v, %+v", first.end, last)
			}
			question := last.Outcome.Interrupts[0]
			if question.Reason != "tool_call" || question.ToolCallID == "" || !strings.HasPrefix(question.ID, testSession+".c-") {
				t.Fatalf("question: %+v", question)
			}

			resume := map[string]any{"interruptId": question.ID}
			maps.Copy(resume, tc.resume)
			// The sandbox may be another one by then.
			p2 := startSandbox(t, workspace, "shell-agent")
			c2 := p2.bound()
			startRun(t, c2, input("r-2", lines, map[string]any{
				"parentRunId": "r-1", "state": first.state(), "resume": []any{resume},
			}))
			second := follow(t, c2, "r-2", nil)
			if second.end.Outcome != tc.outcome || !strings.Contains(second.text(), tc.text) {
				t.Errorf("end %+v, text %q", second.end, second.text())
			}
			raw, err := os.ReadFile(log)
			must(t, err)
			if string(raw) != tc.written {
				t.Errorf("ran %q, want %q", raw, tc.written)
			}
			for _, e := range second.events {
				if e.Type == agui.TypeToolStart && e.ToolCallID == question.ToolCallID {
					t.Error("the call was told a second time")
				}
			}
		})
	}
}

func TestNothingRunsTwice(t *testing.T) {
	workspace := t.TempDir()
	p := startSandbox(t, workspace, "shell-agent")
	c := p.bound()
	startRun(t, c, input("r-1", "ask () { :; }; ask; echo x >> log", nil))
	first := follow(t, c, "r-1", nil)
	answer := map[string]any{
		"parentRunId": "r-1", "state": first.state(),
		"resume": []any{map[string]any{
			"interruptId": first.events[len(first.events)-1].Outcome.Interrupts[0].ID,
			"status":      "resolved", "payload": map[string]any{"approved": true},
		}},
	}
	for _, run := range []string{"r-2", "r-3"} {
		startRun(t, c, input(run, "", answer))
		tr := follow(t, c, run, nil)
		if again := strings.Contains(tr.text(), "not run: Holdfast refused (409): it was started already"); again != (run == "r-3") {
			t.Errorf("%s: %q", run, tr.text())
		}
	}
	raw, err := os.ReadFile(filepath.Join(workspace, "log"))
	must(t, err)
	if string(raw) != "x\n" {
		t.Errorf("log: %q", raw)
	}
}

func TestBind(t *testing.T) {
	p := startSandbox(t, t.TempDir(), "shell-agent")
	c := p.client(testSession, 1)
	if _, err := c.StartRun(deadline(t), input("r-1", "ls", nil)); code(err) != sandboxapi.CodeNotBound {
		t.Fatalf("before the bind: %v", err)
	}
	bind := func(what string) chan error {
		done := make(chan error, 1)
		go func() {
			_, err := c.Bind(context.Background(), what)
			done <- err
		}()
		return done
	}
	answer := func(m sandboxapi.Control) {
		p.expect(sandboxapi.ControlRedeem)
		must(t, p.control.Send(m))
	}

	refused := bind("forged")
	answer(sandboxapi.Control{Type: sandboxapi.ControlRefused, Reason: "bad signature"})
	if err := <-refused; code(err) != sandboxapi.CodeBindRefused {
		t.Fatalf("refused: %v", err)
	}
	foreign := testGrant()
	foreign.PodUID = "pod-2"
	misled := bind("misled")
	answer(sandboxapi.Control{Type: sandboxapi.ControlGranted, Grant: foreign})
	if err := <-misled; code(err) != sandboxapi.CodeBindRefused {
		t.Fatalf("another sandbox's grant: %v", err)
	}

	p.bound()
	must(t, <-bind(testBind)) // a lost reply
	if err := <-bind("another"); code(err) != sandboxapi.CodeBoundToAnother {
		t.Fatalf("another bind: %v", err)
	}
	h, err := c.Health(deadline(t))
	must(t, err)
	if !h.Bound || h.Session != testSession || h.Generation != 1 || h.PodUID != testPod || h.Entrypoint != sandboxapi.EntrypointReady {
		t.Errorf("health: %+v", h)
	}
	for _, wrong := range []*sandboxapi.Client{p.client("s-other", 1), p.client(testSession, 2), p.client("", 1)} {
		if err := wrong.CancelRun(deadline(t), "r-1"); code(err) != sandboxapi.CodeOtherSession {
			t.Errorf("wrong session or generation: %v", err)
		}
		req := httptest.NewRequest(http.MethodGet, "/health", nil)
		resp, err := wrong.InvokeTransport().RoundTrip(req)
		must(t, err)
		if resp.StatusCode != http.StatusMisdirectedRequest {
			t.Errorf("invoke with the wrong session: %d", resp.StatusCode)
		}
		must(t, resp.Body.Close())
	}
}

// pidIn reads the number after a mark in what a command printed.
func pidIn(text, mark string) int {
	_, rest, ok := strings.Cut(text, mark)
	line, _, whole := strings.Cut(rest, "\n")
	pid, err := strconv.Atoi(line)
	if !ok || !whole || err != nil {
		return 0
	}
	return pid
}

func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func TestCancelKillsTheCommand(t *testing.T) {
	p := startSandbox(t, t.TempDir(), "shell-agent")
	c := p.bound()
	startRun(t, c, input("r-1", "sleep 1000 & echo child=$!; echo sh=$$; wait\necho never", nil))
	if _, err := c.StartRun(deadline(t), input("r-2", "ls", nil)); code(err) != sandboxapi.CodeRunOpen {
		t.Fatalf("a second run: %v", err)
	}
	var said string
	tr := follow(t, c, "r-1", func(e event) {
		said += e.Delta
		if e.Type == agui.TypeTextContent && pidIn(said, "\nsh=") > 0 {
			must(t, c.CancelRun(deadline(t), "r-1"))
		}
	})
	if tr.end.Outcome != agui.OutcomeCancelled {
		t.Fatalf("end: %+v", tr.end)
	}
	for _, mark := range []string{"\nchild=", "\nsh="} {
		pid := pidIn(said, mark)
		if pid == 0 {
			t.Fatalf("no pid after %q in %q", mark, said)
		}
		eventually(t, "the command is dead", func() bool { return !alive(pid) })
	}
	eventually(t, "the killed call was reported", func() bool {
		rep, ok := p.policy.report(1)
		return ok && rep.ExitCode == 128+int(unix.SIGKILL) && strings.HasSuffix(rep.Output, "[cancelled]")
	})
	must(t, c.CancelRun(deadline(t), "r-1")) // again, when it is over
	if err := c.CancelRun(deadline(t), "r-9"); code(err) != sandboxapi.CodeNotFound {
		t.Errorf("cancel of an unknown run: %v", err)
	}
	startRun(t, c, input("r-2", "echo next", nil))
	if tr := follow(t, c, "r-2", nil); tr.end.Outcome != agui.OutcomeSuccess {
		t.Errorf("the run after a cancelled one: %+v", tr.end)
	}
}

func TestAgentKilledInTheMiddle(t *testing.T) {
	p := startSandbox(t, t.TempDir(), "shell-agent")
	c := p.bound()
	startRun(t, c, input("r-1", "echo agent=$PPID; echo sh=$$; setsid sleep 1000 & echo child=$!; sleep 1000", nil))
	var said string
	killed := false
	tr := follow(t, c, "r-1", func(e event) {
		said += e.Delta
		if e.Type == agui.TypeTextContent && !killed && pidIn(said, "\nchild=") > 0 {
			killed = true
			must(t, unix.Kill(pidIn(said, "\nagent="), unix.SIGKILL))
		}
	})
	last := tr.events[len(tr.events)-1]
	if tr.end.Outcome != agui.OutcomeError || last.Type != agui.TypeRunError || last.Code != "agent-died" ||
		!strings.Contains(tr.end.Reason, "SIGKILL") {
		t.Fatalf("end: %+v, last %+v", tr.end, last)
	}
	_, err := c.WaitReady(deadline(t))
	must(t, err)
	eventually(t, "the agent was started again", func() bool {
		h, err := c.Health(deadline(t))
		return err == nil && h.Restarts == 1 && h.Entrypoint == sandboxapi.EntrypointReady
	})
	for _, mark := range []string{"\nsh=", "\nchild="} {
		if pid := pidIn(said, mark); pid == 0 || alive(pid) {
			t.Errorf("%s%d outlived its agent", mark, pid)
		}
	}
	startRun(t, c, input("r-2", "echo next", nil))
	if tr := follow(t, c, "r-2", nil); tr.end.Outcome != agui.OutcomeSuccess {
		t.Errorf("the run after the restart: %+v", tr.end)
	}
}

func TestEndOfTheSandbox(t *testing.T) {
	for name, end := range map[string]struct {
		how  func(*testing.T, *parent)
		exit int
	}{
		"parent gone": {func(t *testing.T, p *parent) { must(t, p.conn.Close()) }, 1},
		"told to stop": {func(t *testing.T, p *parent) {
			must(t, p.control.Send(sandboxapi.Control{Type: sandboxapi.ControlStop, GraceMillis: 5000}))
		}, 0},
		"killed": {func(t *testing.T, p *parent) { must(t, p.cmd.Process.Kill()) }, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startSandbox(t, t.TempDir(), "shell-agent")
			c := p.bound()
			startRun(t, c, input("r-1", "echo agent=$PPID; echo sh=$$; exec sleep 1000", nil))
			var said string
			for line, err := range c.Spool(deadline(t), "r-1", 1) {
				if err != nil { // the sandbox is gone; only an orderly end is told
					break
				}
				var e event
				must(t, json.Unmarshal(append([]byte(nil), orNull(line.Event)...), &e))
				if said += e.Delta; e.Type == agui.TypeTextContent && pidIn(said, "\nsh=") > 0 {
					break
				}
			}
			end.how(t, p)
			if exit := p.waitExit(); exit != end.exit {
				t.Errorf("exit code %d, want %d", exit, end.exit)
			}
			for _, mark := range []string{"\nagent=", "\nsh="} {
				pid := pidIn(said, mark)
				if pid == 0 {
					t.Fatalf("no pid after %q in %q", mark, said)
				}
				eventually(t, "nothing is left", func() bool { return !alive(pid) })
			}
		})
	}
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}

func TestInvoke(t *testing.T) {
	p := startSandbox(t, t.TempDir(), "test-server")
	c := p.bound()
	get := func(method, target, body string, header http.Header) string {
		t.Helper()
		req, err := http.NewRequestWithContext(deadline(t), method, "http://any"+target, strings.NewReader(body))
		must(t, err)
		maps.Copy(req.Header, header)
		resp, err := c.InvokeTransport().RoundTrip(req)
		must(t, err)
		raw, err := io.ReadAll(resp.Body)
		must(t, errors.Join(err, resp.Body.Close()))
		return string(raw)
	}

	t.Run("passes requests unchanged", func(t *testing.T) {
		var got struct {
			URI, Method, Body string
			Headers           http.Header
		}
		raw := get(http.MethodPut, "/echo/a%2Fb/../c?x=1&y=%20;z", "body", http.Header{
			"X-Mine": {"1"}, "Authorization": {"Bearer stolen"}, "Cookie": {"a=b"}, "X-Forwarded-For": {"1.2.3.4"},
		})
		must(t, json.Unmarshal([]byte(raw), &got))
		if got.URI != "/echo/a%2Fb/../c?x=1&y=%20;z" || got.Method != http.MethodPut || got.Body != "body" || got.Headers.Get("X-Mine") != "1" {
			t.Errorf("arrived as %+v", got)
		}
		for _, name := range []string{"Authorization", "Cookie", "X-Forwarded-For", sandboxapi.HeaderSession, sandboxapi.HeaderGeneration} {
			if got.Headers.Get(name) != "" {
				t.Errorf("%s reached the agent", name)
			}
		}
	})
	t.Run("upgrades to WebSocket", func(t *testing.T) {
		ctx := deadline(t)
		conn, _, err := websocket.Dial(ctx, "ws://any/socket", &websocket.DialOptions{
			HTTPClient: &http.Client{Transport: c.InvokeTransport()},
		})
		must(t, err)
		defer func() { _ = conn.CloseNow() }()
		must(t, conn.Write(ctx, websocket.MessageText, []byte("hello")))
		_, data, err := conn.Read(ctx)
		must(t, err)
		if string(data) != "hello" {
			t.Errorf("echo: %q", data)
		}
	})
	t.Run("the agent has none of sandboxd's descriptors", func(t *testing.T) {
		var open []string
		must(t, json.Unmarshal([]byte(get(http.MethodGet, "/descriptors", "", nil)), &open))
		for _, fd := range open {
			if strings.Contains(fd, "socket:") {
				t.Errorf("inherited %s", fd)
			}
		}
	})
	t.Run("the relay leads nowhere else", func(t *testing.T) {
		if got := get(http.MethodGet, "/relay?path=/v1/sessions", "", nil); !strings.Contains(got, sandboxapi.CodeNotFound) {
			t.Errorf("answered %q", got)
		}
	})
}
