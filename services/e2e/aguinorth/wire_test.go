package aguinorth_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// wants holds a stream to its end: how it ended and what was said in it.
func wants(t *testing.T, what string, got []event, how string, texts ...string) {
	t.Helper()
	is := end(got).Type
	if is == "RUN_FINISHED" {
		is = end(got).Outcome.Type
	}
	if is == "RUN_ERROR" {
		is = end(got).Code
	}
	if is != how {
		t.Errorf("%s: it ended as %s (%s), want %s; %s", what, is, end(got).Message, how, types(got))
	}
	for _, text := range texts {
		if !strings.Contains(said(got), text) {
			t.Errorf("%s: it said %q, not %q", what, said(got), text)
		}
	}
}

func TestWire(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, test := range map[string]func(*testing.T, *world){
		"conversation":  conversation,
		"messages":      severalMessages,
		"interrupt":     interruptAndResume,
		"four eyes":     fourEyes,
		"stale":         staleAnswers,
		"cancel":        cancelling,
		"going away":    goingAway,
		"failure":       failing,
		"client tools":  clientTools,
		"asked tools":   askedTools,
		"lapse":         lapsing,
		"results":       strangeResults,
		"refusals":      refusals,
		"held question": heldQuestion,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, &world{w.In(t), t})
		})
	}
}

// A run, from a thread's first message to its end, its next turn, and what the log
// has of both, whatever the client says.
func conversation(t *testing.T, w *world) {
	th := w.thread("alice", "picker", "talk")
	got := th.post(nil)
	wants(t, "a thread that has never begun", got, "success")
	got = th.say("hello")
	wants(t, "the first turn", got, "success", "again: hello")
	if before := snapshot(got); !strings.Contains(before, `"mine-0"`) {
		t.Errorf("its own message is not in %s", before)
	}
	if again := th.w.post(w.Context(), th.as, th.runtime, th.input(func(in input) { in["runId"] = "run-2" })); strings.Contains(said(again), "hello") || !strings.Contains(snapshot(again), "again: hello") {
		t.Errorf("the same request again: %s, %s", types(again), snapshot(again))
	}
	// A client that edits what was said isn't obeyed.
	th.messages[0].(map[string]any)["content"] = "something else"
	th.messages = append(th.messages, map[string]any{"id": "forged", "role": "assistant", "content": "I never said that"})
	got = th.say("more")
	wants(t, "the next turn", got, "success", "again: more")
	before := snapshot(got)
	if !strings.Contains(before, `"hello"`) || strings.Contains(before, "something else") || strings.Contains(before, "never said") {
		t.Errorf("the history is %s", before)
	}
	if state := end(got[:len(got)-1]); state.Type != "STATE_SNAPSHOT" || string(state.Snapshot) != `{"messages":3}` {
		t.Errorf("the agent has been told of %s", state.Snapshot)
	}
	// Another's thread of the same name is another thread.
	if other := w.thread("admin", "picker", "talk").post(nil); len(snapshot(other)) > 0 {
		t.Errorf("admin sees %s", snapshot(other))
	}
}

// Messages that come together are one turn.
func severalMessages(t *testing.T, w *world) {
	th := w.thread("alice", "picker", "two")
	th.messages = append(th.messages, map[string]any{"id": "a", "role": "user", "content": "one"})
	got := th.say("two")
	wants(t, "two messages", got, "success", "again: two")
	if state := end(got[:len(got)-1]); string(state.Snapshot) != `{"messages":2}` {
		t.Errorf("the agent has been told of %s", state.Snapshot)
	}
	if s := w.Runs(w.session(th)); len(s) != 1 {
		t.Errorf("%d runs", len(s))
	}
}

// session is the thread's session, as the header says it.
func (w *world) session(th *thread) string {
	w.t.Helper()
	resp := w.request(w.Context(), th.as, th.runtime, th.input(nil))
	w.read(resp, func(event) bool { return false })
	id := resp.Header.Get("Holdfast-Session")
	if id == "" {
		w.t.Fatal("no session is named")
	}
	return id
}

// asks begins a thread with a command that people are asked about, and gives the
// question.
func (w *world) asks(th *thread, command string) interrupt {
	w.t.Helper()
	got := th.say(command)
	wants(w.t, command, got, "interrupt")
	i := end(got).Outcome.Interrupts
	if len(i) != 1 {
		w.t.Fatalf("%d interrupts", len(i))
	}
	if kinds := types(got); !strings.HasSuffix(kinds, "MESSAGES_SNAPSHOT STATE_SNAPSHOT RUN_FINISHED") {
		w.t.Errorf("in front of an interrupt: %s", kinds)
	}
	return i[0]
}

// A question, a reload, the answer, the same answer again.
func interruptAndResume(t *testing.T, w *world) {
	th := w.thread("admin", "shell", "ask")
	q := w.asks(th, "touch made")
	a := q.Metadata.Holdfast
	if q.Reason != "tool_call" || q.ToolCallID == "" || q.ExpiresAt == "" || a.ID != q.ID || a.Tool != "shell" || a.ArgsHash == "" ||
		!strings.Contains(string(a.Args), "touch made") {
		t.Errorf("%+v", q)
	}
	reloaded := w.thread("admin", "shell", "ask").post(nil)
	wants(t, "reload", reloaded, "interrupt")
	if i := end(reloaded).Outcome.Interrupts; len(i) != 1 || i[0].ID != q.ID || !strings.Contains(snapshot(reloaded), "touch made") {
		t.Errorf("reloaded: %+v, %s", i, snapshot(reloaded))
	}
	wants(t, "another message meanwhile", th.say("ls"), "run-busy")
	th.messages = th.messages[:1]
	yes := map[string]any{"approved": true, "argsHash": a.ArgsHash, "editedArgs": map[string]any{"command": "touch made"}}
	wants(t, "yes", th.resume(q.ID, yes), "success", "exit 0")
	got := th.resume(q.ID, yes)
	wants(t, "yes again", got, "success")
	if !strings.Contains(snapshot(got), "exit 0") {
		t.Errorf("and the result is not in %s", snapshot(got))
	}
	wants(t, "no, after all", th.resume(q.ID, map[string]any{"approved": false}), "already-decided")
	wants(t, "and then", th.say("ls"), "success", "made")

	q = w.asks(th, "touch never")
	wants(t, "no", th.resume(q.ID, map[string]any{"approved": false, "comment": "not today"}), "success", "not today")
	q = w.asks(th, "touch dismissed")
	wants(t, "dismissed", th.post(func(in input) {
		in["resume"] = []any{map[string]any{"interruptId": q.ID, "status": "cancelled"}}
	}), "success", "denied")
}

// Who may not answer is told so, and goes on when somebody else has.
func fourEyes(t *testing.T, w *world) {
	th := w.thread("alice", "shell", "eyes")
	q := w.asks(th, "touch seen")
	yes := map[string]any{"approved": true}
	got := th.resume(q.ID, yes)
	wants(t, "alice's own answer", got, "not-an-approver")
	if !strings.Contains(types(got), "MESSAGES_SNAPSHOT") {
		t.Errorf("refused without how things are: %s", types(got))
	}
	w.Approve("bob", q.Metadata.Holdfast)
	wants(t, "bob's counts", th.post(nil), "success")
	harness.Eventually(t, "the run goes on by itself", func() bool {
		return strings.Contains(snapshot(th.post(nil)), "exit 0")
	})
	wants(t, "a late answer", th.resume(q.ID, yes), "not-an-approver")
}

// An answer to something else than what is asked changes nothing.
func staleAnswers(t *testing.T, w *world) {
	th := w.thread("admin", "shell", "stale")
	wants(t, "a thread that has never begun", th.resume("s-x.c-y", map[string]any{"approved": true}), "not-found")
	q := w.asks(th, "touch stale")
	wants(t, "a stranger's question", th.resume("s-x.c-y", map[string]any{"approved": true}), "not-found")
	wants(t, "another hash", th.resume(q.ID, map[string]any{"approved": true, "argsHash": strings.Repeat("0", 64)}), "args-changed")
	wants(t, "other arguments", th.resume(q.ID, map[string]any{"approved": true, "editedArgs": map[string]any{"command": "rm -rf /"}}), "args-changed")
	wants(t, "it is still asked", th.post(nil), "interrupt")
	w.Approve("bob", q.Metadata.Holdfast)
	wants(t, "bob was faster", th.resume(q.ID, map[string]any{"approved": true}), "already-decided")
}

// A cancel ends what runs and what waits; the thread goes on after it.
func cancelling(t *testing.T, w *world) {
	cancel := func(in input) { in["forwardedProps"] = map[string]any{"holdfast": map[string]any{"cancel": true}} }
	th := w.thread("alice", "shell", "cancel")
	w.asks(th, "touch cancelled")
	wants(t, "a parked run", th.post(cancel), "cancelled")
	wants(t, "cancelled again", th.post(cancel), "cancelled")
	wants(t, "the next turn", th.say("echo on"), "success", "on")

	slow := w.thread("alice", "picker", "cancel")
	slow.messages = append(slow.messages, map[string]any{"id": "m", "role": "user", "content": "slow 10000"})
	resp := w.request(w.Context(), "alice", "picker", slow.input(nil))
	first := w.read(resp, func(e event) bool { return e.Delta == "w3 " })
	wants(t, "an open run", slow.post(cancel), "cancelled", "w0")
	rest := w.read(resp, func(event) bool { return false })
	wants(t, "who watched it", append(first, rest...), "cancelled", "w3")
}

// A client that goes away ends nothing, and finds all when it comes back, again and
// again.
func goingAway(t *testing.T, w *world) {
	th := w.thread("alice", "picker", "away")
	th.messages = append(th.messages, map[string]any{"id": "m", "role": "user", "content": "slow 60"})
	for cut := 1; cut < 4; cut++ {
		ctx, leave := context.WithCancel(w.Context())
		resp := w.request(ctx, "alice", "picker", th.input(nil))
		words := 0
		w.read(resp, func(e event) bool {
			if e.Type == "TEXT_MESSAGE_CONTENT" {
				words++
			}
			return words == cut
		})
		leave()
	}
	got := th.post(nil)
	var want strings.Builder
	for i := range 60 {
		fmt.Fprintf(&want, "w%d ", i)
	}
	wants(t, "back again", got, "success")
	if said(got) != want.String() {
		t.Errorf("it said %q", said(got))
	}
	if runs := w.Runs(w.session(th)); len(runs) != 1 {
		t.Errorf("%d runs", len(runs))
	}
	got = th.post(nil)
	if !strings.Contains(snapshot(got), "w59") || len(said(got)) > 0 {
		t.Errorf("when it is over: %s, %s", types(got), snapshot(got))
	}
}

// A gateway that stops says that the stream is not the run's end.
func TestGatewayStops(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	th := w.thread("alice", "picker", "stopped")
	th.messages = append(th.messages, map[string]any{"id": "m", "role": "user", "content": "slow 10000"})
	resp := w.request(w.Context(), "alice", "picker", th.input(nil))
	first := w.read(resp, func(e event) bool { return e.Delta == "w3 " })
	w.Stop()
	wants(t, "the stream", append(first, w.read(resp, func(event) bool { return false })...), "not-ready", "w3")
}

// A run that fails says why, also to who comes back for it.
func failing(t *testing.T, w *world) {
	th := w.thread("alice", "picker", "fail")
	got := th.say("fail")
	wants(t, "it fails", got, "agent-error")
	if m := end(got).Message; !strings.Contains(m, "fails when told to") {
		t.Errorf("why: %q", m)
	}
	wants(t, "reload", th.post(nil), "agent-error")
	wants(t, "the next turn", th.say("on"), "success", "again: on")
}

// The client's tool: the call comes to it, its result goes on as a new run.
func clientTools(t *testing.T, w *world) {
	for _, said := range []string{"pick", "pick old"} {
		th := w.thread("alice", "picker", said)
		th.tools = []string{"pick"}
		got := th.say(said)
		wants(t, said, got, "success")
		pending := end(got).Outcome.Pending
		if len(pending) != 1 || !strings.Contains(types(got), "TOOL_CALL_START TOOL_CALL_ARGS TOOL_CALL_END") {
			t.Fatalf("%s: pending %q, %s", said, pending, types(got))
		}
		reloaded := th.post(nil)
		if p := end(reloaded).Outcome.Pending; len(p) != 1 || p[0] != pending[0] {
			t.Errorf("%s, reloaded: pending %q", said, p)
		}
		got = th.result(pending[0], "result", "blue")
		wants(t, "the result", got, "success", "you picked: blue")
		if !strings.Contains(snapshot(got), `"result"`) {
			t.Errorf("its own message is not in %s", snapshot(got))
		}
		got = th.post(nil)
		wants(t, "the same again", got, "success")
		if strings.Contains(types(got), "TEXT_MESSAGE") || !strings.Contains(snapshot(got), "you picked: blue") {
			t.Errorf("%s, %s", types(got), snapshot(got))
		}
		id := w.session(th)
		runs := w.Runs(id)
		if len(runs) != 2 || runs[1].ParentRunID != runs[0].ID {
			t.Errorf("runs %+v", runs)
		}
		if facts := log(w.Facts(id)); !strings.Contains(facts, "call.proposed call.decided call.delegated run.interrupted call.completed") {
			t.Errorf("the log says %s", facts)
		}
	}
	th := w.thread("alice", "picker", "never")
	th.tools = []string{"erase"}
	got := th.say("pick")
	wants(t, "a tool that the policy never lets", got, "success", "you picked: denied by the policy: nobody needs this")
	if len(end(got).Outcome.Pending) > 0 || !strings.Contains(types(got), "TOOL_CALL_RESULT") {
		t.Errorf("pending %q, %s", end(got).Outcome.Pending, types(got))
	}
}

// The policy's question comes before the client's turn.
func askedTools(t *testing.T, w *world) {
	th := w.thread("admin", "picker", "asked")
	th.tools = []string{"paint"}
	q := w.asks(th, "pick")
	if q.Metadata.Holdfast.Tool != "paint" {
		t.Errorf("%+v", q)
	}
	th.messages = append(th.messages, map[string]any{"id": "early", "role": "tool", "toolCallId": q.ToolCallID, "content": "blue"})
	wants(t, "a result before the answer", th.post(nil), "illegal-transition")
	th.messages = th.messages[:1]
	got := th.resume(q.ID, map[string]any{"approved": true})
	wants(t, "yes", got, "success")
	if p := end(got).Outcome.Pending; len(p) != 1 || p[0] != q.ToolCallID {
		t.Fatalf("pending %q", p)
	}
	wants(t, "the result", th.result(q.ToolCallID, "result", "blue"), "success", "you picked: blue")
}

// A client that brings no result in time: the agent is told so, and goes on.
func lapsing(t *testing.T, w *world) {
	th := w.thread("admin", "picker", "lapse")
	th.tools = []string{"hurry"}
	q := w.asks(th, "pick")
	got := th.resume(q.ID, map[string]any{"approved": true})
	if p := end(got).Outcome.Pending; len(p) != 1 {
		t.Fatalf("pending %q", p)
	}
	harness.Eventually(t, "the call lapses", func() bool {
		return strings.Contains(snapshot(th.post(nil)), "you picked: no result: the client brought no result in time")
	})
	wants(t, "too late", th.result(q.ToolCallID, "late", "blue"), "illegal-transition")
}

// Results that nobody waits for are refused, and the client's view is set right.
func strangeResults(t *testing.T, w *world) {
	th := w.thread("alice", "picker", "results")
	wants(t, "a thread that has never begun", th.result("x", "r-0", "blue"), "not-found")
	th.messages, th.tools = []any{}, []string{"pick"}
	pending := end(th.say("pick")).Outcome.Pending
	wants(t, "of a stranger", th.result("x", "r-1", "blue"), "not-found")
	th.messages = th.messages[:1]
	wants(t, "of the call", th.result(pending[0], "r-2", "blue"), "success", "you picked: blue")
	wants(t, "the same in another message", th.result(pending[0], "r-3", "blue"), "success")
	th.messages = th.messages[:2]
	got := th.result(pending[0], "r-4", "red")
	wants(t, "another one", got, "illegal-transition")
	if s := snapshot(got); strings.Contains(s, `"content":"red"`) || !strings.Contains(s, `"r-2"`) {
		t.Errorf("the client is told of %s", s)
	}
	th.messages = th.messages[:2]

	// A cancel closes the call.
	th = w.thread("alice", "picker", "closed")
	th.tools = []string{"pick"}
	pending = end(th.say("pick")).Outcome.Pending
	wants(t, "cancel", th.post(func(in input) {
		in["forwardedProps"] = map[string]any{"holdfast": map[string]any{"cancel": true}}
	}), "cancelled")
	harness.Eventually(t, "the call lapses", func() bool {
		return strings.Contains(log(w.Facts(w.session(th))), "call.lapsed")
	})
	wants(t, "too late", th.result(pending[0], "late", "blue"), "illegal-transition")
}

// What can't begin is a problem, as everywhere.
func refusals(t *testing.T, w *world) {
	in := func(change func(input)) input { return w.thread("alice", "picker", "none").input(change) }
	long := strings.Repeat("x", 32<<20+64<<10)
	for name, tc := range map[string]struct {
		as, runtime string
		in          input
		want        api.Code
	}{
		"nobody":            {"", "picker", in(nil), api.CodeUnauthenticated},
		"an approver alone": {"bob", "picker", in(nil), api.CodeForbidden},
		"no such runtime":   {"alice", "nothing", in(nil), api.CodeRuntimeNotFound},
		"no thread":         {"alice", "picker", in(func(in input) { in["threadId"] = "" }), api.CodeInvalidRequest},
		"no list":           {"alice", "picker", in(func(in input) { in["messages"] = "hello" }), api.CodeInvalidRequest},
		"another protocol":  {"alice", "picker", in(func(in input) { in["protocolVersion"] = "2.0" }), api.CodeInvalidRequest},
		"tools of one name": {"alice", "picker", in(func(in input) { in["tools"] = []any{map[string]string{"name": "a"}, map[string]string{"name": "a"}} }), api.CodeInvalidRequest},
		"half an answer":    {"alice", "picker", in(func(in input) { in["resume"] = []any{map[string]string{"interruptId": "x", "status": "resolved"}} }), api.CodeInvalidRequest},
		"a long history":    {"alice", "picker", in(func(in input) { in["messages"] = []any{map[string]string{"id": "x", "role": "user", "content": long}} }), api.CodePayloadTooLarge},
		"a long message": {"alice", "picker", in(func(in input) {
			in["messages"] = []any{map[string]string{"id": "x", "role": "user", "content": long[:17<<20]}}
		}), api.CodePayloadTooLarge},
	} {
		resp := w.request(w.Context(), tc.as, tc.runtime, tc.in)
		var p api.Problem
		if err := decode(resp, &p); err != nil || p.Code != tc.want || resp.StatusCode != tc.want.Status() || resp.Header.Get("Content-Type") != api.ProblemContentType {
			t.Errorf("%s: %s %s, %v", name, resp.Status, p.Code, err)
		}
	}
	req, err := http.NewRequestWithContext(w.Context(), http.MethodPost, w.URL+"/v1/runtimes/picker/agui", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+w.Token("alice"))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusUnsupportedMediaType {
		t.Errorf("no media type: %s", resp.Status)
	}
}

// An agent that holds is in the middle of its run: the stream ends with the question
// all the same, and its resume goes on with what the run says.
func heldQuestion(t *testing.T, w *world) {
	w.Runtime("holder", func(s *api.RuntimeSpec) {
		s.Sandbox.Command = append(s.Sandbox.Command, "--modes", "hold")
	})
	th := w.thread("admin", "holder", "hold")
	q := w.asks(th, "touch held")
	wants(t, "reload", th.post(nil), "interrupt")
	wants(t, "yes", th.resume(q.ID, map[string]any{"approved": true}), "success", "exit 0")
}
