package api_test

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/holdfast-io/holdfast/api"
)

// readSSE reads to the end and gives what came and the error, nil for io.EOF.
func readSSE(r io.Reader, limit int) ([]api.SSEEvent, error) {
	reader := api.NewSSEReader(r, limit)
	var events []api.SSEEvent
	for {
		event, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return events, err
		}
		events = append(events, event)
	}
}

func TestSSEReader(t *testing.T) {
	message := func(id, event, data string) api.SSEEvent {
		return api.SSEEvent{ID: id, Event: event, Data: []byte(data)}
	}
	for _, test := range []struct {
		name, stream string
		want         []api.SSEEvent
		err          error
	}{
		{"nothing", "", nil, nil},
		{"event", "id: 1\nevent: prompt\ndata: {}\n\n", []api.SSEEvent{message("1", "prompt", "{}")}, nil},
		{"no space", "data:x\n\n", []api.SSEEvent{message("", "", "x")}, nil},
		{"one space only", "data:  x\n\n", []api.SSEEvent{message("", "", " x")}, nil},
		{"lines", "data: a\ndata: b\ndata\n\n", []api.SSEEvent{message("", "", "a\nb\n")}, nil},
		{"empty data", "data\n\n", []api.SSEEvent{message("", "", "")}, nil},
		{"CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", []api.SSEEvent{message("", "", "a"), message("", "", "b")}, nil},
		{"CR", "data: a\r\rdata: b\r\r", []api.SSEEvent{message("", "", "a"), message("", "", "b")}, nil},
		{"BOM", "\ufeffdata: a\n\n", []api.SSEEvent{message("", "", "a")}, nil},
		{"comment", ": beat\n\ndata: a\n\n:\n\n", []api.SSEEvent{{Comment: "beat", IsComment: true}, message("", "", "a"), {IsComment: true}}, nil},
		{"comment inside", "data: a\n: x\ndata: b\n\n", []api.SSEEvent{message("", "", "a\nb")}, nil},
		{"id without data", "id: 7\n\ndata: a\n\n", []api.SSEEvent{message("", "", "a")}, nil},
		{"NUL in id", "id: a\x00b\ndata: a\n\n", []api.SSEEvent{message("", "", "a")}, nil},
		{"unknown fields", "retry: 5\nfoo: bar\ndata: a\n\n", []api.SSEEvent{message("", "", "a")}, nil},
		{"cut in a line", "data: a\n\ndata: b", []api.SSEEvent{message("", "", "a")}, io.ErrUnexpectedEOF},
		{"cut before the empty line", "data: a\n\ndata: b\n", []api.SSEEvent{message("", "", "a")}, io.ErrUnexpectedEOF},
		{"too long", "data: " + strings.Repeat("x", 200) + "\n\n", nil, api.ErrSSETooLong},
		{"too long together", strings.Repeat("data: xxxxxxxxxx\n", 20) + "\n", nil, api.ErrSSETooLong},
	} {
		t.Run(test.name, func(t *testing.T) {
			// A byte at a time as well: the network cuts anywhere.
			for _, source := range []io.Reader{strings.NewReader(test.stream), iotest.OneByteReader(strings.NewReader(test.stream))} {
				got, err := readSSE(source, 128)
				if !errors.Is(err, test.err) || !reflect.DeepEqual(got, test.want) {
					t.Errorf("got %+v, %v", got, err)
				}
			}
		})
	}
}

// TestSSEReaderDoesNotWait: an event must come out at its end, not when the
// next one begins.
func TestSSEReaderDoesNotWait(t *testing.T) {
	for _, stream := range []string{"id: 3\ndata: a\n\n", "id: 3\rdata: a\r\r"} {
		out, in := io.Pipe()
		go func() {
			_, _ = io.WriteString(in, stream) // returns when the reader has taken all; the pipe stays open
		}()
		reader := api.NewSSEReader(out, 0)
		event, err := reader.Next()
		if err != nil || string(event.Data) != "a" || reader.LastID() != "3" {
			t.Errorf("got %+v, %v, last id %q", event, err, reader.LastID())
		}
		if err := in.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAppendSSEForgesNothing(t *testing.T) {
	wire := api.AppendSSE(nil, "1\ndata: forged", "x\r\nid: 9", []byte("a\r\nid: 8\nb"))
	got, err := readSSE(bytes.NewReader(wire), 0)
	want := []api.SSEEvent{{ID: "1data: forged", Event: "xid: 9", Data: []byte("a\nid: 8\nb")}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	got, err = readSSE(bytes.NewReader(api.AppendSSEComment(nil, "a\ndata: x")), 0)
	if err != nil || len(got) != 1 || !got[0].IsComment {
		t.Errorf("got %+v, %v", got, err)
	}
}

// FuzzSSEReader: any bytes end in events and an end, however they are cut, and
// what was read reads the same when it is written again.
func FuzzSSEReader(f *testing.F) {
	f.Add([]byte("id: 1\nevent: prompt\ndata: {}\n\n: beat\n\n"))
	f.Add([]byte("\ufeffdata: a\r\n\r\ndata: b\r\rdata"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		got, err := readSSE(bytes.NewReader(stream), 1<<16)
		slow, slowErr := readSSE(iotest.OneByteReader(bytes.NewReader(stream)), 1<<16)
		if !reflect.DeepEqual(got, slow) || (err == nil) != (slowErr == nil) {
			t.Fatalf("cuts matter: %+v, %v\n%+v, %v", got, err, slow, slowErr)
		}
		for _, event := range got {
			if event.IsComment || strings.ContainsRune(event.Event, 0) {
				continue
			}
			again, err := readSSE(bytes.NewReader(api.AppendSSE(nil, event.ID, event.Event, event.Data)), 1<<17)
			if err != nil || len(again) != 1 {
				t.Fatalf("%+v became %+v, %v", event, again, err)
			}
			if !bytes.Equal(again[0].Data, event.Data) {
				t.Fatalf("%q became %q", event.Data, again[0].Data)
			}
		}
	})
}
