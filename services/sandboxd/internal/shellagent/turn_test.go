package shellagent

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/agui"
)

// post runs one input against an agent whose Holdfast is api, and returns what
// was streamed, held to the protocol.
func post(t *testing.T, api http.HandlerFunc, retryFor time.Duration, body string) (string, *agui.Ending) {
	t.Helper()
	holdfast := httptest.NewServer(api)
	defer holdfast.Close()
	base, err := url.Parse(holdfast.URL)
	if err != nil {
		t.Fatal(err)
	}
	shell, err := findShell()
	if err != nil {
		t.Fatal(err)
	}
	a := httptest.NewServer(NewHandler(Config{
		Holdfast: base, Modes: []string{modeHold, modePark}, Shell: shell, Workspace: t.TempDir(),
		Env: []string{"PATH=" + os.Getenv("PATH")}, RetryFor: retryFor,
	}))
	defer a.Close()
	defer http.DefaultClient.CloseIdleConnections()
	resp, err := http.Post(a.URL+"/run", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		return string(raw), nil
	}
	order, events := agui.NewOrder("t", "r"), agui.NewReader(strings.NewReader(string(raw)), 256<<10)
	var ending *agui.Ending
	for {
		event, err := events.Next()
		if err != nil {
			return string(raw), ending
		}
		if _, ending, err = order.Accept(event); err != nil {
			t.Fatal(err)
		}
	}
}

func message(text string) string {
	return string(agui.Encode(map[string]any{
		"threadId": "t", "runId": "r", "messages": []any{map[string]string{"role": "user", "content": text}},
	}))
}

// allowing is a Holdfast whose policy allows everything.
func allowing(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v1/agent/calls" {
		_, _ = w.Write([]byte(`{"decision":"allow","call":"c-1","argsHash":"h"}`))
		return
	}
	_, _ = w.Write([]byte(`{"go":true}`))
}

// texts puts a stream's text messages together, in order; each must be complete.
func texts(t *testing.T, stream string) (all []string) {
	t.Helper()
	open, ids := "", make(map[string]bool)
	for events := agui.NewReader(strings.NewReader(stream), 256<<10); ; {
		raw, err := events.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		var e struct{ Type, MessageID, Delta string }
		if err := json.Unmarshal(raw, &e); err != nil {
			t.Fatal(err)
		}
		switch e.Type {
		case agui.TypeTextStart:
			if ids[e.MessageID] || open != "" {
				t.Fatalf("message %s opened again, or while %q was", e.MessageID, open)
			}
			open, ids[e.MessageID] = e.MessageID, true
			all = append(all, "")
		case agui.TypeTextContent:
			if e.MessageID != open {
				t.Fatalf("a piece of %s while %q is open", e.MessageID, open)
			}
			all[len(all)-1] += e.Delta
		case agui.TypeTextEnd:
			open = ""
		}
	}
}

// A command may say more than one message holds; nothing of it is lost.
func TestLongOutputIsSeveralMessages(t *testing.T) {
	for name, tc := range map[string]struct{ line, said string }{
		"plain":         {`head -c 700000 /dev/zero | tr '\0' x`, strings.Repeat("x", 700000)},
		"control bytes": {`head -c 700000 /dev/zero | tr '\0' '\001'`, strings.Repeat("\x01", 700000)},
		"HTML":          {`head -c 700000 /dev/zero | tr '\0' '<'`, strings.Repeat("<", 700000)},
		"runes":         {`yes ä | head -n 200000`, strings.Repeat("ä\n", 200000)},
		"a long line":   {": '" + strings.Repeat("<", 60000) + "'", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stream, ending := post(t, allowing, time.Minute, message(tc.line))
			if ending == nil || ending.Outcome != agui.OutcomeSuccess {
				t.Fatalf("ending %+v", ending)
			}
			all := texts(t, stream)
			for _, text := range all {
				if raw, err := json.Marshal(text); err != nil || len(raw) > messageBytes {
					t.Errorf("a message of %d bytes, %v", len(raw), err)
				}
			}
			want := "$ " + tc.line + "\n" + tc.said
			if !strings.HasSuffix(want, "\n") {
				want += "\n"
			}
			if got := strings.Join(all, ""); got != want+"exit 0\n" || len(all) < 2 {
				t.Errorf("%d messages with %d bytes, want %d", len(all), len(got), len(want))
			}
		})
	}
}

// A state that was made elsewhere changes no meaning either.
func TestForgedState(t *testing.T) {
	body := agui.Encode(map[string]any{
		"threadId": "t", "runId": "r", "messages": []any{map[string]string{"role": "user", "content": `echo "$PATH $KEPT"; ls`}},
		"state": state{Shell: plan{Env: map[string]string{
			"PATH": "/workspace/bin", "LD_PRELOAD": "/workspace/x.so", "BASH_FUNC_ls%%": "() { echo forged; }", "KEPT": "kept",
		}}},
	})
	stream, _ := post(t, allowing, time.Minute, string(body))
	if got, want := strings.Join(texts(t, stream), ""), os.Getenv("PATH")+" kept\nexit 0\n"; !strings.HasSuffix(got, want) {
		t.Errorf("said %q, want at its end %q", got, want)
	}
}

func TestHeldCallWaitsInTheRun(t *testing.T) {
	var looks atomic.Int32
	said, ending := post(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost && r.URL.Path == "/v1/agent/calls":
			w.WriteHeader(http.StatusAccepted)
			_, _ = w.Write([]byte(`{"approval":"c-1","argsHash":"h","mode":"hold"}`))
		case r.Method == http.MethodGet && r.URL.Path == "/v1/agent/calls/c-1" && r.URL.Query().Get("wait") == "30":
			if looks.Add(1) < 3 {
				w.WriteHeader(http.StatusAccepted)
				_, _ = w.Write([]byte(`{"approval":"c-1","argsHash":"h","mode":"hold"}`))
				return
			}
			_, _ = w.Write([]byte(`{"decision":"allow","call":"c-1","argsHash":"h"}`))
		default:
			_, _ = w.Write([]byte(`{"go":true}`))
		}
	}, time.Minute, message("echo held"))
	if ending == nil || ending.Outcome != agui.OutcomeSuccess || !strings.Contains(said, `held\n`) || looks.Load() != 3 {
		t.Errorf("ending %+v after %d looks: %s", ending, looks.Load(), said)
	}
}

func TestTroubleWithHoldfast(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		body   string
		says   string
	}{
		"refused":     {http.StatusUnprocessableEntity, `{"code":"invalid","detail":"no such tool"}`, "no such tool"},
		"away":        {http.StatusServiceUnavailable, ``, "holdfast-unreachable"},
		"no decision": {http.StatusOK, `{}`, "neither a decision nor a question"},
	} {
		t.Run(name, func(t *testing.T) {
			said, ending := post(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tc.status)
				_, _ = w.Write([]byte(tc.body))
			}, time.Millisecond, message("echo x"))
			if ending == nil || ending.Outcome != agui.OutcomeError || !strings.Contains(said, tc.says) {
				t.Errorf("ending %+v: %s", ending, said)
			}
		})
	}
}

func TestOddInputs(t *testing.T) {
	untouched := func(_ http.ResponseWriter, r *http.Request) { t.Errorf("asked %s", r.URL) }
	for name, tc := range map[string]struct{ body, outcome string }{
		"no message":      {`{"threadId":"t","runId":"r"}`, agui.OutcomeSuccess},
		"blank lines":     {message("\n  \n\r\n"), agui.OutcomeSuccess},
		"odd state":       {`{"threadId":"t","runId":"r","state":[1]}`, agui.OutcomeSuccess},
		"odd content":     {`{"threadId":"t","runId":"r","messages":[{"role":"user","content":7}]}`, agui.OutcomeError},
		"a huge message":  {message(strings.Repeat("x", maxMessageBytes+1)), agui.OutcomeError},
		"a stale answer":  {`{"threadId":"t","runId":"r","resume":[{"interruptId":"i","status":"resolved"}]}`, agui.OutcomeError},
		"an odd answer":   {`{"threadId":"t","runId":"r","state":{"shell":{"run":"r0","lines":["x"],"waiting":{"call":"i"}}},"resume":[{"interruptId":"i","status":"maybe"}]}`, agui.OutcomeError},
		"not JSON":        {`hello`, ""},
		"without its ids": {`{}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			said, ending := post(t, untouched, time.Minute, tc.body)
			if (ending == nil) != (tc.outcome == "") || (ending != nil && ending.Outcome != tc.outcome) {
				t.Errorf("ending %+v: %s", ending, said)
			}
		})
	}
}

func TestCallIDsStayTheSame(t *testing.T) {
	p, _, err := newPlan(agui.RunInput{RunID: "r-1", Messages: []agui.Message{{Role: "user", Content: json.RawMessage(`"a\nb"`)}}})
	if err != nil {
		t.Fatal(err)
	}
	first := p.callID()
	p = p.next()
	second := p.callID()
	p.Waiting = &question{Call: "c", ArgsHash: "h"}
	raw := agui.Encode(p.snapshot())
	again, got, err := newPlan(agui.RunInput{
		RunID: "r-2", State: raw, Resume: []agui.Resume{{InterruptID: "c", Status: agui.ResumeResolved, Payload: json.RawMessage(`{"approved":true}`)}},
	})
	if err != nil || got == nil || !got.approved || got.question != *p.Waiting || again.Waiting != nil {
		t.Fatalf("plan %+v, answer %+v, %v", again, got, err)
	}
	if again.callID() != second || first == second || again.Lines[0] != "b" {
		t.Errorf("ids %s, %s, then %s", first, second, again.callID())
	}
}

func TestConfigure(t *testing.T) {
	good := []string{sandboxapi.EnvAgentURL + "=http://127.0.0.2:7777", sandboxapi.EnvPort + "=8000", "A=b"}
	cfg, addr, err := configure([]string{"--modes=hold,park"}, good)
	if err != nil || addr != "127.0.0.2:8000" || len(cfg.Modes) != 2 || len(cfg.Env) != 1 {
		t.Errorf("%+v, %s, %v", cfg, addr, err)
	}
	for name, bad := range map[string]struct{ args, env []string }{
		"a mode":  {[]string{"--modes=never"}, good},
		"no URL":  {nil, good[1:]},
		"no port": {nil, good[:1]},
	} {
		if _, _, err := configure(bad.args, bad.env); err == nil {
			t.Errorf("%s passed", name)
		}
	}
}
