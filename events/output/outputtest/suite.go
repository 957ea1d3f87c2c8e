// Package outputtest holds every implementation of output.Stream to one behaviour.
package outputtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/output"
)

// Harness opens streams for the suite.
type Harness struct {
	// Open gives a fresh, empty stream.
	Open func(t *testing.T) output.Stream
	// MaxEvent is how large an event may be; 0 where it has to fit into its batch.
	MaxEvent int
	// Expire drops the messages of the stream opened last before a sequence, as age
	// does.
	Expire func(t *testing.T, before uint64)
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for _, c := range []struct {
		name string
		run  func(*testing.T, Harness)
	}{
		{"what is published reads back", testPublish},
		{"what is no batch is refused", testRefused},
		{"the largest batch is stored", testLargest},
		{"tail gives everything in order, and goes on live", testTail},
		{"what has aged out is gone without silence", testExpired},
		{"tail refuses to start beyond the end", testTruncated},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, h) })
	}
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func batch(run string, first, last uint64) output.Batch {
	b := output.Batch{Run: run, FirstK: first, LastK: last, After: 3, Time: time.Date(2026, 5, 4, 3, 2, 1, 987654321, time.UTC)}
	for k := first; k <= last; k++ {
		b.Events = append(b.Events, json.RawMessage(fmt.Sprintf(`{"type":"TEXT_MESSAGE_CONTENT","delta":"<%d> & é"}`, k)))
	}
	return b
}

func publish(t *testing.T, s output.Stream, session string, b output.Batch) uint64 {
	t.Helper()
	seq, err := s.Publish(bounded(t), "t1", session, b)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

func testPublish(t *testing.T, h Harness) {
	s := h.Open(t)
	ctx := bounded(t)
	if _, _, ok, err := s.Last(ctx, "t1", "s-a"); ok || err != nil {
		t.Fatalf("last of nothing: %t, %v", ok, err)
	}
	if first, last, err := s.Info(ctx); err != nil || first != 1 || last != 0 {
		t.Fatalf("info of an empty stream: %d to %d, %v", first, last, err)
	}
	publish(t, s, "s-a", batch("r-1", 1, 3))
	second := publish(t, s, "s-a", batch("r-1", 4, 4))
	other := publish(t, s, "s-b", batch("r-2", 1, 1))
	// The same batch again, as after a lost reply, is stored again.
	again := publish(t, s, "s-b", batch("r-2", 1, 1))
	for session, want := range map[string]struct {
		seq uint64
		b   output.Batch
	}{"s-a": {second, batch("r-1", 4, 4)}, "s-b": {again, batch("r-2", 1, 1)}} {
		b, seq, ok, err := s.Last(ctx, "t1", session)
		if err != nil || !ok || seq != want.seq || !reflect.DeepEqual(b, want.b) {
			t.Errorf("last of %s: %+v at %d, %t, %v", session, b, seq, ok, err)
		}
	}
	if _, _, ok, err := s.Last(ctx, "t2", "s-a"); ok || err != nil {
		t.Errorf("another tenant's session of that name: %t, %v", ok, err)
	}
	if first, last, err := s.Info(ctx); err != nil || first != 1 || last != again || other != again-1 {
		t.Errorf("info: %d to %d, %v; want 1 to %d", first, last, err, again)
	}
}

func testRefused(t *testing.T, h Harness) {
	s := h.Open(t)
	ctx := bounded(t)
	for name, c := range map[string]struct {
		tenant, session string
		spoil           func(*output.Batch)
		want            error
	}{
		"no run":       {"t1", "s-a", func(b *output.Batch) { b.Run = "" }, output.ErrBatch},
		"no events":    {"t1", "s-a", func(b *output.Batch) { b.Events = nil }, output.ErrBatch},
		"k of 0":       {"t1", "s-a", func(b *output.Batch) { b.FirstK, b.LastK = 0, 1 }, output.ErrBatch},
		"k miscounted": {"t1", "s-a", func(b *output.Batch) { b.LastK++ }, output.ErrBatch},
		"k backwards":  {"t1", "s-a", func(b *output.Batch) { b.FirstK, b.LastK = 2, 1 }, output.ErrBatch},
		"no time":      {"t1", "s-a", func(b *output.Batch) { b.Time = time.Time{} }, output.ErrBatch},
		"no JSON":      {"t1", "s-a", func(b *output.Batch) { b.Events[0] = json.RawMessage(`{`) }, output.ErrBatch},
		"no object":    {"t1", "s-a", func(b *output.Batch) { b.Events[1] = json.RawMessage(`"x"`) }, output.ErrBatch},
		"too large": {"t1", "s-a", func(b *output.Batch) {
			b.Events[0] = json.RawMessage(`{"a":"` + strings.Repeat("x", max(output.MaxBatchBytes, h.MaxEvent)) + `"}`)
		}, output.ErrTooLarge},
		"wild tenant":  {"*", "s-a", func(*output.Batch) {}, &events.BadTokenError{}},
		"wild session": {"t1", "s.>", func(*output.Batch) {}, &events.BadTokenError{}},
	} {
		b := batch("r-1", 1, 2)
		c.spoil(&b)
		_, err := s.Publish(ctx, c.tenant, c.session, b)
		var token *events.BadTokenError
		if !errors.Is(err, c.want) && !(errors.As(c.want, &token) && errors.As(err, &token)) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if _, last, err := s.Info(ctx); err != nil || last != 0 {
		t.Errorf("the stream holds %d messages (%v) of what it refused", last, err)
	}
}

func testLargest(t *testing.T, h Harness) {
	s := h.Open(t)
	b := batch("r-1", 1, 1)
	raw, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	b.Events[0] = json.RawMessage(`{"a":"` + strings.Repeat("x", output.MaxBatchBytes-len(raw)) + `"}`)
	publish(t, s, "s-a", b)
	got, _, ok, err := s.Last(bounded(t), "t1", "s-a")
	if err != nil || !ok || !reflect.DeepEqual(got, b) {
		t.Errorf("last: %t, %v, or other contents", ok, err)
	}
}

var errEnough = errors.New("enough")

func testTail(t *testing.T, h Harness) {
	s := h.Open(t)
	publish(t, s, "s-a", batch("r-1", 1, 2))
	caughtUp := publish(t, s, "s-b", batch("r-2", 1, 1))
	var got []output.Message
	err := s.Tail(bounded(t), 0, func(m output.Message) error {
		got = append(got, m)
		if m.Seq == caughtUp {
			publish(t, s, "s-a", batch("r-1", 3, 3))
		}
		if len(got) == 3 {
			return errEnough
		}
		return nil
	})
	want := []output.Message{
		{Tenant: "t1", Session: "s-a", Seq: 1, Batch: batch("r-1", 1, 2)},
		{Tenant: "t1", Session: "s-b", Seq: 2, Batch: batch("r-2", 1, 1)},
		{Tenant: "t1", Session: "s-a", Seq: 3, Batch: batch("r-1", 3, 3)},
	}
	if !errors.Is(err, errEnough) || !reflect.DeepEqual(got, want) {
		t.Errorf("tail: %v\n%+v\nwant\n%+v", err, got, want)
	}
	ctx, cancel := context.WithCancel(bounded(t))
	err = s.Tail(ctx, 3, func(m output.Message) error {
		if m.Seq != 3 {
			t.Errorf("a tail from 3 begins with %d", m.Seq)
		}
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("tail after the end of ctx: %v", err)
	}
}

func testExpired(t *testing.T, h Harness) {
	s := h.Open(t)
	publish(t, s, "s-a", batch("r-1", 1, 1))
	publish(t, s, "s-a", batch("r-1", 2, 2))
	publish(t, s, "s-b", batch("r-2", 1, 1))
	h.Expire(t, 3)
	ctx := bounded(t)
	if first, last, err := s.Info(ctx); err != nil || first != 3 || last != 3 {
		t.Errorf("info: %d to %d, %v", first, last, err)
	}
	if _, _, ok, err := s.Last(ctx, "t1", "s-a"); ok || err != nil {
		t.Errorf("last of what has aged out: %t, %v", ok, err)
	}
	err := s.Tail(ctx, 1, func(m output.Message) error {
		if m.Seq != 3 {
			t.Errorf("the oldest left came as %d", m.Seq)
		}
		return errEnough
	})
	if !errors.Is(err, errEnough) {
		t.Errorf("tail: %v", err)
	}
	h.Expire(t, 4)
	if first, last, err := s.Info(ctx); err != nil || first != 4 || last != 3 {
		t.Errorf("info when all has aged out: %d to %d, %v", first, last, err)
	}
	if seq := publish(t, s, "s-a", batch("r-1", 3, 3)); seq != 4 {
		t.Errorf("the next has sequence %d, want 4", seq)
	}
}

func testTruncated(t *testing.T, h Harness) {
	s := h.Open(t)
	publish(t, s, "s-a", batch("r-1", 1, 1))
	err := s.Tail(bounded(t), 9, func(output.Message) error { return errEnough })
	var truncated *output.TruncatedError
	if !errors.As(err, &truncated) || truncated.Next != 9 || truncated.Last != 1 {
		t.Errorf("tail from beyond the end: %v, want *TruncatedError", err)
	}
}
