package eventlogtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
)

func testAppend(t *testing.T, h Harness) {
	a, b := h.Open(t)
	ctx, subject := bounded(t), freshSubject()
	first, err := a.Append(ctx, subject, envelope("c1", 1, 0, record(typePut, 1)))
	if err != nil {
		t.Fatal(err)
	}
	second, err := b.Append(ctx, subject, envelope("c2", 2, first, record(typePut, 2)))
	if err != nil {
		t.Fatal(err)
	}
	for name, env := range map[string]events.Envelope{
		"as if the subject were new": envelope("c3", 1, 0, record(typePut, 3)),
		"after an older message":     envelope("c3", 2, first, record(typePut, 3)),
		"after one to come":          envelope("c3", 3, second+1, record(typePut, 3)),
	} {
		_, err := a.Append(ctx, subject, env)
		var conflict *eventlog.ConflictError
		if !errors.As(err, &conflict) {
			t.Fatalf("append %s: %v, want a conflict", name, err)
		}
		if conflict.Subject != subject || conflict.Expected != env.Prev {
			t.Errorf("conflict %+v does not name %s and %d", conflict, subject, env.Prev)
		}
	}
	// Another subject's messages are no conflict.
	if _, err := a.Append(ctx, freshSubject(), envelope("c1", 1, 0, record(typePut, 1))); err != nil {
		t.Errorf("append on another subject: %v", err)
	}
	if m, ok, err := a.Last(ctx, subject); err != nil || !ok || m.Seq != second {
		t.Errorf("last is %d, %t, %v; want %d: a refused append was stored", m.Seq, ok, err, second)
	}
}

func testAppendRefuses(t *testing.T, h Harness) {
	a, _ := h.Open(t)
	ctx := bounded(t)
	before, err := a.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	good := envelope("c1", 1, 0, record(typePut, 1))
	for _, subject := range []string{
		"", "ev", "ev.t1.s.*", "ev.t1.s.>", "ev.*.s.a", "ev.t1.s.A", "ev.t1.s.a b", "ev.t1.s.a.b", "ev.t1.s.",
		"ev.t1.other.a", "out.t1.a", events.SubjectGenesis, "$JS.API.STREAM.PURGE.EVENTS",
	} {
		if _, err := a.Append(ctx, subject, good); !errors.Is(err, eventlog.ErrSubject) {
			t.Errorf("append on %q: %v, want ErrSubject", subject, err)
		}
	}
	bad := map[string]func(*events.Envelope){
		"no command":      func(e *events.Envelope) { e.Command = "" },
		"no actor":        func(e *events.Envelope) { e.Actor = events.Actor{} },
		"no service":      func(e *events.Envelope) { e.Service = "" },
		"n of 0":          func(e *events.Envelope) { e.N = 0 },
		"n without prev":  func(e *events.Envelope) { e.N = 2 },
		"no events":       func(e *events.Envelope) { e.Events = nil },
		"payload no JSON": func(e *events.Envelope) { e.Events = []events.Record{{Type: "x", V: 1, Data: json.RawMessage(`{`)}} },
		"no version":      func(e *events.Envelope) { e.Events = []events.Record{{Type: "x", Data: json.RawMessage(`{}`)}} },
	}
	for name, spoil := range bad {
		env := good
		spoil(&env)
		if _, err := a.Append(ctx, freshSubject(), env); !errors.Is(err, events.ErrEnvelope) {
			t.Errorf("append with %s: %v, want ErrEnvelope", name, err)
		}
	}
	large := envelope("c1", 1, 0, events.Record{Type: typePut, V: 1, Data: quoted(max(events.MaxEnvelopeBytes, h.MaxData+1))})
	if _, err := a.Append(ctx, freshSubject(), large); !errors.Is(err, events.ErrTooLarge) {
		t.Errorf("append of too much: %v, want ErrTooLarge", err)
	}
	if after, err := a.Info(ctx); err != nil || after.LastSeq != before.LastSeq {
		t.Errorf("the log grew from %d to %d (%v) by what it refused", before.LastSeq, after.LastSeq, err)
	}
}

func quoted(size int) json.RawMessage {
	return json.RawMessage(`"` + strings.Repeat("x", size-2) + `"`)
}

func testAppendEnded(t *testing.T, h Harness) {
	a, _ := h.Open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	subject := freshSubject()
	_, err := a.Append(ctx, subject, envelope("c1", 1, 0, record(typePut, 1)))
	var unknown *eventlog.OutcomeUnknownError
	if !errors.Is(err, context.Canceled) || errors.As(err, &unknown) {
		t.Errorf("append after the end of ctx: %v, want ctx's error alone", err)
	}
	if _, ok, err := a.Last(bounded(t), subject); ok || err != nil {
		t.Errorf("it was stored all the same (%v)", err)
	}
}

func testReads(t *testing.T, h Harness) {
	a, b := h.Open(t)
	ctx, subject := bounded(t), freshSubject()
	if _, ok, err := b.Last(ctx, subject); ok || err != nil {
		t.Fatalf("last of an unused subject: %t, %v", ok, err)
	}
	env := envelope("c1", 1, 0, events.Record{Type: "x", V: 7, Data: json.RawMessage(`{"a":"<&> \u2028 é"}`)})
	env.Cause, env.Trace = "seq:9", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	raw, err := env.Encode()
	if err != nil {
		t.Fatal(err)
	}
	seq, err := a.Append(ctx, subject, env)
	if err != nil {
		t.Fatal(err)
	}
	last, ok, err := b.Last(ctx, subject)
	if err != nil || !ok {
		t.Fatalf("last: %t, %v", ok, err)
	}
	got, err := b.Get(ctx, seq)
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]events.Message{"last": last, "get": got} {
		if m.Subject != subject || m.Seq != seq || !bytes.Equal(m.Raw, raw) {
			t.Errorf("%s gives %s at %d: %s", name, m.Subject, m.Seq, m.Raw)
		}
		if again, err := m.Envelope.Encode(); err != nil || !bytes.Equal(again, raw) {
			t.Errorf("%s decodes to what encodes otherwise: %s (%v)", name, again, err)
		}
	}
	for _, none := range []uint64{0, seq + 1_000_000} {
		if _, err := b.Get(ctx, none); !errors.Is(err, eventlog.ErrNotFound) {
			t.Errorf("get %d: %v, want ErrNotFound", none, err)
		}
	}
	if m, err := b.Get(ctx, 1); err != nil || m.Subject != events.SubjectGenesis || m.Envelope.N != 0 {
		t.Errorf("get 1: %+v, %v; want the genesis without an envelope", m, err)
	}
}

func testLargest(t *testing.T, h Harness) {
	a, b := h.Open(t)
	ctx, subject := bounded(t), freshSubject()
	empty, err := envelope("c1", 1, 0, events.Record{Type: "x", V: 1, Data: quoted(2)}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	data := quoted(2 + events.MaxEnvelopeBytes - len(empty) - 64)
	env := envelope("c1", 1, 0, events.Record{Type: "x", V: 1, Data: data})
	seq, err := a.Append(ctx, subject, env)
	if err != nil {
		t.Fatal(err)
	}
	m, err := b.Get(ctx, seq)
	if err == nil {
		m, err = b.Whole(ctx, m)
	}
	if err != nil || len(m.Envelope.Events) != 1 || !bytes.Equal(m.Envelope.Events[0].Data, data) {
		t.Errorf("get gives %d events of %d bytes, %v", len(m.Envelope.Events), len(m.Raw), err)
	}
}

var errEnough = errors.New("enough")

func testTail(t *testing.T, h Harness) {
	a, b := h.Open(t)
	ctx, subject := bounded(t), freshSubject()
	info, err := a.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	prev := uint64(0)
	grow := func(n uint64) {
		if prev, err = a.Append(ctx, subject, envelope("c", n, prev, record(typePut, 1))); err != nil {
			t.Error(err)
		}
	}
	grow(1)
	grow(2)
	planted := h.Plant(t, freshSubject(), []byte("no envelope"))

	live := planted + 2
	var got []events.Message
	err = b.Tail(ctx, info.LastSeq+1, func(m events.Message) error {
		got = append(got, m)
		switch m.Seq {
		case planted: // caught up: what follows is live
			grow(3)
			grow(4)
		case live:
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		t.Fatalf("tail ended with %v, want the handler's error", err)
	}
	if want := info.LastSeq + 1; len(got) != 5 || got[0].Seq != want || got[4].Seq != want+4 {
		t.Fatalf("tail gave %d messages from %d on", len(got), want)
	}
	for i, m := range got {
		if m.Seq != info.LastSeq+1+uint64(i) {
			t.Errorf("message %d has sequence %d", i, m.Seq)
		}
	}
	if got[2].Envelope.N != 0 || string(got[2].Raw) != "no envelope" {
		t.Errorf("what isn't an envelope came as %+v", got[2])
	}
	if got[4].Envelope.N != 4 || got[4].Subject != subject {
		t.Errorf("the last came as %+v", got[4])
	}
	testTailEnds(t, b)
}

// testTailEnds reads from the genesis and ends with ctx.
func testTailEnds(t *testing.T, log eventlog.Log) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(bounded(t))
	var first events.Message
	err := log.Tail(ctx, 0, func(m events.Message) error {
		if first.Seq == 0 {
			first = m
		}
		cancel(nil)
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("tail after the end of ctx: %v", err)
	}
	if first.Subject != events.SubjectGenesis || first.Seq != 1 {
		t.Errorf("a tail of everything starts with %s at %d", first.Subject, first.Seq)
	}
}

func testTailTruncated(t *testing.T, h Harness) {
	a, _ := h.Open(t)
	info, err := a.Info(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	err = a.Tail(bounded(t), info.LastSeq+1000, func(events.Message) error { return errEnough })
	var truncated *eventlog.TruncatedError
	if !errors.As(err, &truncated) || truncated.Next != info.LastSeq+1000 || truncated.LastSeq < info.LastSeq {
		t.Errorf("tail from beyond the end: %v, want *TruncatedError", err)
	}
}

func testInfo(t *testing.T, h Harness) {
	a, b := h.Open(t)
	ctx := bounded(t)
	seq, err := a.Append(ctx, freshSubject(), envelope("c1", 1, 0, record(typePut, 1)))
	if err != nil {
		t.Fatal(err)
	}
	info, err := b.Info(ctx)
	if err != nil || info.Genesis != h.Genesis || info.FirstSeq != 1 || info.LastSeq != seq {
		t.Errorf("info is %+v, %v; want genesis %+v and sequences 1 to %d", info, err, h.Genesis, seq)
	}
}
