//go:build !race

// Megabytes through every service in one process are minutes under the race detector;
// what is shared between goroutines on this way is under it in other suites.

package large_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/projections"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
)

func TestMain(m *testing.M) { harness.Main(m) }

// agent answers a message with the same text, in one event, and between asks for a
// call with the text as its argument, starts it, and reports the text as its result.
const agent = `
import json, os, sys, time, urllib.error, urllib.request
def say(**e): print(json.dumps(e), flush=True)
def holdfast(path, body):
    r = urllib.request.Request(os.environ["HOLDFAST_URL"] + "/v1/agent" + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    while True:
        try:
            return json.load(urllib.request.urlopen(r, timeout=90))
        except urllib.error.HTTPError as e:
            if e.code != 503: raise
            time.sleep(1) # every call may be repeated
run = json.load(sys.stdin)
ids = dict(threadId=run["threadId"], runId=run["runId"])
text = run["messages"][-1]["content"]
say(type="RUN_STARTED", **ids)
call = "call-" + run["runId"]
v = holdfast("/calls", dict(agentCallId=call, runId=run["runId"], tool="echo", args=dict(text=text), modes=["hold"]))
holdfast("/calls/%s/start" % v["call"], dict(runId=run["runId"], argsHash=v["argsHash"], nonce="nonce-nonce"))
holdfast("/calls/%s/result" % v["call"], dict(runId=run["runId"], nonce="nonce-nonce", exitCode=0, output=text))
say(type="TOOL_CALL_START", toolCallId=call, toolCallName="echo")
say(type="TOOL_CALL_ARGS", toolCallId=call, delta=json.dumps(dict(text=text)))
say(type="TOOL_CALL_END", toolCallId=call)
say(type="TOOL_CALL_RESULT", messageId="t-" + run["runId"], toolCallId=call, content=text)
say(type="TEXT_MESSAGE_START", messageId="a-" + run["runId"], role="assistant")
say(type="TEXT_MESSAGE_CONTENT", messageId="a-" + run["runId"], delta=text)
say(type="TEXT_MESSAGE_END", messageId="a-" + run["runId"])
say(type="RUN_FINISHED", **ids)
`

// text is n bytes of numbered lines: what is missing, twice, or out of place shows.
func text(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "line %d of a long story, with <angles> & \"quotes\"\n", i)
	}
	return b.String()[:n]
}

func start(t *testing.T) *harness.Holdfast {
	t.Helper()
	h := harness.Start(t, harness.SharedPostgres(t))
	h.Policy(api.PolicySpec{Name: "echo", Default: api.PolicyEffectAllow})
	h.Runtime("echo", func(r *api.RuntimeSpec) {
		r.Adapter = api.Adapter{Protocol: api.AdapterProtocolExec}
		r.Sandbox.Command, r.Entrypoints, r.Policy = []string{"python3", "-c", agent}, nil, "echo"
	})
	return h
}

// Megabytes, more than a message of NATS or a batch of OUTPUT holds, go the whole way: message, input, call, result, agent's text, and back
// by every view; and again by views that are built anew.
func TestMegabytes(t *testing.T) {
	t.Parallel()
	h := start(t)
	id := h.CreateOf("alice", api.CreateSession{Runtime: "echo"}).ID
	want := text(3 << 20)
	run := send(t, h, id, want)
	awaitEnd(t, h, id, run)

	inLog(t, h, id, want)
	c := h.Client("admin")
	seq := h.Session(id).Seq
	views := func() {
		t.Helper()
		inMessages(t, h, c, id, want, seq)
		inTimeline(t, h, c, id, want, seq)
		inAudit(t, h, c, id, want)
	}
	views()
	inStream(t, h, id, want)

	h.Stop()
	h.Offline(func(ctx context.Context, log eventlog.Log, pool *pgxpool.Pool) error {
		_, err := projections.Rebuild(ctx, projections.RebuildConfig{Log: log, Pool: pool})
		return err
	})
	h.Begin()
	c = h.Client("admin")
	views()
}

// unavailable says that a request may be repeated: on a busy machine megabytes take long.
func unavailable(err error) bool {
	refused, ok := errors.AsType[*api.Error](err)
	return ok && refused.Problem.Status == http.StatusServiceUnavailable
}

// patient asks again while the answer isn't to be had.
func patient[R any](t *testing.T, ask func() (R, error)) R {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; {
		r, err := ask()
		if err == nil {
			return r
		}
		if !unavailable(err) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// send sends a message, as often as it takes, and gives its run.
func send(t *testing.T, h *harness.Holdfast, id, content string) string {
	t.Helper()
	key := "once"
	for {
		r, err := h.Client("alice").SendMessageWithResponse(h.Context(), id, &api.SendMessageParams{IdempotencyKey: &key}, api.SendMessage{Content: content})
		switch {
		case err == nil:
			return r.JSON202.RunID
		case !unavailable(err):
			t.Fatalf("send: %v", err)
		}
	}
}

// awaitEnd waits until the run has ended as it should: longer than harness.Patience, for
// every part handles each of the megabytes several times.
func awaitEnd(t *testing.T, h *harness.Holdfast, id, run string) {
	t.Helper()
	tick, deadline := time.NewTicker(200*time.Millisecond), time.NewTimer(4*time.Minute)
	defer tick.Stop()
	defer deadline.Stop()
	for {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatal("waited in vain for the run's end")
		}
		r := patient(t, func() (*apiclient.ListRunsResponse, error) {
			return h.Client("admin").ListRunsWithResponse(h.Context(), id, nil)
		})
		for _, is := range r.JSON200.Items {
			switch {
			case is.ID != run || is.EndedAt.IsZero():
			case is.State != api.RunStateFinished:
				t.Fatalf("the run is %s: %s, %s", is.State, is.Cause, is.Detail)
			default:
				return
			}
		}
	}
}

// inLog: every event has all of it, and no message of the log is large.
func inLog(t *testing.T, h *harness.Holdfast, id, want string) {
	t.Helper()
	facts := h.Facts(id)
	for _, f := range facts {
		if len(f.Message.Raw) > events.MaxEnvelopeBytes {
			t.Errorf("the envelope of %s has %d bytes", f.Type, len(f.Message.Raw))
		}
	}
	same(t, "message-received", unquote(t, harness.Of[session.MessageReceived](facts)[0].Content), want)
	var args struct{ Text string }
	decode(t, harness.Of[session.CallProposed](facts)[0].Args, &args)
	same(t, "call.proposed", args.Text, want)
	same(t, "call.completed", harness.Of[session.CallCompleted](facts)[0].Output, want)
	said := map[string]string{}
	for _, m := range harness.Of[session.RunMessageRecorded](facts) {
		var message struct{ Content string }
		decode(t, m.Message, &message)
		said[m.Role] += message.Content
	}
	same(t, "the agent's text", said["assistant"], want)
	same(t, "the tool's result", said["tool"], want)
}

func inMessages(t *testing.T, h *harness.Holdfast, c *apiclient.ClientWithResponses, id, want string, seq uint64) {
	t.Helper()
	said := map[string]string{}
	var cursor *string
	for {
		r := patient(t, func() (*apiclient.ListMessagesResponse, error) {
			return c.ListMessagesWithResponse(h.Context(), id, &api.ListMessagesParams{MinSeq: &seq, Cursor: cursor})
		})
		for _, m := range r.JSON200.Items {
			said[m.Role] += m.Content
		}
		if r.JSON200.Next == "" {
			break
		}
		cursor = &r.JSON200.Next
	}
	for _, role := range []string{"user", "tool", "assistant"} {
		same(t, "listed as "+role, said[role], want)
	}
}

func inTimeline(t *testing.T, h *harness.Holdfast, c *apiclient.ClientWithResponses, id, want string, seq uint64) {
	t.Helper()
	var frames []api.Frame
	var after *string
	for {
		r := patient(t, func() (*apiclient.ListTimelineResponse, error) {
			return c.ListTimelineWithResponse(h.Context(), id, &api.ListTimelineParams{MinSeq: &seq, After: after})
		})
		frames = append(frames, r.JSON200.Items...)
		if r.JSON200.Next == "" {
			break
		}
		after = &r.JSON200.Next
	}
	inFrames(t, "timeline", frames, want)
}

func inStream(t *testing.T, h *harness.Holdfast, id, want string) {
	t.Helper()
	inFrames(t, "stream", h.Follow("alice", id, harness.OnEvent(session.TypeRunFinished)), want)
}

// inFrames: the events of the log that hold the text, and what the agent streamed.
func inFrames(t *testing.T, where string, frames []api.Frame, want string) {
	t.Helper()
	events, delta := map[string]int{}, ""
	for _, f := range frames {
		if e := harness.EventOf(f); e.Type != "" && holds(t, f.Data, want) {
			events[e.Type]++
		}
		var said []struct{ Type, Delta string }
		if f.Kind == api.FrameKindAgui {
			decode(t, f.Data, &said)
		}
		for _, e := range said {
			if e.Type == "TEXT_MESSAGE_CONTENT" {
				delta += e.Delta
			}
		}
	}
	for eventType, times := range map[string]int{
		session.TypeMessageReceived: 1, session.TypeCallProposed: 1, session.TypeCallCompleted: 1, session.TypeRunMessageRecorded: 2,
	} {
		if events[eventType] < times {
			t.Errorf("%s: %d of %s are whole, want %d; frames: %s", where, events[eventType], eventType, times, harness.Summary(frames))
		}
	}
	same(t, where+" of the agent's text", delta, want)
}

func inAudit(t *testing.T, h *harness.Holdfast, c *apiclient.ClientWithResponses, id, want string) {
	t.Helper()
	whole := map[string]bool{}
	var cursor *string
	for {
		r := patient(t, func() (*apiclient.ListAuditResponse, error) {
			return c.ListAuditWithResponse(h.Context(), &api.ListAuditParams{Session: &id, Cursor: cursor})
		})
		for _, e := range r.JSON200.Items {
			if holds(t, e.Data, want) {
				whole[e.Type] = true
			}
		}
		if r.JSON200.Next == "" {
			break
		}
		cursor = &r.JSON200.Next
	}
	for _, eventType := range []string{session.TypeMessageReceived, session.TypeCallProposed, session.TypeCallCompleted, session.TypeRunMessageRecorded} {
		if !whole[eventType] {
			t.Errorf("the audit log has not all of %s", eventType)
		}
	}
}

// The largest content is taken, one byte more is refused by name; in both of the ways
// that a message comes.
func TestTheLimit(t *testing.T) {
	t.Parallel()
	h := start(t)
	id := h.CreateOf("alice", api.CreateSession{Runtime: "echo"}).ID
	largest := strings.Repeat("x", verbs.MaxContentBytes-2)
	c := h.Client("alice")
	_, err := c.SendMessageWithResponse(h.Context(), id, nil, api.SendMessage{Content: largest + "x"})
	if p := harness.Refused(t, err, api.CodeContentTooLarge); !strings.Contains(p.Detail, fmt.Sprint(verbs.MaxContentBytes)) || p.Errors[0].Pointer != "/content" {
		t.Errorf("it doesn't say what is too large for what: %+v", p)
	}
	_, err = c.CreateSessionWithResponse(h.Context(), nil, api.CreateSession{Runtime: "echo", Message: largest + "x"})
	harness.Refused(t, err, api.CodeContentTooLarge)
	_, err = c.CreateSessionWithResponse(h.Context(), nil, api.CreateSession{Runtime: "echo", Config: json.RawMessage(`{"a":"` + strings.Repeat("x", verbs.MaxConfigBytes) + `"}`)})
	harness.Refused(t, err, api.CodeContentTooLarge)
	args := func(n int) api.ProposeCall {
		return api.ProposeCall{AgentCallID: "large", RunID: "r-none", Tool: "echo", Args: json.RawMessage(`{"t":"` + strings.Repeat("x", n-8) + `"}`)}
	}
	box := h.Agent(id)
	_, err = box.ProposeCallWithResponse(h.Context(), args(verbs.MaxContentBytes+1))
	harness.Refused(t, err, api.CodeContentTooLarge)
	for busy := true; busy; { // taken, and refused for another reason
		_, err = box.ProposeCallWithResponse(h.Context(), args(verbs.MaxContentBytes))
		busy = unavailable(err)
	}
	if refused := harness.Refused(t, err, api.CodeIllegalTransition); refused.Phase == "" {
		t.Errorf("%+v", refused)
	}
	send(t, h, id, largest)
	received := harness.Of[session.MessageReceived](h.Facts(id))
	if len(received) != 1 {
		t.Fatalf("%d messages", len(received))
	}
	same(t, "the largest message", unquote(t, received[0].Content), largest)
}

func same(t *testing.T, what, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	t.Errorf("%s: %d bytes, want %d; they differ from byte %d on", what, len(got), len(want), at)
}

func decode(t *testing.T, raw json.RawMessage, into any) {
	t.Helper()
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatal(err)
	}
}

func unquote(t *testing.T, raw json.RawMessage) (s string) {
	t.Helper()
	decode(t, raw, &s)
	return s
}

// holds says whether one of a document's texts has another whole in it, however either
// is written.
func holds(t *testing.T, document json.RawMessage, text string) bool {
	t.Helper()
	var v any
	if err := json.Unmarshal(document, &v); err != nil {
		t.Fatal(err)
	}
	return within(v, text)
}

func within(v any, text string) bool {
	switch v := v.(type) {
	case string:
		return strings.Contains(v, text)
	case []any:
		return slices.ContainsFunc(v, func(e any) bool { return within(e, text) })
	case map[string]any:
		for _, e := range v {
			if within(e, text) {
				return true
			}
		}
	}
	return false
}
