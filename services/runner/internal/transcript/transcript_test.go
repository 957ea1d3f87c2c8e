package transcript_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/services/runner/internal/transcript"
)

// read reads events and gives the messages that they completed.
func read(t *testing.T, tr *transcript.Transcript, events ...string) (messages []string) {
	t.Helper()
	for _, e := range events {
		m, err := tr.Read(json.RawMessage(e))
		if err != nil {
			t.Fatalf("%s: %v", e, err)
		}
		if m != nil {
			messages = append(messages, m.ID+" "+m.Role+" "+string(m.Raw))
		}
	}
	return messages
}

// Messages that are streamed at the same time keep apart.
func TestMessagesAtTheSameTime(t *testing.T) {
	t.Parallel()
	got := read(t, transcript.New(nil),
		`{"type":"TEXT_MESSAGE_START","messageId":"a"}`,
		`{"type":"TEXT_MESSAGE_START","messageId":"b","role":"developer"}`,
		`{"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":"one"}`,
		`{"type":"TEXT_MESSAGE_CONTENT","messageId":"b","delta":"two"}`,
		`{"type":"TEXT_MESSAGE_CONTENT","messageId":"stray","delta":"nobody's"}`,
		`{"type":"TEXT_MESSAGE_END","messageId":"b"}`,
		`{"type":"TEXT_MESSAGE_END","messageId":"a"}`,
		`{"type":"TEXT_MESSAGE_END","messageId":"a"}`,
		`{"type":"SOMETHING_NEW","messageId":"c"}`,
	)
	want := `b developer {"content":"two","id":"b","role":"developer"}` + "\n" + `a assistant {"content":"one","id":"a","role":"assistant"}`
	if strings.Join(got, "\n") != want {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
}

// The state is what a run began with, until it says otherwise.
func TestState(t *testing.T) {
	t.Parallel()
	tr := transcript.New(json.RawMessage(`{"n":1}`))
	read(t, tr, `{"type":"STATE_DELTA","delta":[{"op":"replace","path":"/n","value":2}]}`)
	if got := string(tr.State()); got != `{"n":2}` {
		t.Error(got)
	}
	read(t, tr, `{"type":"STATE_SNAPSHOT","snapshot":{"m":1}}`)
	if got := string(tr.State()); got != `{"m":1}` {
		t.Error(got)
	}
	if transcript.New(nil).State() != nil {
		t.Error("a state out of nothing")
	}
}

func TestEnding(t *testing.T) {
	t.Parallel()
	for event, want := range map[string]string{
		`{"type":"RUN_FINISHED"}`:                                                            "success",
		`{"type":"RUN_FINISHED","outcome":{"type":"success"}}`:                               "success",
		`{"type":"RUN_FINISHED","outcome":{"type":"interrupt","interrupts":[{"id":"c-1"}]}}`: "interrupt c-1",
		`{"type":"RUN_ERROR","message":"no"}`:                                                "error",
	} {
		tr := transcript.New(nil)
		if tr.Ending() != nil {
			t.Error("ended before it began")
		}
		read(t, tr, event)
		if got := strings.TrimSpace(tr.Ending().Outcome + " " + strings.Join(tr.Ending().Calls, " ")); got != want {
			t.Errorf("%s: %s, want %s", event, got, want)
		}
	}
}

func TestBroken(t *testing.T) {
	t.Parallel()
	for _, event := range []string{
		``, `[]`, `{"type":7}`, `{"type":"STATE_DELTA","delta":{}}`, `{"type":"STATE_DELTA","delta":[{"op":"remove","path":"/x"}]}`,
		`{"type":"TOOL_CALL_RESULT","messageId":"a"}`, `{"type":"RUN_FINISHED","outcome":{"type":"interrupt"}}`,
	} {
		if _, err := transcript.New(nil).Read(json.RawMessage(event)); err == nil {
			t.Errorf("%s was read", event)
		}
	}
}

// half is a little more than half of a message, so that four are more than may be held.
var half = strings.Repeat("x", transcript.MaxMessage/2+1)

// repeated gives events with the numbers up to n in them.
func repeated(n int, events ...string) []string {
	var all []string
	for i := range n {
		for _, e := range events {
			all = append(all, fmt.Sprintf(e, i))
		}
	}
	return all
}

func calls(n int, tool string) []string {
	return repeated(n, `{"type":"TOOL_CALL_START","toolCallId":"%[1]d","toolCallName":"`+tool+`"}`,
		`{"type":"TOOL_CALL_ARGS","toolCallId":"%[1]d","delta":"`+half+`"}`, `{"type":"TOOL_CALL_END","toolCallId":"%[1]d"}`)
}

// Any number of calls may follow each other: only what is open, or is the client's to
// answer, is held.
func TestHoldsNothingThatIsOver(t *testing.T) {
	t.Parallel()
	tr := transcript.New(nil, "pick")
	read(t, tr, calls(5, "shell")...)
	if left := tr.Unanswered(); len(left) != 0 {
		t.Errorf("%d calls of the agent's own are held", len(left))
	}
}

// An agent can't make its reader hold, or the log keep, what it likes.
func TestBounds(t *testing.T) {
	t.Parallel()
	piece := strings.Repeat("x", 200<<10)
	content := `{"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":"` + half + `"}`
	double := `{"type":"STATE_DELTA","delta":[{"op":"copy","from":"/a","path":"/b"},{"op":"copy","from":"/a","path":"/c"}]}`
	for name, events := range map[string][]string{
		"a long message": {`{"type":"TEXT_MESSAGE_START","messageId":"a"}`, content, content},
		"one that grows when it is written": {
			`{"type":"TEXT_MESSAGE_START","messageId":"a"}`,
			`{"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":"` + strings.Repeat(`\u0001`, transcript.MaxMessage/6) + `"}`, `{"type":"TEXT_MESSAGE_END","messageId":"a"}`,
		},
		"many that are open or left to the client": append(calls(3, "pick"), repeated(2, `{"type":"TEXT_MESSAGE_START","messageId":"%[1]d"}`,
			`{"type":"TEXT_MESSAGE_CONTENT","messageId":"%[1]d","delta":"`+half+`"}`)...),
		"a large state":        {`{"type":"STATE_SNAPSHOT","snapshot":{"a":"` + piece + piece + `"}}`},
		"a state that doubles": {`{"type":"STATE_SNAPSHOT","snapshot":{"a":"` + piece + `"}}`, double},
	} {
		tr := transcript.New(nil, "pick")
		var err error
		for _, e := range events {
			if _, err = tr.Read(json.RawMessage(e)); err != nil {
				break
			}
		}
		if err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

// What an agent says of a long command in messages of 128 KiB of JSON, as the
// shell agent does, is all taken, whatever it is made of.
func TestLongOutputInSeveralMessages(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		char  string
		piece int
	}{"plain": {"x", 128 << 10}, "control bytes": {`\u0001`, 128 << 10 / 6}, "HTML": {"<", 128 << 10 / 6}} {
		tr := transcript.New(nil)
		content := strings.Repeat(tc.char, tc.piece)
		said := 0
		for i := 0; said < 700000; i++ {
			id := fmt.Sprintf("a-%d", i)
			got := read(t, tr, `{"type":"TEXT_MESSAGE_START","messageId":"`+id+`"}`,
				`{"type":"TEXT_MESSAGE_CONTENT","messageId":"`+id+`","delta":"`+content+`"}`, `{"type":"TEXT_MESSAGE_END","messageId":"`+id+`"}`)
			if len(got) != 1 {
				t.Fatalf("%s: %d messages", name, len(got))
			}
			said += tc.piece
		}
	}
}

// What an agent says never breaks the reader, and what it completes can be stored.
func FuzzRead(f *testing.F) {
	f.Add(`{"type":"TEXT_MESSAGE_START","messageId":"a"}`, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":"x"}`, `{"type":"TEXT_MESSAGE_END","messageId":"a"}`)
	f.Add(`{"type":"STATE_SNAPSHOT","snapshot":{"a":[]}}`, `{"type":"STATE_DELTA","delta":[{"op":"add","path":"/a/-","value":1}]}`, `{"type":"RUN_FINISHED"}`)
	f.Add(`{"type":"STATE_SNAPSHOT","snapshot":null}`, `{"type":"STATE_DELTA","delta":[{"op":"copy","from":"","path":"/x"}]}`, `{"type":"RUN_FINISHED","outcome":{"type":"interrupt","interrupts":[null]}}`)
	f.Add(`{"type":"TOOL_CALL_START","toolCallId":"t"}`, `{"type":"TOOL_CALL_ARGS","toolCallId":"t","delta":"{"}`, `{"type":"TOOL_CALL_END","toolCallId":"t"}`)
	f.Fuzz(func(t *testing.T, a, b, c string) {
		tr := transcript.New(json.RawMessage(`{}`))
		for _, e := range []string{a, b, c} {
			m, err := tr.Read(json.RawMessage(e))
			if err != nil {
				return // a broken protocol ends the run
			}
			if m != nil && !json.Valid(m.Raw) {
				t.Fatalf("%q", m.Raw)
			}
			if s := tr.State(); len(s) > 0 && !json.Valid(s) {
				t.Fatalf("state %q", s)
			}
		}
	})
}

// A run may leave many calls to its client, but not any number: each is put to the
// policy. One with a result counts no more.
func TestUnansweredIsBounded(t *testing.T) {
	t.Parallel()
	tr := transcript.New(nil, "pick")
	say := func(format string, args ...any) error {
		_, err := tr.Read(json.RawMessage(fmt.Sprintf(format, args...)))
		return err
	}
	call := func(i int) error {
		return errors.Join(
			say(`{"type":"TOOL_CALL_START","toolCallId":"c%d","toolCallName":"pick"}`, i), say(`{"type":"TOOL_CALL_END","toolCallId":"c%d"}`, i))
	}
	for i := range transcript.MaxUnanswered {
		if err := call(i); err != nil {
			t.Fatal(err)
		}
	}
	if err := say(`{"type":"TOOL_CALL_RESULT","toolCallId":"c7","messageId":"m","content":"x"}`); err != nil {
		t.Fatal(err)
	}
	if err := call(transcript.MaxUnanswered); err != nil {
		t.Errorf("in the place of one with its result: %v", err)
	}
	if err := call(transcript.MaxUnanswered + 1); err == nil || !strings.Contains(err.Error(), "1000 tool calls") {
		t.Errorf("one too many: %v", err)
	}
}
