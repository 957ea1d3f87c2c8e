package eventlogtest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
)

func testExecuteChain(t *testing.T, h Harness) {
	a, b := h.Open(t)
	s, subject := newStore(a), freshSubject()
	first := execute(t, s, subject, "c1", put(1, 2, 3))
	second := execute(t, s, subject, "c2", put(4))
	third := execute(t, newStore(b), subject, "c3", put(5, 6))
	for i, want := range []struct {
		res     eventlog.Result
		n, prev uint64
	}{{first, 1, 0}, {second, 4, first.Seq}, {third, 5, second.Seq}} {
		m, err := b.Get(bounded(t), want.res.Seq)
		if err != nil {
			t.Fatal(err)
		}
		e := m.Envelope
		if e.N != want.n || e.Prev != want.prev || want.res.N != e.LastN() || want.res.Repeated {
			t.Errorf("command %d: n %d and prev %d stored, result %+v; want n %d and prev %d", i+1, e.N, e.Prev, want.res, want.n, want.prev)
		}
	}
	if amount, n := balance(t, newStore(a), subject); amount != 21 || n != 6 {
		t.Errorf("balance %d at n %d, want 21 at 6", amount, n)
	}
}

func testExecuteOnce(t *testing.T, h Harness) {
	a, b := h.Open(t)
	s, subject := newStore(a), freshSubject()
	first := execute(t, s, subject, "c1", put(10))
	execute(t, s, subject, "c2", take(10))
	for name, store := range map[string]*eventlog.Store[*ledger]{"the same": s, "a restarted": newStore(a), "another's": newStore(b)} {
		// The decider would answer otherwise by now; it isn't asked.
		res, err := store.Execute(bounded(t), subject, command("c1"), func(*ledger, time.Time) ([]events.Record, error) {
			return nil, errors.New("decided again")
		})
		if err != nil || !res.Repeated || res.N != first.N || res.Seq != first.Seq || !reflect.DeepEqual(res.Records, first.Records) { //nolint:govet // no record is lost, so none has an error
			t.Errorf("%s store answers %+v, %v; want what %+v was", name, res, err, first)
		}
	}
	if amount, n := balance(t, s, subject); amount != 0 || n != 2 {
		t.Errorf("balance %d at n %d", amount, n)
	}
}

func testExecuteConflict(t *testing.T, h Harness) {
	a, b := h.Open(t)
	ours, theirs, subject := newStore(a), newStore(b), freshSubject()
	execute(t, ours, subject, "c1", put(10)) // ours has it cached
	execute(t, theirs, subject, "c2", take(7))

	decided := 0
	res, err := ours.Execute(bounded(t), subject, command("c3"), func(l *ledger, now time.Time) ([]events.Record, error) {
		decided++
		return take(3)(l, now)
	})
	if err != nil || res.N != 3 || decided != 2 {
		t.Errorf("result %+v, %v after %d decisions; want n 3 after 2", res, err, decided)
	}
	execute(t, theirs, subject, "c4", put(1))
	if _, err := ours.Execute(bounded(t), subject, command("c5"), take(3)); !errors.Is(err, errTooLittle) {
		t.Errorf("taking 3 of 1: %v", err)
	}
}

func testRefusalConfirmed(t *testing.T, h Harness) {
	a, b := h.Open(t)
	ours, theirs, subject := newStore(a), newStore(b), freshSubject()
	execute(t, ours, subject, "c1", put(1))
	execute(t, theirs, subject, "c2", put(10)) // ours doesn't know
	if res, err := ours.Execute(bounded(t), subject, command("c3"), take(5)); err != nil || res.N != 3 {
		t.Errorf("taking 5 of 11: %+v, %v; the refusal stood on an outdated cache", res, err)
	}
	// The other way round: nothing to do is said of the subject's last state.
	execute(t, theirs, subject, "c4", put(100))
	res, err := ours.Execute(bounded(t), subject, command("c5"), func(*ledger, time.Time) ([]events.Record, error) { return nil, nil })
	if err != nil || res.N != 4 || len(res.Records) != 0 {
		t.Errorf("nothing to do: %+v, %v; want it as of n 4", res, err)
	}
}

func testRefusalRecorded(t *testing.T, h Harness) {
	a, b := h.Open(t)
	s, subject := newStore(a), freshSubject()
	execute(t, s, subject, "c1", put(1))
	res, err := s.Execute(bounded(t), subject, command("c2"), takeOrRecord(5))
	if !errors.Is(err, errTooLittle) || res.N != 2 || len(res.Records) != 1 || res.Records[0].Type != typeRefused {
		t.Fatalf("recorded refusal: %+v, %v", res, err)
	}
	again := execute(t, newStore(b), subject, "c2", takeOrRecord(5))
	if !again.Repeated || again.Seq != res.Seq || again.Records[0].Type != typeRefused {
		t.Errorf("repeated: %+v; want the refusal's records", again)
	}
}

func testLostReply(t *testing.T, h Harness) {
	a, b := h.Open(t)
	subject := freshSubject()
	lossy := &faulty{Log: a}
	s := newStore(lossy)
	execute(t, s, subject, "c1", put(4))
	// What natslog does where the acknowledgement of a stored append is lost: the
	// second sending meets the first.
	lossy.onAppend = func(ctx context.Context, subject string, env events.Envelope) (uint64, error) {
		lossy.onAppend = nil
		if _, err := a.Append(ctx, subject, env); err != nil {
			t.Errorf("append: %v", err)
		}
		return a.Append(ctx, subject, env)
	}
	res := execute(t, s, subject, "c2", take(4))
	if res.Repeated || res.N != 2 {
		t.Errorf("the answer after a lost reply is %+v", res)
	}
	if amount, n := balance(t, newStore(b), subject); amount != 0 || n != 2 {
		t.Errorf("balance %d at n %d, want 0 at 2", amount, n)
	}
	// A refusal that was recorded stays the answer, too.
	lossy.onAppend = func(ctx context.Context, subject string, env events.Envelope) (uint64, error) {
		lossy.onAppend = nil
		if _, err := a.Append(ctx, subject, env); err != nil {
			t.Errorf("append: %v", err)
		}
		return a.Append(ctx, subject, env)
	}
	if _, err := s.Execute(bounded(t), subject, command("c3"), takeOrRecord(4)); !errors.Is(err, errTooLittle) {
		t.Errorf("recorded refusal after a lost reply: %v", err)
	}
}

// Where the log has no room, what another process has already done is still answered
// with what was done, and what nobody has done is refused and isn't done.
func testNoRoom(t *testing.T, h Harness) {
	a, b := h.Open(t)
	subject := freshSubject()
	full := &faulty{Log: a}
	s := newStore(full)
	execute(t, s, subject, "c1", put(4))
	done := execute(t, newStore(b), subject, "c2", put(5))
	full.onAppend = func(_ context.Context, subject string, _ events.Envelope) (uint64, error) {
		return 0, &eventlog.NoRoomError{Subject: subject, Err: errors.New("full")}
	}
	if res := execute(t, s, subject, "c2", put(5)); !res.Repeated || res.Seq != done.Seq {
		t.Errorf("done before: %+v, want it repeated at %d", res, done.Seq)
	}
	var noRoom *eventlog.NoRoomError
	if _, err := s.Execute(bounded(t), subject, command("c3"), put(6)); !errors.As(err, &noRoom) {
		t.Errorf("%v, want a *NoRoomError", err)
	}
	full.onAppend = nil
	if amount, n := balance(t, s, subject); amount != 9 || n != 2 {
		t.Errorf("balance %d at n %d, want 9 at 2", amount, n)
	}
	if res := execute(t, s, subject, "c3", put(6)); res.Repeated || res.N != 3 {
		t.Errorf("with room: %+v", res)
	}
}

func testUnknownOutcome(t *testing.T, h Harness) {
	a, b := h.Open(t)
	for _, stored := range []bool{true, false} {
		t.Run(fmt.Sprintf("stored %t", stored), func(t *testing.T) {
			subject := freshSubject()
			lossy := &faulty{Log: a}
			s := newStore(lossy)
			execute(t, s, subject, "c1", put(4))
			lossy.onAppend = func(ctx context.Context, subject string, env events.Envelope) (uint64, error) {
				if stored {
					if _, err := a.Append(ctx, subject, env); err != nil {
						t.Errorf("append: %v", err)
					}
				}
				return 0, &eventlog.OutcomeUnknownError{Subject: subject, Command: env.Command, Err: context.DeadlineExceeded}
			}
			_, err := s.Execute(bounded(t), subject, command("c2"), take(4))
			var unknown *eventlog.OutcomeUnknownError
			if !errors.As(err, &unknown) || unknown.Command != "c2" || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("outcome: %v, want *OutcomeUnknownError", err)
			}
			lossy.onAppend = nil
			res := execute(t, s, subject, "c2", take(4))
			if res.Repeated != stored || res.N != 2 {
				t.Errorf("repeated: %+v; want n 2, repeated %t", res, stored)
			}
			if amount, n := balance(t, newStore(b), subject); amount != 0 || n != 2 {
				t.Errorf("balance %d at n %d, want 0 at 2", amount, n)
			}
		})
	}
}

func testFailedAfterAttempt(t *testing.T, h Harness) {
	a, _ := h.Open(t)
	subject := freshSubject()
	down := errors.New("down")
	lossy := &faulty{Log: a}
	s := newStore(lossy)
	execute(t, s, subject, "c1", put(4))
	lossy.onLast = func() error { return down }
	lossy.onAppend = func(ctx context.Context, subject string, env events.Envelope) (uint64, error) {
		if _, err := a.Append(ctx, subject, env); err != nil {
			t.Errorf("append: %v", err)
		}
		return a.Append(ctx, subject, env)
	}
	_, err := s.Execute(bounded(t), subject, command("c2"), take(4))
	var unknown *eventlog.OutcomeUnknownError
	if !errors.As(err, &unknown) || !errors.Is(err, down) {
		t.Errorf("it may have been stored, but the answer is %v", err)
	}
	lossy.onAppend = nil
	// Nothing was sent by this call, so its failure is only that.
	if _, err := newStore(lossy).Execute(bounded(t), subject, command("c3"), take(4)); errors.As(err, &unknown) || !errors.Is(err, down) {
		t.Errorf("nothing was sent, but the answer is %v", err)
	}
}

func testStateAsStored(t *testing.T, h Harness) {
	a, b := h.Open(t)
	s, subject := newStore(a), freshSubject()
	execute(t, s, subject, "c1", put(1, 2))
	execute(t, s, subject, "c2", take(3))
	var cached, loaded ledger
	keep := func(to *ledger) func(eventlog.Snapshot[*ledger]) error {
		return func(snap eventlog.Snapshot[*ledger]) error { *to = *snap.State; return nil }
	}
	if err := s.Read(bounded(t), subject, keep(&cached)); err != nil {
		t.Fatal(err)
	}
	if err := newStore(b).Read(bounded(t), subject, keep(&loaded)); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(cached, loaded) {
		t.Errorf("the state in memory is %+v, from the log %+v", cached, loaded)
	}
}

func testForeignAndUnknown(t *testing.T, h Harness) {
	a, _ := h.Open(t)
	foreign := envelope("c2", 2, 0, record(typePut, 1))
	foreign.Service = events.ServicePolicy
	for name, c := range map[string]struct {
		env  events.Envelope
		want any
	}{
		"foreign": {foreign, new(*events.ForeignTypeError)},
		"unknown": {envelope("c2", 2, 0, record("ledger.melted", 1)), new(*events.UnknownTypeError)},
	} {
		t.Run(name, func(t *testing.T) {
			s, subject := newStore(a), freshSubject()
			c.env.Prev = execute(t, s, subject, "c1", put(1)).Seq
			if _, err := a.Append(bounded(t), subject, c.env); err != nil {
				t.Fatal(err)
			}
			for _, store := range []*eventlog.Store[*ledger]{s, newStore(a)} {
				_, err := store.Execute(bounded(t), subject, command("c3"), put(1))
				if !errors.As(err, c.want) {
					t.Errorf("execute: %v, want %T", err, c.want)
				}
				err = store.Read(bounded(t), subject, func(eventlog.Snapshot[*ledger]) error { return nil })
				if !errors.As(err, c.want) {
					t.Errorf("read: %v, want %T", err, c.want)
				}
			}
			if m, _, err := a.Last(bounded(t), subject); err != nil || m.Envelope.Command != "c2" {
				t.Errorf("something was appended after it: %s, %v", m.Envelope.Command, err)
			}
		})
	}
}

func testBrokenChain(t *testing.T, h Harness) {
	a, _ := h.Open(t)
	for name, plant := range map[string]func(t *testing.T, subject string, last uint64){
		"not an envelope": func(t *testing.T, subject string, _ uint64) { h.Plant(t, subject, []byte("{}")) },
		"n repeated": func(t *testing.T, subject string, last uint64) {
			plantEnvelope(t, h, subject, envelope("c3", 2, last, record(typePut, 1)))
		},
		"n skipped": func(t *testing.T, subject string, last uint64) {
			plantEnvelope(t, h, subject, envelope("c3", 4, last, record(typePut, 1)))
		},
		"prev of another subject": func(t *testing.T, subject string, _ uint64) {
			other := execute(t, newStore(a), freshSubject(), "c1", put(1))
			plantEnvelope(t, h, subject, envelope("c3", 3, other.Seq, record(typePut, 1)))
		},
		"prev points forward": func(t *testing.T, subject string, last uint64) {
			plantEnvelope(t, h, subject, envelope("c3", 3, last+100, record(typePut, 1)))
		},
		"prev passes one over": func(t *testing.T, subject string, last uint64) {
			m, err := a.Get(bounded(t), last)
			if err != nil {
				t.Fatal(err)
			}
			plantEnvelope(t, h, subject, envelope("c3", 3, m.Envelope.Prev, record(typePut, 1)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, subject := newStore(a), freshSubject()
			execute(t, s, subject, "c1", put(1))
			plant(t, subject, execute(t, s, subject, "c2", put(1)).Seq)
			for _, store := range []*eventlog.Store[*ledger]{s, newStore(a)} {
				var broken *eventlog.ChainError
				err := store.Read(bounded(t), subject, func(eventlog.Snapshot[*ledger]) error { return nil })
				if !errors.As(err, &broken) || broken.Subject != subject {
					t.Errorf("read: %v, want *ChainError", err)
				}
			}
		})
	}
}

func plantEnvelope(t *testing.T, h Harness, subject string, env events.Envelope) {
	t.Helper()
	raw, err := env.Encode()
	if err != nil {
		t.Fatal(err)
	}
	h.Plant(t, subject, raw)
}
