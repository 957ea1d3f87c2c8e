package agui

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// one makes an event of a type with its fields.
func one(typ string, with ...string) string {
	f := map[string]string{"type": typ}
	for i := 0; i < len(with); i += 2 {
		f[with[i]] = with[i+1]
	}
	return string(Encode(f))
}

// finishing makes a RUN_FINISHED with an outcome.
func finishing(outcome string) string {
	return strings.TrimSuffix(finished, "}") + `,"outcome":` + outcome + "}"
}

func text1(what string) string { return one("TEXT_MESSAGE_"+what, "messageId", "m", "delta", "x") }

func tool1(what string) string {
	return one("TOOL_CALL_"+what, "toolCallId", "c", "toolCallName", "shell", "delta", "x")
}

// accept gives a run's events to an order and what it said; the first violation ends it.
func accept(o *Order, events ...string) (said []string, ending *Ending, err error) {
	for _, e := range events {
		var passed [][]byte
		passed, ending, err = o.Accept([]byte(e))
		for _, p := range passed {
			said = append(said, string(p))
		}
		if err != nil {
			return said, nil, err
		}
	}
	return said, ending, nil
}

func TestRunsInOrder(t *testing.T) {
	for name, tc := range map[string]struct {
		outcome string
		events  []string
	}{
		"success":                {OutcomeSuccess, []string{started, finished}},
		"explicit success":       {OutcomeSuccess, []string{started, finishing(`{"type":"success"}`)}},
		"cancelled":              {OutcomeCancelled, []string{started, finishing(`{"type":"cancelled"}`)}},
		"interrupt":              {OutcomeInterrupt, []string{started, finishing(`{"type":"interrupt","interrupts":[{"id":"i","reason":"tool_call"}]}`)}},
		"error first":            {OutcomeError, []string{one(TypeRunError, "message", "no")}},
		"error with things open": {OutcomeError, []string{started, text1("START"), one(TypeRunError, "message", "no")}},
		"message":                {OutcomeSuccess, []string{started, text1("START"), text1("CONTENT"), text1("END"), finished}},
		"nested":                 {OutcomeSuccess, []string{started, text1("START"), tool1("START"), tool1("ARGS"), text1("END"), tool1("END"), finished}},
		"a step may come again": {OutcomeSuccess, []string{
			started, one("STEP_STARTED", "stepName", "s"), one("STEP_FINISHED", "stepName", "s"),
			one("STEP_STARTED", "stepName", "s"), one("STEP_FINISHED", "stepName", "s"), finished,
		}},
		"a subagent's step beside its parent's": {OutcomeSuccess, []string{
			started, one("SUBAGENT_STARTED", "subagentRunId", "a", "name", "n"), one("STEP_STARTED", "stepName", "s"),
			one("STEP_STARTED", "stepName", "s", "subagentRunId", "a"), one("STEP_FINISHED", "stepName", "s", "subagentRunId", "a"),
			one("STEP_FINISHED", "stepName", "s"), one("SUBAGENT_ERROR", "subagentRunId", "a", "message", "no"), finished,
		}},
		"reasoning under one id": {OutcomeSuccess, []string{
			started, one("REASONING_START", "messageId", "m"), one("REASONING_MESSAGE_START", "messageId", "m", "role", "reasoning"),
			one("REASONING_MESSAGE_CONTENT", "messageId", "m", "delta", ""), one("REASONING_MESSAGE_END", "messageId", "m"),
			one("REASONING_END", "messageId", "m"), finished,
		}},
		"the state told whole after deltas": {OutcomeInterrupt, []string{
			started, `{"type":"STATE_DELTA","delta":[]}`, `{"type":"STATE_SNAPSHOT","snapshot":null}`,
			finishing(`{"type":"interrupt","interrupts":[{"id":"i","reason":"x:y"}]}`),
		}},
		"all that needs no order": {OutcomeSuccess, []string{
			started, `{"type":"CUSTOM","name":"n","value":null}`, `{"type":"RAW","event":{}}`, `{"type":"MESSAGES_SNAPSHOT","messages":[]}`,
			`{"type":"TOOL_CALL_RESULT","messageId":"r","toolCallId":"c","content":[{"type":"text","text":"t"}],"role":"tool"}`,
			`{"type":"ACTIVITY_SNAPSHOT","messageId":"a","activityType":"plan","content":{},"replace":false}`,
			`{"type":"ACTIVITY_DELTA","messageId":"a","activityType":"plan","patch":[]}`, finished,
		}},
		"fields that nobody knows": {OutcomeSuccess, []string{started, `{"type":"CUSTOM","name":"n","value":1,"later":true,"timestamp":1,"metadata":{}}`, finished}},
	} {
		t.Run(name, func(t *testing.T) {
			said, ending, err := accept(NewOrder("t", "r"), tc.events...)
			if err != nil || ending == nil || ending.Outcome != tc.outcome {
				t.Fatalf("%+v, %v; want %s", ending, err, tc.outcome)
			}
			if !slices.Equal(said, tc.events) {
				t.Errorf("passed on %q", said)
			}
		})
	}
}

// Each way to break the protocol has its rule, and is told with the event's number,
// its type, and what was expected.
func TestViolations(t *testing.T) {
	interrupt := func(list string) string { return finishing(`{"type":"interrupt","interrupts":` + list + `}`) }
	for name, tc := range map[string]struct {
		rule   Rule
		events []string // the last one breaks it
		says   string
	}{
		"not JSON":              {RuleUnreadable, []string{`hello`}, `event 1: it can't be read: hello`},
		"not an object":         {RuleUnreadable, []string{`[]`}, "expected a JSON object"},
		"null":                  {RuleUnreadable, []string{`null`}, "expected a JSON object"},
		"not UTF-8":             {RuleUnreadable, []string{"{\"type\":\"RUN_ERROR\",\"message\":\"\xff\"}"}, "UTF-8"},
		"no type":               {RuleUnreadable, []string{`{"runId":"r"}`}, "has no type"},
		"a type that's no text": {RuleUnreadable, []string{`{"type":7}`}, "has no type"},
		"an unknown type":       {RuleUnknownType, []string{started, `{"type":"FROM_THE_FUTURE"}`}, "event 2, FROM_THE_FUTURE: AG-UI 1.0 has no such type (unknown-type); expected one of its types, or CUSTOM"},
		"one of Holdfast's own": {RuleUnknownType, []string{started, `{"type":"session.ended"}`}, "session.ended"},

		"before the start":         {RuleBeforeStart, []string{text1("START")}, "event 1, TEXT_MESSAGE_START"},
		"finished without a start": {RuleBeforeStart, []string{finished}, "expected RUN_STARTED first"},
		"started twice":            {RuleStartedTwice, []string{started, started}, "event 2, RUN_STARTED"},
		"another run":              {RuleOtherRun, []string{one(TypeRunStarted, "threadId", "t", "runId", "other")}, `thread "t" and run "other"`},
		"another thread":           {RuleOtherRun, []string{one(TypeRunStarted, "threadId", "other", "runId", "r")}, `expected threadId "t" and runId "r", as in the input`},
		"the end of another run":   {RuleOtherRun, []string{started, one(TypeRunFinished, "threadId", "t", "runId", "other")}, ""},
		"after the end":            {RuleAfterEnd, []string{started, finished, text1("START")}, "event 3"},
		"a second end":             {RuleAfterEnd, []string{started, finished, finished}, "nothing after the terminal event"},
		"after an error":           {RuleAfterEnd, []string{one(TypeRunError, "message", "no"), started}, ""},

		"a message left open":   {RuleLeftOpen, []string{started, text1("START"), finished}, `TEXT_MESSAGE "m" is still open (left-open); expected TEXT_MESSAGE_END before it`},
		"a call left open":      {RuleLeftOpen, []string{started, tool1("START"), finished}, "TOOL_CALL_END"},
		"a step left open":      {RuleLeftOpen, []string{started, one("STEP_STARTED", "stepName", "s"), finished}, "STEP_FINISHED"},
		"reasoning left open":   {RuleLeftOpen, []string{started, one("REASONING_START", "messageId", "m"), finished}, "REASONING_END"},
		"a thought left open":   {RuleLeftOpen, []string{started, one("REASONING_MESSAGE_START", "messageId", "m", "role", "reasoning"), finished}, "REASONING_MESSAGE_END"},
		"a subagent left open":  {RuleLeftOpen, []string{started, one("SUBAGENT_STARTED", "subagentRunId", "a", "name", "n"), finished}, "SUBAGENT_FINISHED"},
		"open at an interrupt":  {RuleLeftOpen, []string{started, tool1("START"), interrupt(`[{"id":"i","reason":"tool_call"}]`)}, ""},
		"content, no start":     {RuleNotOpen, []string{started, text1("CONTENT")}, `event 2, TEXT_MESSAGE_CONTENT: TEXT_MESSAGE "m" isn't open (not-open); expected TEXT_MESSAGE_START before it`},
		"an end, no start":      {RuleNotOpen, []string{started, tool1("END")}, "TOOL_CALL_START"},
		"content after the end": {RuleNotOpen, []string{started, text1("START"), text1("END"), text1("CONTENT")}, "event 4"},
		"another's step closed": {RuleNotOpen, []string{started, one("STEP_STARTED", "stepName", "s"), one("STEP_FINISHED", "stepName", "s", "subagentRunId", "a")}, ""},
		"opened twice":          {RuleOpenedTwice, []string{started, text1("START"), text1("START")}, ""},
		"opened again":          {RuleOpenedTwice, []string{started, text1("START"), text1("END"), text1("START")}, ""},
		"a subagent again": {RuleOpenedTwice, []string{
			started, one("SUBAGENT_STARTED", "subagentRunId", "a", "name", "n"), one("SUBAGENT_FINISHED", "subagentRunId", "a"),
			one("SUBAGENT_STARTED", "subagentRunId", "a", "name", "n"),
		}, ""},

		"a chunk of nothing":         {RuleChunk, []string{started, one(TypeTextChunk, "delta", "x")}, "expected messageId in the first chunk"},
		"a chunk that names no tool": {RuleChunk, []string{started, one(TypeToolChunk, "toolCallId", "c")}, "expected toolCallName"},
		"a chunk after its end":      {RuleOpenedTwice, []string{started, one(TypeTextChunk, "messageId", "m"), text1("START")}, ""},
		"a chunk of what was":        {RuleOpenedTwice, []string{started, text1("START"), text1("END"), one(TypeTextChunk, "messageId", "m")}, ""},

		"a field missing":       {RuleField, []string{started, one(TypeTextStart)}, "it has no messageId (field); expected messageId as a string that isn't empty"},
		"an empty id":           {RuleField, []string{started, one(TypeTextStart, "messageId", "")}, `messageId is ""`},
		"an id that's a number": {RuleField, []string{started, `{"type":"TEXT_MESSAGE_START","messageId":7}`}, "messageId is 7"},
		"a role of its own":     {RuleField, []string{started, one(TypeTextStart, "messageId", "m", "role", "tool")}, "expected one of assistant, user, system, developer"},
		"no delta":              {RuleField, []string{started, text1("START"), one(TypeTextContent, "messageId", "m")}, "delta"},
		"a delta that's null":   {RuleField, []string{started, text1("START"), `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":null}`}, "delta is null"},
		"a tool without a name": {RuleField, []string{started, one(TypeToolStart, "toolCallId", "c")}, "toolCallName"},
		"a result of a number":  {RuleField, []string{started, `{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":1}`}, "a string or an array"},
		"state deltas no list":  {RuleField, []string{started, `{"type":"STATE_DELTA","delta":{}}`}, "an array"},
		"no snapshot":           {RuleField, []string{started, one(TypeStateSnapshot)}, "snapshot"},
		"an error unsaid":       {RuleField, []string{started, one(TypeRunError)}, "message"},
		"a start without a run": {RuleField, []string{one(TypeRunStarted, "threadId", "t")}, "runId"},
		"metadata no object":    {RuleField, []string{started, `{"type":"CUSTOM","name":"n","value":1,"metadata":[]}`}, "metadata is []"},
		"an activity's replace": {RuleField, []string{started, `{"type":"ACTIVITY_SNAPSHOT","messageId":"a","activityType":"t","content":{},"replace":1}`}, "true or false"},
		"a timestamp no number": {RuleField, []string{started, `{"type":"CUSTOM","name":"n","value":1,"timestamp":"now"}`}, "a number"},

		"an unknown outcome":       {RuleOutcome, []string{started, finishing(`{"type":"fine"}`)}, `its type is "fine"`},
		"an outcome that's a text": {RuleField, []string{started, finishing(`"success"`)}, "outcome"},
		"an outcome of numbers":    {RuleOutcome, []string{started, finishing(`{"type":7}`)}, ""},
		"nothing asked":            {RuleOutcome, []string{started, interrupt(`[]`)}, "at least one"},
		"asked without an id":      {RuleOutcome, []string{started, interrupt(`[{"reason":"tool_call"}]`)}, "interrupts[0]"},
		"asked without a reason":   {RuleOutcome, []string{started, interrupt(`[{"id":"i"}]`)}, "interrupts[0]"},
		"asked twice":              {RuleOutcome, []string{started, interrupt(`[{"id":"i","reason":"x"},{"id":"i","reason":"x"}]`)}, "interrupts[1] has the id of another"},
		"a state not told whole":   {RuleStaleState, []string{started, `{"type":"STATE_SNAPSHOT","snapshot":{}}`, `{"type":"STATE_DELTA","delta":[]}`, interrupt(`[{"id":"i","reason":"x"}]`)}, "expected a STATE_SNAPSHOT before an interrupt"},
	} {
		t.Run(name, func(t *testing.T) {
			last := len(tc.events) - 1
			o := NewOrder("t", "r")
			if _, _, err := accept(o, tc.events[:last]...); err != nil {
				t.Fatalf("before it: %v", err)
			}
			said, _, err := o.Accept([]byte(tc.events[last]))
			v, ok := errors.AsType[*ViolationError](err)
			if !ok || v.Rule != tc.rule || v.Event != len(tc.events) || !errors.Is(err, ErrOrder) {
				t.Fatalf("%+v, want %s at event %d", err, tc.rule, len(tc.events))
			}
			if !strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), "expected ") {
				t.Errorf("it says %q, not %q", err, tc.says)
			}
			for _, e := range said {
				if string(e) == tc.events[last] {
					t.Error("it was passed on")
				}
			}
		})
	}
}

// Chunks become the events that they stand for.
func TestChunks(t *testing.T) {
	said, _, err := accept(NewOrder("t", "r"), started,
		one(TypeTextChunk, "messageId", "m", "role", "assistant", "delta", "a<b"), `{"type":"RAW","event":1}`, one(TypeTextChunk, "delta", "c"),
		one(TypeToolChunk, "toolCallId", "c", "toolCallName", "shell", "parentMessageId", "m", "subagentRunId", "s"), one(TypeToolChunk, "toolCallId", "c", "delta", "{}"),
		one(typeReasoningChunk, "messageId", "m"), one(TypeTextChunk, "messageId", "n"), one(TypeTextChunk, "messageId", "o"), finished)
	want := []string{
		started,
		`{"messageId":"m","role":"assistant","type":"TEXT_MESSAGE_START"}`, `{"delta":"a<b","messageId":"m","type":"TEXT_MESSAGE_CONTENT"}`,
		`{"type":"RAW","event":1}`, `{"delta":"c","messageId":"m","type":"TEXT_MESSAGE_CONTENT"}`, `{"messageId":"m","type":"TEXT_MESSAGE_END"}`,
		`{"parentMessageId":"m","subagentRunId":"s","toolCallId":"c","toolCallName":"shell","type":"TOOL_CALL_START"}`,
		`{"delta":"{}","toolCallId":"c","type":"TOOL_CALL_ARGS"}`, `{"toolCallId":"c","type":"TOOL_CALL_END"}`,
		`{"messageId":"m","role":"reasoning","type":"REASONING_MESSAGE_START"}`, `{"messageId":"m","type":"REASONING_MESSAGE_END"}`,
		`{"messageId":"n","type":"TEXT_MESSAGE_START"}`, `{"messageId":"n","type":"TEXT_MESSAGE_END"}`,
		`{"messageId":"o","type":"TEXT_MESSAGE_START"}`, `{"messageId":"o","type":"TEXT_MESSAGE_END"}`,
		finished,
	}
	if err != nil || !slices.Equal(said, want) {
		t.Errorf("%v\n%s", err, strings.Join(said, "\n"))
	}
}

// drawn is an event of any type, whose fields are often right.
func drawn(t *rapid.T) []byte {
	typ := rapid.SampledFrom(slices.Sorted(maps.Keys(shapes))).Draw(t, "type")
	event := map[string]any{"type": typ}
	for _, f := range shapes[typ] {
		if !f.required && rapid.IntRange(0, 1).Draw(t, f.name+" is there") == 0 {
			continue
		}
		if len(f.oneOf) > 0 {
			event[f.name] = rapid.SampledFrom(f.oneOf).Draw(t, f.name)
			continue
		}
		switch f.kind {
		case anything, text, textOrList:
			event[f.name] = rapid.SampledFrom([]string{"", "x"}).Draw(t, f.name)
		case name:
			event[f.name] = rapid.SampledFrom([]string{"a", "b", "r", "t"}).Draw(t, f.name)
		case number:
			event[f.name] = 1
		case flag:
			event[f.name] = true
		case list:
			event[f.name] = []int{}
		case object:
			event[f.name] = map[string]string{"type": "success"}
		}
	}
	return Encode(event)
}

// Whatever an agent said before it broke off, what was passed on and what Holdfast
// adds is a whole run, and its like is passed on unchanged.
func TestAbandonedRunsAreWellFormed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o, again := NewOrder("t", "r"), NewOrder("t", "r")
		said, _, err := o.Accept([]byte(started))
		over := false
		for range rapid.IntRange(0, 40).Draw(t, "events") {
			passed, ending, _ := o.Accept(drawn(t))
			said = append(said, passed...)
			over = over || ending != nil
		}
		if !over {
			said = append(said, o.Abandon()...)
			said = append(said, RunFinished("t", "r", Outcome{Type: OutcomeCancelled}))
		}
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range said {
			passed, ending, err := again.Accept(e)
			if err != nil || (ending != nil) != (i == len(said)-1) || len(passed) != 1 || string(passed[0]) != string(e) {
				t.Fatalf("event %d %s: passed on as %s, %v, %v", i, e, passed, ending, err)
			}
		}
	})
}

// FuzzOrder: an order accepts no nonsense, passes on only what it would accept
// itself, and can always end the run.
func FuzzOrder(f *testing.F) {
	f.Add([]byte(started + "\n" + text1("START") + "\n" + finished))
	f.Add([]byte(started + "\n" + one(TypeTextChunk, "messageId", "m", "delta", "x") + "\n" + one(TypeToolChunk, "toolCallId", "c", "toolCallName", "n")))
	f.Add([]byte(started + "\n" + one("STEP_STARTED", "stepName", "\u2028") + "\n" + `{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":{"type":"interrupt","interrupts":[{"id":"i","reason":"x"}]}}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		o, again := NewOrder("t", "r"), NewOrder("t", "r")
		ended := false
		pass := func(e []byte) {
			if !json.Valid(e) {
				t.Fatalf("passed on what isn't JSON: %q", e)
			}
			if _, _, err := again.Accept(e); err != nil {
				t.Fatalf("passed on %s: %v", e, err)
			}
		}
		for line := range strings.SplitSeq(string(in), "\n") {
			said, ending, err := o.Accept([]byte(line))
			if (ending != nil) && (err != nil || ended) {
				t.Fatalf("an end: %v", err)
			}
			ended = ended || ending != nil
			for _, e := range said {
				pass(e)
			}
		}
		if ended || !o.Started() {
			return
		}
		for _, e := range o.Abandon() {
			pass(e)
		}
		pass(RunFinished("t", "r", Outcome{Type: OutcomeCancelled}))
	})
}
