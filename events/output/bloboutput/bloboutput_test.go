package bloboutput_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/blob"
	"github.com/holdfast-io/holdfast/events/blob/memblob"
	"github.com/holdfast-io/holdfast/events/output"
	"github.com/holdfast-io/holdfast/events/output/bloboutput"
	"github.com/holdfast-io/holdfast/events/output/memoutput"
	"github.com/holdfast-io/holdfast/events/output/outputtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A stream with blobs is an output stream.
func TestSuite(t *testing.T) {
	var inner *memoutput.Stream
	outputtest.Run(t, outputtest.Harness{
		Open: func(*testing.T) output.Stream {
			inner = memoutput.New()
			return bloboutput.New(inner, &memblob.Store{})
		},
		Expire:   func(_ *testing.T, before uint64) { inner.Expire(before) },
		MaxEvent: blob.MaxBytes,
	})
}

const owner = blob.Owner("t1.s-a")

func said(n int) json.RawMessage {
	return json.RawMessage(`{"type":"TEXT_MESSAGE_CONTENT","delta":"` + strings.Repeat("x", n-42) + `"}`)
}

func batch(events ...json.RawMessage) output.Batch {
	return output.Batch{Run: "r-1", FirstK: 1, LastK: uint64(len(events)), Time: time.Unix(1, 0).UTC(), Events: events}
}

// tailed is the first message of a stream.
func tailed(t *testing.T, s output.Stream) output.Batch {
	t.Helper()
	var got output.Batch
	end := errors.New("end")
	if err := s.Tail(t.Context(), 1, func(m output.Message) error { got = m.Batch; return end }); !errors.Is(err, end) {
		t.Fatal(err)
	}
	return got
}

// Events of every size come back whole and in their places, and no message of the
// stream itself is large.
func TestEverySizeComesBackWhole(t *testing.T) {
	t.Parallel()
	for name, sizes := range map[string][]int{
		"one byte under": {blob.Over - 1}, "the limit": {blob.Over}, "one byte over": {blob.Over + 1},
		"large between small": {100, 10 << 20, 50, blob.Over + 1, 60},
	} {
		inner, blobs := memoutput.New(), &memblob.Store{}
		want := make([]json.RawMessage, len(sizes))
		for i, n := range sizes {
			want[i] = said(n)
		}
		if _, err := bloboutput.New(inner, blobs).Publish(t.Context(), "t1", "s-a", batch(want...)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		s := bloboutput.New(inner, blobs)
		last, _, ok, err := s.Last(t.Context(), "t1", "s-a")
		if err != nil || !ok {
			t.Fatalf("%s: %t, %v", name, ok, err)
		}
		for _, got := range []output.Batch{last, tailed(t, s)} {
			for i, e := range got.Events {
				if !bytes.Equal(e, want[i]) {
					t.Errorf("%s: event %d came back with %d bytes, want %d", name, i, len(e), len(want[i]))
				}
			}
			if len(got.Events) != len(want) || got.Large != nil {
				t.Errorf("%s: %d events, %v large", name, len(got.Events), got.Large)
			}
		}
		if raw, err := tailed(t, inner).Encode(); err != nil || len(raw) > output.MaxBatchBytes {
			t.Errorf("%s: %d bytes in the stream, %v", name, len(raw), err)
		}
	}
}

// An event that is gone, damaged or another session's leaves a word in its place, and
// the others of its batch.
func TestLost(t *testing.T) {
	t.Parallel()
	small, large := said(100), said(1<<20)
	for name, lose := range map[string]func(s *memblob.Store, ref events.Blob){
		"gone":    func(s *memblob.Store, ref events.Blob) { s.Plant(owner, ref, nil) },
		"damaged": func(s *memblob.Store, ref events.Blob) { s.Plant(owner, ref, []byte("{}")) },
		"another session's": func(s *memblob.Store, ref events.Blob) {
			s.Plant(owner, ref, nil)
			s.Plant("t1.s-b", ref, large)
		},
	} {
		inner, blobs := memoutput.New(), &memblob.Store{}
		s := bloboutput.New(inner, blobs)
		if _, err := s.Publish(t.Context(), "t1", "s-a", batch(small, large, small)); err != nil {
			t.Fatal(err)
		}
		lose(blobs, blob.RefOf(large))
		got := tailed(t, s)
		var lost struct{ Type, Name string }
		if err := json.Unmarshal(got.Events[1], &lost); err != nil || lost.Type != "CUSTOM" || lost.Name != "holdfast.lost" {
			t.Errorf("%s: %.100s, %v", name, got.Events[1], err)
		}
		if !bytes.Equal(got.Events[0], small) || !bytes.Equal(got.Events[2], small) {
			t.Errorf("%s: the events beside it changed", name)
		}
	}
}

// Nothing is published without its blobs, and a tail waits for them.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	inner, blobs := memoutput.New(), &memblob.Store{}
	s, down := bloboutput.New(inner, blobs), errors.New("down")
	blobs.Fail(down)
	if _, err := s.Publish(t.Context(), "t1", "s-a", batch(said(1<<20))); !errors.Is(err, down) {
		t.Fatalf("published without its blob: %v", err)
	}
	if first, last, _ := inner.Info(t.Context()); last >= first {
		t.Fatal("something was published")
	}
	blobs.Fail(nil)
	if _, err := s.Publish(t.Context(), "t1", "s-a", batch(said(1<<20))); err != nil {
		t.Fatal(err)
	}
	blobs.Fail(down)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Tail(ctx, 1, func(output.Message) error { t.Error("given without its blob"); return nil }); !errors.Is(err, down) {
		t.Errorf("tail: %v", err)
	}
	blobs.Fail(nil)
	if got := tailed(t, s); len(got.Events[0]) != 1<<20 {
		t.Errorf("%d bytes", len(got.Events[0]))
	}
	forged := batch(said(100))
	forged.Large = []output.Large{{At: 0, Blob: blob.RefOf([]byte("x"))}}
	if _, err := s.Publish(t.Context(), "t1", "s-a", forged); !errors.Is(err, output.ErrBatch) {
		t.Errorf("a reference of the publisher's own: %v", err)
	}
}
