package spool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// read follows a spool to its end.
func read(t *testing.T, s *Spool, from uint64) string {
	t.Helper()
	var got bytes.Buffer
	must(t, s.Follow(t.Context(), from, time.Hour, func(p []byte) error { got.Write(p); return nil }))
	return got.String()
}

func TestEventsStayAsTheyAre(t *testing.T) {
	s, err := Create(filepath.Join(t.TempDir(), "r"))
	must(t, err)
	_, err = s.Append([]byte(`{ "a":1.50e3,  "b":"<\u00e4>" }`), []byte("{\n \"c\": \"x\\ny\"\n}"))
	must(t, err)
	k, err := s.Finish("success", "", []byte(`{}`))
	must(t, err)
	want := `{"k":1,"event":{ "a":1.50e3,  "b":"<\u00e4>" }}
{"k":2,"event":{"c":"x\ny"}}
{"k":3,"event":{}}
{"end":true,"outcome":"success"}
`
	if got := read(t, s, 1); got != want || k != 3 {
		t.Errorf("k %d, got\n%s", k, got)
	}
	if _, err := s.Append([]byte(`{}`)); !errors.Is(err, ErrEnded) {
		t.Errorf("append after the end: %v", err)
	}
}

// TestReadersSeeTheSame: readers that start at any k, before or after it is
// written, see exactly the lines from there.
func TestReadersSeeTheSame(t *testing.T) {
	const events = 200
	s, err := Create(filepath.Join(t.TempDir(), "r"))
	must(t, err)
	var lines []string
	for k := 1; k <= events; k++ {
		lines = append(lines, fmt.Sprintf("{\"k\":%d,\"event\":{\"i\":%d}}\n", k, k))
	}
	lines = append(lines, "{\"end\":true,\"outcome\":\"error\",\"reason\":\"why\"}\n")
	var wg sync.WaitGroup
	for from := uint64(0); from <= events+3; from++ {
		wg.Go(func() {
			var got bytes.Buffer
			err := s.Follow(context.Background(), from, time.Hour, func(p []byte) error { got.Write(p); return nil })
			var want bytes.Buffer
			for _, l := range lines[min(max(from, 1)-1, events):] {
				want.WriteString(l)
			}
			if err != nil || got.String() != want.String() {
				t.Errorf("from %d: %v, got %d bytes, want %d", from, err, got.Len(), want.Len())
			}
		})
	}
	for k := 1; k <= events; k++ {
		got, err := s.Append(fmt.Appendf(nil, `{"i":%d}`, k))
		if err != nil || got != uint64(k) {
			t.Fatalf("append %d: %d, %v", k, got, err)
		}
	}
	_, err = s.Finish("error", "why")
	must(t, err)
	wg.Wait()
}

func TestOpenTakesUpWhatWasLeft(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r")
	s, err := Create(path)
	must(t, err)
	_, err = s.Append([]byte(`{"i":1}`), []byte(`{"i":2}`))
	must(t, err)
	must(t, s.Close())
	whole, err := os.ReadFile(path)
	must(t, err)
	first := bytes.IndexByte(whole, '\n') + 1

	for cut := 0; cut <= len(whole); cut++ {
		must(t, os.WriteFile(path, whole[:cut], 0o600))
		s, err := Open(path)
		must(t, err)
		kept := 0
		switch {
		case cut == len(whole):
			kept = 2
		case cut >= first:
			kept = 1
		}
		k, err := s.Finish("error", "", []byte(`{"last":true}`))
		must(t, err)
		if s, err = Open(path); err != nil || k != uint64(kept+1) || !s.Ended() {
			t.Fatalf("cut at %d: last k %d, want %d; %v", cut, k, kept+1, err)
		}
		want := fmt.Sprintf("{\"k\":%d,\"event\":{\"last\":true}}\n{\"end\":true,\"outcome\":\"error\"}\n", kept+1)
		if got := read(t, s, k); got != want {
			t.Fatalf("cut at %d: got %q", cut, got)
		}
	}
	if _, err := Create(path); !errors.Is(err, os.ErrExist) {
		t.Errorf("create over a spool: %v", err)
	}
}

func TestFollowEndsWithItsReader(t *testing.T) {
	s, err := Create(filepath.Join(t.TempDir(), "r"))
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	beats := 0
	err = s.Follow(ctx, 1, time.Millisecond, func(p []byte) error {
		if string(p) != "\n" {
			t.Errorf("a quiet spool wrote %q", p)
		}
		if beats++; beats == 3 {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("after a cancel: %v", err)
	}
	full := errors.New("the reader is gone")
	if err := s.Follow(t.Context(), 1, time.Millisecond, func([]byte) error { return full }); !errors.Is(err, full) {
		t.Errorf("after a failed write: %v", err)
	}
	must(t, s.Close())
	if err := s.Follow(t.Context(), 1, time.Hour, func([]byte) error { return nil }); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
