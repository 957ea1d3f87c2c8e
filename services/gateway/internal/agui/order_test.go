package agui

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// through passes events and gives the types of those that came through and of those
// that close the rest.
func through(o *order, events ...string) string {
	var out []string
	for _, e := range events {
		if o.admit(json.RawMessage(e)) {
			out = append(out, typeOf(json.RawMessage(e)))
		}
	}
	for _, e := range o.close() {
		out = append(out, "+"+e["type"])
	}
	return strings.Join(out, " ")
}

func typeOf(raw json.RawMessage) string {
	var e struct{ Type string }
	_ = json.Unmarshal(raw, &e) // a test's own
	return e.Type
}

func TestOrder(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		events []string
		want   string
		torn   bool
	}{
		"whole": {[]string{
			`{"type":"TEXT_MESSAGE_START","messageId":"a"}`, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":"x"}`, `{"type":"TEXT_MESSAGE_END","messageId":"a"}`,
		}, "TEXT_MESSAGE_START TEXT_MESSAGE_CONTENT TEXT_MESSAGE_END", false},
		"cut": {[]string{
			`{"type":"STEP_STARTED","stepName":"s","subagentRunId":"u"}`, `{"type":"TEXT_MESSAGE_START","messageId":"a"}`, `{"type":"TOOL_CALL_START","toolCallId":"t"}`,
			`{"type":"REASONING_START","messageId":"r"}`, `{"type":"SUBAGENT_STARTED","subagentRunId":"u"}`,
		}, "STEP_STARTED TEXT_MESSAGE_START TOOL_CALL_START REASONING_START SUBAGENT_STARTED +TOOL_CALL_END +TEXT_MESSAGE_END +REASONING_END +STEP_FINISHED +SUBAGENT_ERROR", false},
		"without its beginning": {[]string{`{"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":"x"}`, `{"type":"TEXT_MESSAGE_END","messageId":"a"}`}, "", true},
		"twice": {[]string{
			`{"type":"TEXT_MESSAGE_START","messageId":"a"}`, `{"type":"TEXT_MESSAGE_END","messageId":"a"}`,
			`{"type":"TEXT_MESSAGE_START","messageId":"a"}`, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":"x"}`,
		}, "TEXT_MESSAGE_START TEXT_MESSAGE_END", true},
		"a step again":         {[]string{`{"type":"STEP_STARTED","stepName":"s"}`, `{"type":"STEP_FINISHED","stepName":"s"}`, `{"type":"STEP_STARTED","stepName":"s"}`}, "STEP_STARTED STEP_FINISHED STEP_STARTED +STEP_FINISHED", false},
		"the run's own":        {[]string{`{"type":"RUN_STARTED"}`, `{"type":"MESSAGES_SNAPSHOT","messages":[]}`, `{"type":"RUN_FINISHED"}`, `{"type":"RUN_ERROR"}`}, "", false},
		"what nobody knows":    {[]string{`{"type":"SOMETHING_NEW"}`, `[]`, `7`}, "", false},
		"what stands anywhere": {[]string{`{"type":"STATE_DELTA","delta":[]}`, `{"type":"CUSTOM","name":"x"}`}, "STATE_DELTA CUSTOM", false},
	} {
		o := newOrder()
		if got := through(&o, tc.events...); got != tc.want || o.torn != tc.torn {
			t.Errorf("%s: %q (torn %t), want %q", name, got, o.torn, tc.want)
		}
	}
}

// A tool call without a result is known until it has one.
func TestUnanswered(t *testing.T) {
	t.Parallel()
	o := newOrder()
	for _, id := range []string{"a", "b"} {
		through(&o, `{"type":"TOOL_CALL_START","toolCallId":"`+id+`"}`)
	}
	through(&o, `{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"a","content":"x"}`)
	if len(o.unanswered) != 1 || o.unanswered[0] != "b" {
		t.Errorf("%q", o.unanswered)
	}
}

// Whatever comes in, what goes out opens each id once, goes on only with what is open,
// and in the end closes all of it.
func TestPropertyOrderIsValid(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		o := newOrder()
		open, begun := map[string]bool{}, map[string]bool{}
		look := func(e map[string]string) {
			sp := spans[e["type"]]
			id := sp.kind + e["messageId"] + e["toolCallId"] + e["stepName"] + e["subagentRunId"]
			switch {
			case sp.does == "open" && (open[id] || begun[id] && sp.kind != "STEP"):
				rt.Fatalf("%v is opened twice", e)
			case sp.does == "open":
				open[id], begun[id] = true, true
			case !open[id]:
				rt.Fatalf("%v is not open", e)
			case sp.does == "close":
				delete(open, id)
			}
		}
		types := rapid.SampledFrom([]string{
			"TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END",
			"STEP_STARTED", "STEP_FINISHED", "SUBAGENT_STARTED", "SUBAGENT_FINISHED", "REASONING_MESSAGE_START", "REASONING_MESSAGE_END",
		})
		for range rapid.IntRange(0, 60).Draw(rt, "events") {
			e := map[string]string{"type": types.Draw(rt, "type")}
			field := map[string]string{"TOOL_CALL": "toolCallId", "STEP": "stepName", "SUBAGENT": "subagentRunId"}[spans[e["type"]].kind]
			if field == "" {
				field = "messageId"
			}
			e[field] = fmt.Sprint("id-", rapid.IntRange(0, 3).Draw(rt, "id"))
			raw, err := json.Marshal(e)
			if err != nil {
				rt.Fatal(err)
			}
			if o.admit(raw) {
				look(e)
			}
		}
		for _, e := range o.close() {
			look(e)
		}
		if len(open) > 0 {
			rt.Fatalf("%v stay open", open)
		}
	})
}
