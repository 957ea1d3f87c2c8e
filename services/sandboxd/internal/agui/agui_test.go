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
)

const (
	started  = `{"type":"RUN_STARTED","threadId":"t","runId":"r"}`
	finished = `{"type":"RUN_FINISHED","threadId":"t","runId":"r"}`
)

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

func TestLineReader(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     []string
		end      error
	}{
		{"lines", "a\nb\n", []string{"a", "b"}, io.EOF},
		{"the last without its break", "a\nb", []string{"a", "b"}, io.EOF},
		{"blank ones", "\n \na\n\t\n", []string{"a"}, io.EOF},
		{"CRLF and spaces around", "  a \r\n", []string{"a"}, io.EOF},
		{"nothing", "", nil, io.EOF},
		{"as long as may be", strings.Repeat("x", 100) + "\n", []string{strings.Repeat("x", 100)}, io.EOF},
		{"too long", "a\n" + strings.Repeat("x", 103) + "\n", []string{"a"}, ErrTooLarge},
		{"too long without an end", strings.Repeat("x", 70000), nil, ErrTooLarge},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for name, r := range map[string]io.Reader{
				"whole": strings.NewReader(tc.in), "by bytes": iotest.OneByteReader(strings.NewReader(tc.in)),
			} {
				got, err := readAll(NewLineReader(r, 100))
				if !slices.Equal(got, tc.want) || !errors.Is(err, tc.end) {
					t.Errorf("%s: got %q, %v; want %q, %v", name, got, err, tc.want, tc.end)
				}
			}
		})
	}
	if _, err := NewLineReader(endlessReader{}, 256<<10).Next(); !errors.Is(err, ErrTooLarge) {
		t.Errorf("an endless line: %v", err)
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

func readAll(r interface{ Next() ([]byte, error) }) ([]string, error) {
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
		for _, data := range whole {
			if len(data) > limit {
				t.Fatalf("an event of %d bytes passed a limit of %d", len(data), limit)
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
