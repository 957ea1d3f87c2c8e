package agentinput_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/agentinput"
	given "github.com/holdfast-io/holdfast/services/internal/decidertest"
)

func thread(t *testing.T, past given.Past) *agentinput.Thread {
	t.Helper()
	th := agentinput.NewThread()
	subject, err := events.SessionSubject(given.Tenant, given.Session)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range past {
		service, _ := session.Owner(session.TypeOf(p))
		records, err := session.Records(service, p)
		if err != nil {
			t.Fatal(err)
		}
		n := uint64(i + 1)
		if err := th.Apply(events.Message{Subject: subject, Seq: n + 1, Envelope: events.Envelope{
			Command: fmt.Sprint(i), Service: service, N: n, Time: given.Start, Events: records,
		}}); err != nil {
			t.Fatal(err)
		}
	}
	return th
}

// The conversation comes from the log: a message stands where its run started, and
// the state is what the last run left.
func TestBuild(t *testing.T) {
	t.Parallel()
	said := session.RunMessageRecorded{RunID: "r-1", MessageID: "a-1", Role: "assistant", Message: json.RawMessage(`{"id":"a-1","role":"assistant","content":"hi"}`), K: 1}
	past := given.Ready.And(given.Queued("r-1"), given.Queued("r-2"), given.Started("r-1"), said,
		session.RunFinished{RunID: "r-1", Outcome: "success", State: json.RawMessage(`{"n":1}`)})
	if raw, err := agentinput.Build(thread(t, past)); raw != nil || err != nil {
		t.Errorf("without a run: %s, %v", raw, err)
	}
	raw, err := agentinput.Build(thread(t, past.And(given.Started("r-2"))))
	const want = `{"protocolVersion":"1.0","threadId":"` + given.Session + `","runId":"r-2","state":{"n":1},"messages":[` +
		`{"id":"m-r-1","role":"user","content":"hello"},{"id":"a-1","role":"assistant","content":"hi"},{"id":"m-r-2","role":"user","content":"hello"}],` +
		`"tools":[],"context":[],"forwardedProps":{}}`
	if err != nil || string(raw) != want {
		t.Errorf("%s, %v\nwant %s", raw, err, want)
	}
}

// A conversation that is too large for a sandbox still runs: its input is bounded,
// also where every character would be escaped for HTML.
func TestLongConversation(t *testing.T) {
	t.Parallel()
	past := given.Ready
	const runs = agentinput.MaxHistory/(500<<10) + 2
	for i := range runs {
		run := fmt.Sprintf("r-%d", i)
		content := json.RawMessage(`"` + strings.Repeat("<", 500<<10) + `"`)
		past = past.And(session.MessageReceived{MessageID: "m-" + run, RunID: run, Content: content, Requester: "alice"},
			given.Started(run), session.RunFinished{RunID: run, Outcome: "success"})
	}
	raw, err := agentinput.Build(thread(t, past[:len(past)-1]))
	if err != nil || len(raw) > agentinput.MaxHistory+1<<10 || len(raw) < agentinput.MaxHistory-1<<20 {
		t.Fatalf("%d bytes, %v", len(raw), err)
	}
	var in struct{ Messages []struct{ ID, Role string } }
	if err := json.Unmarshal(raw, &in); err != nil {
		t.Fatal(err)
	}
	if first, last := in.Messages[0], in.Messages[len(in.Messages)-1]; first.ID != agentinput.OmittedID || first.Role != "developer" || last.ID != fmt.Sprintf("m-r-%d", runs-1) {
		t.Errorf("from %+v to %+v", first, last)
	}
}

// resume[] says what became of each call that the parked run waited for.
func TestResume(t *testing.T) {
	t.Parallel()
	proposed := session.CallProposed{CallID: "c-1", RunID: "r-1"}
	asked := []session.Payload{proposed, session.CallDecided{CallID: "c-1", Decision: "ask"}, session.CallHumanConfirmRequired{CallID: "c-1", OnDeadline: "allow"}}
	yes := session.CallVoteCast{CallID: "c-1", By: "bob", Decision: "approve", Comment: "go"}
	no := session.CallVoteCast{CallID: "c-1", By: "bob", Decision: "deny", Comment: "not now"}
	for name, tc := range map[string]struct {
		calls []session.Payload
		want  string
	}{
		"approved":              {append(asked[:3:3], yes, session.CallApproved{CallID: "c-1", By: "bob"}), `"status":"resolved","payload":{"approved":true,"reason":"go"},"metadata":{"state":"approved"}`},
		"denied":                {append(asked[:3:3], no, session.CallDenied{CallID: "c-1", By: "bob"}), `"status":"resolved","payload":{"approved":false,"reason":"not now"},"metadata":{"state":"denied"}`},
		"allowed at the end":    {append(asked[:3:3], session.CallApproved{CallID: "c-1", By: "deadline"}), `"status":"resolved","payload":{"approved":true},"metadata":{"state":"approved"}`},
		"expired":               {append(asked[:3:3], session.CallExpired{CallID: "c-1"}), `"status":"cancelled","metadata":{"state":"expired"}`},
		"cancelled":             {append(asked[:3:3], session.CallCancelled{CallID: "c-1"}), `"status":"cancelled","metadata":{"state":"cancelled"}`},
		"superseded":            {append(asked[:3:3], session.CallSuperseded{CallID: "c-1"}), `"status":"cancelled","metadata":{"state":"superseded"}`},
		"allowed by the policy": {[]session.Payload{proposed, session.CallDecided{CallID: "c-1", Decision: "allow"}}, `"status":"resolved","payload":{"approved":true},"metadata":{"state":"allowed"}`},
		"denied by the policy":  {[]session.Payload{proposed, session.CallDecided{CallID: "c-1", Decision: "deny", Reason: "never"}}, `"status":"resolved","payload":{"approved":false,"reason":"never"},"metadata":{"state":"denied"}`},
	} {
		past := given.Running.And(tc.calls...).And(session.RunInterrupted{RunID: "r-1", Calls: []string{"c-1"}},
			session.RunStarted{RunID: "r-2", ParentRunID: "r-1", Generation: 1, PodUID: "pod-1"})
		raw, err := agentinput.Build(thread(t, past))
		if err != nil {
			t.Fatal(err)
		}
		var in struct {
			ParentRunID string
			Resume      []json.RawMessage
		}
		if err := json.Unmarshal(raw, &in); err != nil || len(in.Resume) != 1 || in.ParentRunID != "r-1" {
			t.Fatalf("%s: %s, %v", name, raw, err)
		}
		if want := `{"interruptId":"c-1",` + tc.want + `}`; string(in.Resume[0]) != want {
			t.Errorf("%s: %s, want %s", name, in.Resume[0], want)
		}
	}
}
