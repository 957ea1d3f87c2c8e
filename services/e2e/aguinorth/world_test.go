package aguinorth_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// world is a running Holdfast with the runtimes shell and picker.
type world struct {
	*harness.Holdfast
	t *testing.T
}

// newWorld starts one. picker's agent is the one in agent/, under a policy that lets
// its client's tool "pick" be run, never "erase", "hurry" for a second when asked, and
// asks about others.
func newWorld(t *testing.T) *world {
	t.Helper()
	agent, err := harness.Build("github.com/holdfast-io/holdfast/services/e2e/aguinorth/agent", "")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{harness.Start(t), t}
	w.Policy(api.PolicySpec{Name: "picking", Default: api.PolicyEffectAsk, Rules: []api.PolicyRule{
		{Name: "picking is free", When: `tool == "pick"`, Then: api.PolicyEffectAllow},
		{Name: "hurry", When: `tool == "hurry"`, Then: api.PolicyEffectAsk, Ask: api.Ask{ExecuteWithin: "1s"}},
		{Name: "never", When: `tool == "erase"`, Then: api.PolicyEffectDeny, Reason: "nobody needs this"},
	}})
	w.Runtime("picker", func(s *api.RuntimeSpec) {
		s.Policy = "picking"
		s.Sandbox.Command, s.Sandbox.HostFolder = []string{"/agent/agent"}, filepath.Dir(agent)
	})
	return w
}

// event is an AG-UI event, as far as tests look at it.
type event struct {
	Type       string            `json:"type"`
	ThreadID   string            `json:"threadId"`
	RunID      string            `json:"runId"`
	MessageID  string            `json:"messageId"`
	ToolCallID string            `json:"toolCallId"`
	Delta      string            `json:"delta"`
	Code       string            `json:"code"`
	Message    string            `json:"message"`
	Messages   []json.RawMessage `json:"messages"`
	Snapshot   json.RawMessage   `json:"snapshot"`
	Outcome    struct {
		Type       string      `json:"type"`
		Pending    []string    `json:"pendingToolCallIds"`
		Interrupts []interrupt `json:"interrupts"`
	} `json:"outcome"`
}

type interrupt struct {
	ID, Reason, Message, ToolCallID string
	ExpiresAt                       string
	Metadata                        struct{ Holdfast api.Approval }
}

// input is a RunAgentInput.
type input map[string]any

// thread is a client's side of a conversation: what it posts grows with what it
// was told.
type thread struct {
	w           *world
	as, runtime string
	id          string
	runs        int
	messages    []any
	tools       []string
}

func (w *world) thread(as, runtime, id string) *thread {
	return &thread{w: w, as: as, runtime: runtime, id: id, messages: []any{}}
}

func (th *thread) input(change func(input)) input {
	th.runs++
	in := input{
		"threadId": th.id, "runId": fmt.Sprintf("run-%d", th.runs), "protocolVersion": "1.0", "messages": th.messages,
		"state": map[string]any{"mine": true}, "context": []any{}, "forwardedProps": map[string]any{},
	}
	tools := []any{}
	for _, name := range th.tools {
		tools = append(tools, map[string]any{"name": name, "description": "a tool", "parameters": map[string]any{"type": "object"}})
	}
	in["tools"] = tools
	if change != nil {
		change(in)
	}
	return in
}

// say adds a user's message and posts.
func (th *thread) say(text string) []event {
	th.w.t.Helper()
	th.messages = append(th.messages, map[string]any{"id": fmt.Sprintf("mine-%d", len(th.messages)), "role": "user", "content": text})
	return th.post(nil)
}

// post posts and reads the stream to its end, which has to be a good one.
func (th *thread) post(change func(input)) []event {
	th.w.t.Helper()
	return th.w.post(th.w.Context(), th.as, th.runtime, th.input(change))
}

// resume posts an answer to an interrupt.
func (th *thread) resume(id string, payload map[string]any) []event {
	th.w.t.Helper()
	return th.post(func(in input) {
		in["resume"] = []any{map[string]any{"interruptId": id, "status": "resolved", "payload": payload}}
	})
}

// result posts the result of a client's tool.
func (th *thread) result(toolCall, messageID, content string) []event {
	th.w.t.Helper()
	th.messages = append(th.messages, map[string]any{"id": messageID, "role": "tool", "toolCallId": toolCall, "content": content})
	return th.post(nil)
}

func (w *world) request(ctx context.Context, as, runtime string, in input) *http.Response {
	w.t.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		w.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL+"/v1/runtimes/"+runtime+"/agui", bytes.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	if as != "" {
		req.Header.Set("Authorization", "Bearer "+w.Token(as))
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// post posts and wants a whole stream: it begins and ends as AG-UI wants, each once.
func (w *world) post(ctx context.Context, as, runtime string, in input) []event {
	w.t.Helper()
	resp := w.request(ctx, as, runtime, in)
	if ct := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || ct != "text/event-stream" {
		w.t.Fatalf("%s, %s", resp.Status, ct)
	}
	events := w.read(resp, func(event) bool { return false })
	if len(events) == 0 || events[0].Type != "RUN_STARTED" || events[0].ThreadID != in["threadId"] || events[0].RunID != in["runId"] {
		w.t.Fatalf("it begins with %+v", events)
	}
	for i, e := range events {
		if end := e.Type == "RUN_FINISHED" || e.Type == "RUN_ERROR"; end != (i == len(events)-1) {
			w.t.Fatalf("event %d of %d is %s", i+1, len(events), e.Type)
		}
	}
	return events
}

// read reads events until the stream ends or enough says so.
func (w *world) read(resp *http.Response, enough func(event) bool) (events []event) {
	w.t.Helper()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, ":") {
			continue
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok || strings.Contains(line, "\r") {
			w.t.Fatalf("a line of a stream: %q", line)
		}
		var e event
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			w.t.Fatalf("%s: %v", data, err)
		}
		if events = append(events, e); enough(e) {
			return events
		}
	}
	return events
}

// end is the last event.
func end(events []event) event { return events[len(events)-1] }

// said is all text in a stream.
func said(events []event) string {
	var b strings.Builder
	for _, e := range events {
		if e.Type == "TEXT_MESSAGE_CONTENT" {
			b.WriteString(e.Delta)
		}
	}
	return b.String()
}

// types are the types of events, each run of one type once.
func types(events []event) string {
	var out []string
	for _, e := range events {
		if len(out) == 0 || out[len(out)-1] != e.Type {
			out = append(out, e.Type)
		}
	}
	return strings.Join(out, " ")
}

// snapshot is the text of the last MESSAGES_SNAPSHOT.
func snapshot(events []event) (text string) {
	for _, e := range events {
		if e.Type == "MESSAGES_SNAPSHOT" {
			text = ""
			for _, m := range e.Messages {
				text += string(m) + "\n"
			}
		}
	}
	return text
}

// decode reads a whole answer as JSON.
func decode(resp *http.Response, into any) error { return json.NewDecoder(resp.Body).Decode(into) }

// log is the types of a session's calls and runs, in the order of the log.
func log(facts []harness.Fact) string {
	var kinds []string
	for _, f := range facts {
		if strings.HasPrefix(f.Type, "call.") || strings.HasPrefix(f.Type, "run.") && f.Type != "run.message-recorded" {
			kinds = append(kinds, f.Type)
		}
	}
	return strings.Join(kinds, " ")
}
