package agents_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// adapters are those by which an agent takes runs.
var adapters = []api.AdapterProtocol{api.AdapterProtocolAgui, api.AdapterProtocolExec, api.AdapterProtocolPush}

// TestRogues: an agent that breaks the protocol fails its run with the reason, by
// whatever adapter, and not the session: the next message works.
func TestRogues(t *testing.T) {
	h := harness.Start(t, harness.SharedPostgres(t))
	folder, err := filepath.Abs(filepath.Join("testdata", "rogue"))
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range adapters {
		h.Runtime("rogue-"+string(a), func(r *api.RuntimeSpec) {
			r.Sandbox = api.Sandbox{HostFolder: folder, Command: []string{"python3", "/agent/rogue.py", string(a)}}
			if r.Adapter = (api.Adapter{Protocol: a}); a == api.AdapterProtocolAgui {
				r.Adapter.Path, r.Entrypoints[0].Ready = "/run", ""
			} else {
				r.Entrypoints = nil
			}
		})
		for name, tc := range rogues {
			t.Run(string(a)+"/"+name, func(t *testing.T) {
				t.Parallel()
				want := tc.says
				if own, ok := tc.own[a]; ok {
					want = own
				}
				failsAlone(t, h.In(t), "rogue-"+string(a), tc.script, want)
			})
		}
	}
}

// rogues are scripts, what the failed run says of each, and what it says otherwise by
// an adapter.
var rogues = map[string]struct {
	script, says string
	own          map[api.AdapterProtocol]string
}{
	"an unknown type":  {script: `{"type":"session.ended"}`, says: `protocol-broken: event 2, session.ended: AG-UI 1.0 has no such type (unknown-type); expected one of its types`},
	"another run":      {script: `{"type":"RUN_FINISHED","threadId":"$THREAD","runId":"r-other"}`, says: `(other-run)`},
	"a field missing":  {script: `{"type":"TEXT_MESSAGE_START"}`, says: "event 2, TEXT_MESSAGE_START: it has no messageId (field); expected messageId as a string"},
	"left open":        {script: `{"type":"TEXT_MESSAGE_START","messageId":"m"}` + "\n!fine", says: `event 3, RUN_FINISHED: TEXT_MESSAGE "m" is still open (left-open); expected TEXT_MESSAGE_END before it`},
	"never opened":     {script: `{"type":"TOOL_CALL_END","toolCallId":"c"}`, says: "(not-open)"},
	"started twice":    {script: `{"type":"RUN_STARTED","threadId":"$THREAD","runId":"$RUN"}`, says: "(started-twice)"},
	"no object":        {script: `[]`, says: "event 2: it can't be read: [] (unreadable)"},
	"asks for nothing": {script: `{"type":"RUN_FINISHED","threadId":"$THREAD","runId":"$RUN","outcome":{"type":"interrupt","interrupts":[]}}`, says: "(outcome)"},
	"asks for what was never proposed": {
		script: `{"type":"RUN_FINISHED","threadId":"$THREAD","runId":"$RUN","outcome":{"type":"interrupt","interrupts":[{"id":"s-x.c-y","reason":"tool_call"}]}}`,
		says:   "never proposed as a call",
	},
	"a state not told whole": {
		script: `{"type":"STATE_DELTA","delta":[{"op":"add","path":"/a","value":1}]}` + "\n" +
			`{"type":"RUN_FINISHED","threadId":"$THREAD","runId":"$RUN","outcome":{"type":"interrupt","interrupts":[{"id":"i","reason":"tool_call"}]}}`,
		says: "expected a STATE_SNAPSHOT before an interrupt",
	},
	"a delta that doesn't apply": {script: `{"type":"STATE_DELTA","delta":[{"op":"remove","path":"/none"}]}` + "\n!fine", says: "event 2: state delta"},
	"an event too large":         {script: "!big 17000000", says: "event-too-large: event 2 has more than 16777216 bytes"},
	"ends with a status": {script: "!print it went wrong\n!exit 3", says: "agent-died: the agent died in the middle of the run: it exited with status 3", own: map[api.AdapterProtocol]string{
		api.AdapterProtocolExec: "agent-failed: the program exited with status 3 without RUN_FINISHED or RUN_ERROR; the last that it printed on stderr:\nit went wrong",
	}},
	"ends well, and too soon": {script: "!exit 0", says: "it exited with status 0", own: map[api.AdapterProtocol]string{
		api.AdapterProtocolExec: "agent-broke-off: the program ended without RUN_FINISHED or RUN_ERROR",
	}},
	"is killed":           {script: "!die", says: "SIGKILL"},
	"says that it failed": {script: `{"type":"RUN_ERROR","message":"no model today"}`, says: "no model today"},
}

// failsAlone: a script fails its run for a reason, and the session goes on.
func failsAlone(t *testing.T, h *harness.Holdfast, runtime, script, why string) {
	id := create(t, h, runtime)
	run := h.Send("alice", id, script)
	h.AwaitRun(id, run, api.RunStateFailed)
	failed := harness.Of[session.RunFailed](h.Facts(id))
	if len(failed) != 1 || !strings.Contains(failed[0].Detail, why) {
		t.Errorf("failed as %+v, want %q", failed, why)
	}
	says(t, h, id, "!fine")
}

// TestStubbornProgram: one that doesn't heed SIGTERM is killed, and its run cancelled.
func TestStubbornProgram(t *testing.T) {
	h := harness.Start(t, harness.SharedPostgres(t))
	folder, err := filepath.Abs(filepath.Join("testdata", "rogue"))
	if err != nil {
		t.Fatal(err)
	}
	h.Runtime("stubborn", func(r *api.RuntimeSpec) {
		r.Sandbox = api.Sandbox{HostFolder: folder, Command: []string{"python3", "/agent/rogue.py", "exec"}}
		r.Adapter, r.Entrypoints = api.Adapter{Protocol: api.AdapterProtocolExec}, nil
	})
	id := create(t, h, "stubborn")
	run := h.Send("alice", id, "!stubborn")
	h.Follow("alice", id, func(f api.Frame) bool {
		return f.Kind == api.FrameKindAgui && strings.Contains(string(f.Data), "stubborn")
	})
	if _, err := h.Client("alice").CancelRunWithResponse(h.Context(), id, run, nil); err != nil {
		t.Fatal(err)
	}
	h.AwaitRun(id, run, api.RunStateCancelled)
	says(t, h, id, "!fine")
}

// TestNeverAnswers: the author of an agent that doesn't even start reads in the log what
// it printed last.
func TestNeverAnswers(t *testing.T) {
	h := harness.Start(t, harness.SharedPostgres(t))
	h.Runtime("mute", func(r *api.RuntimeSpec) {
		r.Sandbox = api.Sandbox{Command: []string{"sh", "-c", "echo no module named model >&2; exit 3"}}
		r.Adapter, r.Entrypoints = api.Adapter{Protocol: api.AdapterProtocolPush}, nil
	})
	id := h.CreateOf("alice", api.CreateSession{Runtime: "mute"}).ID
	const want = "it last exited with status 3; the last that it said:\nno module named model"
	harness.Eventually(t, "the session has failed", func() bool { return len(harness.Of[session.Failed](h.Facts(id))) > 0 })
	if failed := harness.Of[session.Failed](h.Facts(id)); len(failed) != 1 || !strings.HasSuffix(failed[0].Detail, want) {
		t.Errorf("failed as %+v, want %q", failed, want)
	}
}
