package agentinput_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/agentinput"
	given "github.com/holdfast-io/holdfast/services/internal/decidertest"
)

// The client's tools are the run's and its continuation's, and the result of one is a
// message, not an answer of resume[].
func TestClientTools(t *testing.T) {
	t.Parallel()
	asked := given.Queued("r-1").(session.MessageReceived)
	asked.Tools = []session.Tool{{Name: "pick", Parameters: json.RawMessage(`{"type":"object"}`)}}
	past := given.Ready.And(asked, given.Started("r-1"))
	const tools = `"tools":[{"name":"pick","description":"","parameters":{"type":"object"}}]`
	raw, err := agentinput.Build(thread(t, past))
	if err != nil || !strings.Contains(string(raw), tools) {
		t.Fatalf("%s, %v", raw, err)
	}
	raw, err = agentinput.Build(thread(t, past.And(
		session.CallProposed{CallID: "c-1", AgentCallID: "t-1", RunID: "r-1", Modes: []string{session.ModeDelegate}},
		session.CallDecided{CallID: "c-1", Decision: "allow"}, session.CallDelegated{CallID: "c-1", ToolCallID: "t-1", RunID: "r-1"},
		session.RunInterrupted{RunID: "r-1", Calls: []string{"c-1"}},
		session.CallCompleted{CallID: "c-1", Nonce: "m-9", Output: "blue"},
		session.RunStarted{RunID: "r-2", ParentRunID: "r-1", Generation: 1, PodUID: "pod-1"})))
	if err != nil || !strings.Contains(string(raw), tools) || strings.Contains(string(raw), "resume") ||
		!strings.Contains(string(raw), `{"id":"m-9","role":"tool","content":"blue","toolCallId":"t-1"}`) {
		t.Errorf("%s, %v", raw, err)
	}
}
