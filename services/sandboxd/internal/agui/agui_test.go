package agui

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

const (
	started  = `{"type":"RUN_STARTED","threadId":"t","runId":"r"}`
	finished = `{"type":"RUN_FINISHED","threadId":"t","runId":"r"}`
)

func TestOrder(t *testing.T) {
	text := func(what string) string { return `{"type":"TEXT_MESSAGE_` + what + `","messageId":"m","delta":"x"}` }
	tool := func(what string) string { return `{"type":"TOOL_CALL_` + what + `","toolCallId":"c","delta":"x"}` }
	interrupt := `{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":{"type":"interrupt","interrupts":[%]}}`
	for _, tc := range []struct {
		name    string
		events  []string
		broken  int    // the index of the event that is refused, or -1
		outcome string // of the last event
	}{
		{"success", []string{started, finished}, -1, OutcomeSuccess},
		{"explicit success", []string{started, strings.Replace(finished, `"r"}`, `"r","outcome":{"type":"success"}}`, 1)}, -1, OutcomeSuccess},
		{"cancelled", []string{started, strings.Replace(finished, `"r"}`, `"r","outcome":{"type":"cancelled"}}`, 1)}, -1, OutcomeCancelled},
		{"interrupt", []string{started, strings.Replace(interrupt, "%", `{"id":"i","reason":"tool_call"}`, 1)}, -1, OutcomeInterrupt},
		{"error first", []string{`{"type":"RUN_ERROR","message":"no"}`}, -1, OutcomeError},
		{"error with things open", []string{started, text("START"), `{"type":"RUN_ERROR","message":"no"}`}, -1, OutcomeError},
		{"message", []string{started, text("START"), text("CONTENT"), text("END"), finished}, -1, OutcomeSuccess},
		{"nested", []string{started, text("START"), tool("START"), tool("ARGS"), text("END"), tool("END"), finished}, -1, OutcomeSuccess},
		{"a step may come again", []string{started, `{"type":"STEP_STARTED","stepName":"s"}`, `{"type":"STEP_FINISHED","stepName":"s"}`, `{"type":"STEP_STARTED","stepName":"s"}`, `{"type":"STEP_FINISHED","stepName":"s"}`, finished}, -1, OutcomeSuccess},
		{"unknown types pass", []string{started, `{"type":"TEXT_MESSAGE_CHUNK"}`, `{"type":"FROM_THE_FUTURE"}`, `{"type":"STATE_DELTA","delta":[]}`, finished}, -1, OutcomeSuccess},

		{"nothing before the start", []string{text("START")}, 0, ""},
		{"finished before the start", []string{finished}, 0, ""},
		{"started twice", []string{started, started}, 1, ""},
		{"another run", []string{`{"type":"RUN_STARTED","threadId":"t","runId":"other"}`}, 0, ""},
		{"another thread", []string{`{"type":"RUN_STARTED","threadId":"other","runId":"r"}`}, 0, ""},
		{"the end of another run", []string{started, strings.Replace(finished, `"r"`, `"other"`, 1)}, 1, ""},
		{"after the end", []string{started, finished, text("START")}, 2, ""},
		{"a second end", []string{started, finished, finished}, 2, ""},
		{"after an error", []string{`{"type":"RUN_ERROR","message":"no"}`, started}, 1, ""},
		{"message left open", []string{started, text("START"), finished}, 2, ""},
		{"call left open", []string{started, tool("START"), finished}, 2, ""},
		{"step left open", []string{started, `{"type":"STEP_STARTED","stepName":"s"}`, finished}, 2, ""},
		{"reasoning left open", []string{started, `{"type":"REASONING_START","messageId":"m"}`, finished}, 2, ""},
		{"content without a start", []string{started, text("CONTENT")}, 1, ""},
		{"end without a start", []string{started, tool("END")}, 1, ""},
		{"content after the end", []string{started, text("START"), text("END"), text("CONTENT")}, 3, ""},
		{"the same message opened twice", []string{started, text("START"), text("START")}, 2, ""},
		{"the same message opened again", []string{started, text("START"), text("END"), text("START")}, 3, ""},
		{"content without a delta", []string{started, text("START"), `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m"}`}, 2, ""},
		{"a message without an id", []string{started, `{"type":"TEXT_MESSAGE_START"}`}, 1, ""},
		{"an id that is a number", []string{started, `{"type":"TEXT_MESSAGE_START","messageId":7}`}, 1, ""},
		{"no type", []string{`{"runId":"r"}`}, 0, ""},
		{"not an object", []string{`[]`}, 0, ""},
		{"not JSON", []string{`hello`}, 0, ""},
		{"not UTF-8", []string{"{\"type\":\"RUN_ERROR\",\"message\":\"\xff\"}"}, 0, ""},
		{"unknown outcome", []string{started, strings.Replace(finished, `"r"}`, `"r","outcome":{"type":"fine"}}`, 1)}, 1, ""},
		{"an interrupt that asks nothing", []string{started, strings.Replace(interrupt, "%", "", 1)}, 1, ""},
		{"a question without an id", []string{started, strings.Replace(interrupt, "%", `{"reason":"tool_call"}`, 1)}, 1, ""},
		{"a question asked twice", []string{started, strings.Replace(interrupt, "%", `{"id":"i","reason":"x"},{"id":"i","reason":"x"}`, 1)}, 1, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := NewOrder("t", "r")
			var last *Ending
			for i, e := range tc.events {
				ending, err := o.Accept([]byte(e))
				if (err != nil) != (i == tc.broken) {
					t.Fatalf("event %d %s: %v", i, e, err)
				}
				if err != nil && !errors.Is(err, ErrOrder) {
					t.Fatalf("event %d: %v is no ErrOrder", i, err)
				}
				last = ending
			}
			if tc.broken < 0 && (last == nil || last.Outcome != tc.outcome) {
				t.Fatalf("ended with %+v, want %s", last, tc.outcome)
			}
		})
	}
}

// TestAbandonedRunsAreWellFormed: whatever an agent said before it broke off,
// what Holdfast adds makes a whole run of it.
func TestAbandonedRunsAreWellFormed(t *testing.T) {
	kinds := make([]string, 0, len(steps))
	for k := range steps {
		kinds = append(kinds, k)
	}
	slices.Sort(kinds)
	rapid.Check(t, func(t *rapid.T) {
		o, again := NewOrder("t", "r"), NewOrder("t", "r")
		said := [][]byte{[]byte(started)}
		for range rapid.IntRange(0, 30).Draw(t, "events") {
			id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "id")
			said = append(said, Encode(map[string]string{
				"type": rapid.SampledFrom(kinds).Draw(t, "type"), "messageId": id, "toolCallId": id, "stepName": id, "delta": "x",
			}))
		}
		var accepted [][]byte
		for _, e := range said {
			if _, err := o.Accept(e); err == nil {
				accepted = append(accepted, e)
			}
		}
		accepted = append(accepted, o.Abandon()...)
		accepted = append(accepted, RunFinished("t", "r", Outcome{Type: OutcomeCancelled}))
		for i, e := range accepted {
			ending, err := again.Accept(e)
			if err != nil || (ending != nil) != (i == len(accepted)-1) {
				t.Fatalf("event %d %s: %v, %v", i, e, ending, err)
			}
		}
	})
}

func TestReader(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     []string
		end      error
	}{
		{"one", "data: a\n\n", []string{"a"}, io.EOF},
		{"without the space", "data:a\n\n", []string{"a"}, io.EOF},
		{"only one space goes", "data:  a\n\n", []string{" a"}, io.EOF},
		{"several lines", "data: {\ndata: }\n\n", []string{"{\n}"}, io.EOF},
		{"an empty line of data", "data\ndata:\n\n", []string{"\n"}, io.EOF},
		{"CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", []string{"a", "b"}, io.EOF},
		{"comments and other fields", ": hi\nid: 1\nevent: x\nretry: 5\ndata: a\n\n", []string{"a"}, io.EOF},
		{"a name that only begins like it", "database: x\ndata: a\n\n", []string{"a"}, io.EOF},
		{"an event without data", "id: 1\n\ndata: a\n\n", []string{"a"}, io.EOF},
		{"cut in an event", "data: a\n\ndata: b\n", []string{"a"}, io.EOF},
		{"cut in a line", "data: a\n\ndata: b", []string{"a"}, io.EOF},
		{"a line too long", "data: " + strings.Repeat("x", 101) + "\n\n", nil, ErrTooLarge},
		{"lines too long together", "data: " + strings.Repeat("x", 60) + "\ndata: " + strings.Repeat("x", 60) + "\n\n", nil, ErrTooLarge},
		{"as long as may be", "data: " + strings.Repeat("x", 100) + "\n\n", []string{strings.Repeat("x", 100)}, io.EOF},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for name, r := range map[string]io.Reader{
				"whole": strings.NewReader(tc.in), "by bytes": iotest.OneByteReader(strings.NewReader(tc.in)),
			} {
				got, err := readAll(NewReader(r, 100))
				if !slices.Equal(got, tc.want) || !errors.Is(err, tc.end) {
					t.Errorf("%s: got %q, %v; want %q, %v", name, got, err, tc.want, tc.end)
				}
			}
		})
	}
}

func TestReaderBoundsEndlessLines(t *testing.T) {
	const limit = 256 << 10
	endless := io.MultiReader(strings.NewReader("data: "), endlessReader{})
	if _, err := NewReader(endless, limit).Next(); !errors.Is(err, ErrTooLarge) {
		t.Errorf("an endless line: %v", err)
	}
	exact := strings.Repeat("y", limit)
	got, err := NewReader(strings.NewReader("data: "+exact+"\n\n"), limit).Next()
	if err != nil || string(got) != exact {
		t.Errorf("an event of %d bytes: got %d, %v", limit, len(got), err)
	}
}

type endlessReader struct{}

func (endlessReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func readAll(r *Reader) ([]string, error) {
	var list []string
	for {
		data, err := r.Next()
		if err != nil {
			return list, err
		}
		list = append(list, string(data))
	}
}

func FuzzSSE(f *testing.F) {
	f.Add([]byte("data: a\n\n"), 100)
	f.Add([]byte(": c\r\ndata:{\r\ndata: }\r\n\r\ndata: cut"), 10)
	f.Add([]byte("data: "+started+"\n\ndata: "+finished+"\n\n"), 1000)
	f.Fuzz(func(t *testing.T, in []byte, limit int) {
		limit &= 0xffff
		whole, errWhole := readAll(NewReader(bytes.NewReader(in), limit))
		split, errSplit := readAll(NewReader(iotest.OneByteReader(bytes.NewReader(in)), limit))
		if !slices.Equal(whole, split) || errors.Is(errWhole, io.EOF) != errors.Is(errSplit, io.EOF) {
			t.Fatalf("reading depends on how bytes come: %q %v, %q %v", whole, errWhole, split, errSplit)
		}
		order := NewOrder("t", "r")
		for _, data := range whole {
			if len(data) > limit {
				t.Fatalf("an event of %d bytes passed a limit of %d", len(data), limit)
			}
			if _, err := order.Accept([]byte(data)); err == nil && !json.Valid([]byte(data)) {
				t.Fatalf("accepted what isn't JSON: %q", data)
			}
		}
	})
}

func TestMessageText(t *testing.T) {
	for _, tc := range []struct{ content, want string }{
		{`"plain"`, "plain"},
		{`[{"type":"text","text":"a"},{"type":"image","url":"x"},{"type":"text","text":"b"}]`, "ab"},
		{``, ""},
	} {
		got, err := Message{Content: json.RawMessage(tc.content)}.Text()
		if err != nil || got != tc.want {
			t.Errorf("%s: %q, %v", tc.content, got, err)
		}
	}
	if _, err := (Message{Content: json.RawMessage(`7`)}).Text(); err == nil {
		t.Error("a number passed as content")
	}
}
