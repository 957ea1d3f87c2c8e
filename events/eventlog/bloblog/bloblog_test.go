package bloblog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/blob"
	"github.com/holdfast-io/holdfast/events/blob/memblob"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/eventlog/bloblog"
	"github.com/holdfast-io/holdfast/events/eventlog/eventlogtest"
	"github.com/holdfast-io/holdfast/events/eventlog/memlog"
	"github.com/holdfast-io/holdfast/events/session"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// The server leaves these behind for a moment after it was shut down.
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushLoop"),
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*Server).startGoRoutine.func1"),
	)
}

var genesis = eventlog.Genesis{LogID: "log-of-the-test", Epoch: "e1"}

// A log with blobs is a log.
func TestSuite(t *testing.T) {
	inner, blobs := memlog.New(genesis), &memblob.Store{}
	eventlogtest.Run(t, eventlogtest.Harness{
		Open: func(*testing.T) (a, b eventlog.Log) {
			return bloblog.New(inner, blobs), bloblog.New(inner, blobs)
		},
		Plant:   func(_ *testing.T, subject string, raw []byte) uint64 { return inner.Plant(subject, raw) },
		Genesis: genesis,
		MaxData: blob.MaxBytes,
		Checks:  30,
	})
}

const (
	subject = "ev.t1.s.s-1"
	owner   = blob.Owner("t1.s.s-1")
)

// world is one log with its parts, each seen by itself.
type world struct {
	inner *memlog.Log
	blobs *memblob.Store
}

func newWorld() world { return world{memlog.New(genesis), &memblob.Store{}} }

// open is another process: nothing is in its memory.
func (w world) open() *bloblog.Log { return bloblog.New(w.inner, w.blobs) }

func (w world) store() *eventlog.Store[*session.State] {
	return eventlog.NewStore(eventlog.Config[*session.State]{Log: w.open(), New: session.New, Service: events.ServiceSession})
}

// said is a JSON string of n bytes.
func said(n int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("x", n-2) + `"`) }

func record(n int) events.Record { return events.Record{Type: "a.b", V: 1, Data: said(n)} }

func envelope(records ...events.Record) events.Envelope {
	return events.Envelope{
		Command: "c1", Actor: events.Actor{Kind: events.ActorPerson, ID: "alice"}, Service: events.ServiceSession,
		N: 1, Time: time.Date(2026, 5, 4, 8, 0, 0, 0, time.UTC), Events: records,
	}
}

// get is a message as it was appended.
func get(ctx context.Context, l *bloblog.Log, seq uint64) (events.Message, error) {
	m, err := l.Get(ctx, seq)
	if err != nil {
		return m, err
	}
	return l.Whole(ctx, m)
}

// What is stored is small and what is read is what was appended, whatever the sizes;
// an envelope of small data is stored as if there were no blobs.
func TestEverySizeComesBackWhole(t *testing.T) {
	t.Parallel()
	const over = blob.Over
	for name, sizes := range map[string][]int{
		"one byte under":            {over - 1},
		"the limit":                 {over},
		"one byte over":             {over + 1},
		"large and small":           {10, over + 1, 20, 3 << 20, 30},
		"ten megabytes":             {10 << 20},
		"many of the most":          {over, over, over, over, over, over},
		"all of an envelope's room": {over, over, over, events.MaxEnvelopeBytes - 3*over - 64<<10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			records := make([]events.Record, len(sizes))
			for i, n := range sizes {
				records[i] = record(n)
			}
			seq, err := w.open().Append(t.Context(), subject, envelope(records...))
			if err != nil {
				t.Fatal(err)
			}
			got, err := get(t.Context(), w.open(), seq)
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range got.Envelope.Events {
				if !bytes.Equal(r.Data, records[i].Data) || r.Lost != nil {
					t.Errorf("event %d has %d bytes, %v; want %d", i, len(r.Data), r.Lost, len(records[i].Data))
				}
			}
			if len(got.Raw) > events.MaxEnvelopeBytes {
				t.Errorf("%d bytes stand in the log", len(got.Raw))
			}
			large := slices.Max(sizes) > over || slices.Contains(sizes, over) && len(sizes) > 4
			if (len(w.blobs.Owners()) == 1) != large {
				t.Errorf("blobs: %v; want one: %t", w.blobs.Owners(), large)
			}
			if !large {
				if plain, err := envelope(records...).Encode(); err != nil || !bytes.Equal(plain, got.Raw) {
					t.Errorf("small data is stored otherwise than without blobs (%v)", err)
				}
			}
		})
	}
}

// Any sizes in any order, read in every way.
func TestAnySizes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		var records []events.Record
		for _, n := range rapid.SliceOfN(rapid.OneOf(rapid.IntRange(2, 100), rapid.IntRange(blob.Over-2, blob.Over+2), rapid.IntRange(2, 1<<19)), 1, 12).Draw(t, "sizes") {
			records = append(records, record(n))
		}
		seq, err := w.open().Append(context.Background(), subject, envelope(records...))
		if err != nil {
			t.Fatal(err)
		}
		tailed := errors.New("tailed")
		check := func(how string, m events.Message, err error) {
			same := slices.EqualFunc(m.Envelope.Events, records, func(a, b events.Record) bool { return bytes.Equal(a.Data, b.Data) })
			if err != nil || m.Seq != seq || !same {
				t.Fatalf("by %s: %d events, %v", how, len(m.Envelope.Events), err)
			}
		}
		l := w.open()
		m, err := get(context.Background(), l, seq)
		check("get", m, err)
		if m, _, err = l.Last(context.Background(), subject); err == nil {
			m, err = l.Whole(context.Background(), m)
		}
		check("last", m, err)
		if err := l.Tail(context.Background(), seq, func(m events.Message) error { check("tail", m, nil); return tailed }); !errors.Is(err, tailed) {
			t.Fatal(err)
		}
	})
}

func send(content json.RawMessage) eventlog.Decide[*session.State] {
	return func(*session.State, time.Time) ([]events.Record, error) {
		return session.Records(events.ServiceSession, session.MessageReceived{MessageID: "m-1", RunID: "r-1", Content: content})
	}
}

var command = eventlog.Command{ID: "c1", Actor: events.Actor{Kind: events.ActorPerson, ID: "alice"}}

// crashing is a log whose process dies before the append.
type crashing struct {
	eventlog.Log
	died error
}

func (c *crashing) Append(context.Context, string, events.Envelope) (uint64, error) { return 0, c.died }

// A process dies between storing the contents and appending the envelope. What it left
// is in nobody's way: the same command, repeated by another, is done once, with one
// blob and all of its contents.
func TestCrashBetweenBlobAndAppend(t *testing.T) {
	t.Parallel()
	w := newWorld()
	died := errors.New("died")
	first := eventlog.NewStore(eventlog.Config[*session.State]{
		Log: bloblog.New(&crashing{w.inner, died}, w.blobs), New: session.New, Service: events.ServiceSession,
	})
	content := said(10 << 20)
	if _, err := first.Execute(t.Context(), subject, command, send(content)); !errors.Is(err, died) {
		t.Fatal(err)
	}
	if left := w.blobs.Owners(); len(left) != 1 {
		t.Fatalf("the crash left %v", left)
	}
	for _, repeated := range []bool{false, true} {
		res, err := w.store().Execute(t.Context(), subject, command, send(content))
		if err != nil || res.N != 1 || res.Repeated != repeated || !bytes.Contains(res.Records[0].Data, content) {
			t.Fatalf("n %d, repeated %t, %v", res.N, res.Repeated, err)
		}
	}
	if got := w.blobs.Owners(); len(got) != 1 {
		t.Errorf("blobs: %v", got)
	}
}

// Contents that can't be kept now: nothing is appended, and the same command works
// later. Contents that can't be read now: no answer, and later the whole one.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	w := newWorld()
	down := errors.New("down")
	unavailable := new(*blob.UnavailableError)
	s, content := w.store(), said(1<<20)
	w.blobs.Fail(down)
	if _, err := s.Execute(t.Context(), subject, command, send(content)); !errors.As(err, unavailable) || !errors.Is(err, down) {
		t.Fatalf("execute: %v", err)
	}
	if _, ok, err := w.inner.Last(t.Context(), subject); ok || err != nil {
		t.Fatalf("something was appended, or %v", err)
	}
	small := eventlog.Command{ID: "small", Actor: command.Actor}
	if _, err := s.Execute(t.Context(), subject, small, send(said(100))); err != nil {
		t.Errorf("small contents need no blob: %v", err)
	}
	w.blobs.Fail(nil)
	res, err := s.Execute(t.Context(), subject, command, send(content))
	if err != nil || res.Repeated {
		t.Fatalf("later: %+v, %v", res, err)
	}

	w.blobs.Fail(down)
	other := w.open()
	if _, err := get(t.Context(), other, res.Seq); !errors.As(err, unavailable) {
		t.Errorf("whole: %v", err)
	}
	if err := w.store().Read(t.Context(), subject, func(eventlog.Snapshot[*session.State]) error { return nil }); !errors.As(err, unavailable) {
		t.Errorf("read: %v", err)
	}
	// A tail stands still until it can go on.
	waits := &waiting{Store: w.blobs, failed: make(chan struct{}, 1)}
	got := make(chan events.Message, 1)
	ended, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- bloblog.New(w.inner, waits).Tail(ended, res.Seq, func(m events.Message) error { got <- m; return nil })
	}()
	<-waits.failed
	<-waits.failed // it tries again
	select {
	case m := <-got:
		t.Errorf("the tail gave %+v without its contents", m.Seq)
	default:
	}
	w.blobs.Fail(nil)
	if m := <-got; !bytes.Contains(m.Envelope.Events[0].Data, content) {
		t.Error("the tail gave something else")
	}
	end()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("tail: %v", err)
	}
}

// waiting tells of each failed read.
type waiting struct {
	blob.Store
	failed chan struct{}
}

func (s *waiting) Get(ctx context.Context, owner blob.Owner, ref events.Blob) ([]byte, error) {
	contents, err := s.Store.Get(ctx, owner, ref)
	if err != nil {
		s.failed <- struct{}{}
	}
	return contents, err
}

// Contents that are gone, damaged, or another's: no fold takes the event, by whichever
// way it comes, and the sessions beside it go on.
func TestLost(t *testing.T) {
	t.Parallel()
	plant := func(t *testing.T, w world, on string, ref events.Blob) {
		t.Helper()
		env := envelope(events.Record{Type: session.TypeMessageReceived, V: 1})
		env.Blob = &ref
		raw, err := env.Encode()
		if err != nil {
			t.Fatal(err)
		}
		w.inner.Plant(on, raw)
	}
	stored := func(t *testing.T, w world) events.Blob {
		t.Helper()
		if _, err := w.store().Execute(t.Context(), "ev.t1.s.victim", command, send(said(1<<20))); err != nil {
			t.Fatal(err)
		}
		m, _, err := w.inner.Last(t.Context(), "ev.t1.s.victim")
		if err != nil {
			t.Fatal(err)
		}
		return *m.Envelope.Blob
	}
	own := func(t *testing.T, w world, contents string) {
		t.Helper()
		ref, err := w.blobs.Put(t.Context(), owner, []byte(contents))
		if err != nil {
			t.Fatal(err)
		}
		plant(t, w, subject, ref)
	}
	for name, lose := range map[string]func(t *testing.T, w world){
		"another session's": func(t *testing.T, w world) { plant(t, w, subject, stored(t, w)) },
		"another tenant's": func(t *testing.T, w world) {
			ref := stored(t, w)
			plant(t, w, "ev.t2.s.victim", ref)
			plant(t, w, subject, ref)
		},
		"no reference": func(t *testing.T, w world) { plant(t, w, subject, events.Blob{SHA256: "t1.s.victim.>", Size: 1}) },
		"damaged": func(t *testing.T, w world) {
			if _, err := w.store().Execute(t.Context(), subject, command, send(said(1<<20))); err != nil {
				t.Fatal(err)
			}
			m, _, _ := w.inner.Last(t.Context(), subject)
			w.blobs.Plant(owner, *m.Envelope.Blob, []byte("[1]"))
		},
		"gone": func(t *testing.T, w world) {
			if _, err := w.store().Execute(t.Context(), subject, command, send(said(1<<20))); err != nil {
				t.Fatal(err)
			}
			m, _, _ := w.inner.Last(t.Context(), subject)
			w.blobs.Plant(owner, *m.Envelope.Blob, nil)
		},
		"no array":        func(t *testing.T, w world) { own(t, w, "{}") },
		"of fewer events": func(t *testing.T, w world) { own(t, w, "[]") },
		"of other events": func(t *testing.T, w world) { own(t, w, `["x","y"]`) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			lose(t, w)
			lost := new(*events.LostError)
			if err := w.store().Read(t.Context(), subject, func(eventlog.Snapshot[*session.State]) error { return nil }); !errors.As(err, lost) {
				t.Errorf("read: %v", err)
			}
			if _, err := w.store().Execute(t.Context(), subject, eventlog.Command{ID: "c2", Actor: command.Actor}, send(said(9))); !errors.As(err, lost) {
				t.Errorf("execute: %v", err)
			}
			if _, err := w.store().Execute(t.Context(), "ev.t1.s.other", command, send(said(1<<20))); err != nil {
				t.Errorf("another session: %v", err)
			}
			seen, end := 0, errors.New("end")
			last, err := w.inner.Info(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := w.open().Tail(t.Context(), 1, func(m events.Message) error {
				if seen++; m.Subject == subject && !errors.As(session.New().Apply(m), lost) {
					t.Error("the tail gives the event as if it were whole")
				}
				if m.Seq == last.LastSeq {
					return end
				}
				return nil
			}); !errors.Is(err, end) || uint64(seen) != last.LastSeq {
				t.Errorf("%d of %d, %v", seen, last.LastSeq, err)
			}
		})
	}
}

// An envelope comes without a blob of its own, and with its data.
func TestAppendRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld()
	forged := envelope(record(10))
	forged.Blob = &events.Blob{SHA256: "00", Size: 1}
	empty := envelope(events.Record{Type: "a.b", V: 1}, record(blob.Over+1))
	for name, env := range map[string]events.Envelope{"with a blob": forged, "without data": empty} {
		if _, err := w.open().Append(t.Context(), subject, env); !errors.Is(err, events.ErrEnvelope) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := w.open().Append(t.Context(), "ev.t1.s.*", envelope(record(blob.Over+1))); !errors.Is(err, eventlog.ErrSubject) {
		t.Errorf("a pattern: %v", err)
	}
	if _, err := w.open().Append(t.Context(), subject, envelope(record(blob.MaxBytes+1))); !errors.Is(err, events.ErrTooLarge) {
		t.Errorf("over every limit: %v", err)
	}
	if left := w.blobs.Owners(); len(left) > 0 {
		t.Errorf("blobs of what was refused: %v", left)
	}
}
