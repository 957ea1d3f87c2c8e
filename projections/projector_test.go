package projections

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/eventlog/memlog"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/migrations"
	"github.com/holdfast-io/holdfast/migrations/pgtest"
	"github.com/holdfast-io/holdfast/projections/view"
)

// project starts a projector that ends with the test, or by the function that it gives.
func project(t testing.TB, cfg Config) (*Projector, func()) {
	t.Helper()
	if cfg.CheckEvery == 0 {
		cfg.CheckEvery = 50 * time.Millisecond
	}
	p, err := NewProjector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := p.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	}()
	stop := func() { cancel(); <-done }
	t.Cleanup(stop)
	return p, stop
}

func reader(t testing.TB, pool *pgxpool.Pool, log eventlog.Log) *Reader {
	t.Helper()
	r, err := NewReader(ReaderConfig{Pool: pool, Epoch: "e1", Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func TestProjectorMakesTheReadModels(t *testing.T) {
	t.Parallel()
	pool, log := pgtest.Pool(t), newLog()
	s := newScribe(t, log)
	s.define()
	id := sid(1)
	s.create(id)
	s.ready(id)
	call := s.ask(id)
	last := s.create(sid(2))
	p, _ := project(t, Config{Log: log, Pool: pool})
	r := reader(t, pool, log)
	if err := r.WaitFor(timeout(t), last); err != nil {
		t.Fatal(err)
	}
	if err := p.Ready(); err != nil {
		t.Fatalf("not ready: %v", err)
	}

	got, err := r.Session(t.Context(), testTenant, id)
	if err != nil {
		t.Fatal(err)
	}
	if got.Phase != session.PhaseReady || got.Waiting != 1 || got.Run != id+"-r1" || got.Isolation != "landlock" || got.Deadlines.Approval == nil {
		t.Errorf("session: %+v", got)
	}
	inbox, err := r.Approvals(t.Context(), testTenant, ApprovalFilter{States: []session.CallState{session.CallStatePending}}, Page{})
	if err != nil || len(inbox.Items) != 1 {
		t.Fatalf("inbox: %v, %v", inbox, err)
	}
	a := inbox.Items[0]
	if a.ID != call || string(a.Args) != `{"command":"deploy <now>","password":"‹masked, 7 bytes›"}` || a.Message != "Deploy ‹U+202E›?" {
		t.Errorf("approval: %+v args %s", a, a.Args)
	}
	page, err := r.Timeline(t.Context(), testTenant, id, Place{}, 100)
	if err != nil {
		t.Fatal(err)
	}
	prompts := 0
	for i, f := range page.Frames {
		if f.N != uint64(i+1) {
			t.Errorf("frame %d has n %d", i, f.N)
		}
		if f.Kind == view.FramePrompt {
			prompts++
		}
	}
	if prompts != 1 || uint64(len(page.Frames)) != got.N || page.More {
		t.Errorf("%d prompts in %d frames of %d", prompts, len(page.Frames), got.N)
	}
	due, err := r.Due(t.Context(), events.ServicePolicy, start.Add(time.Hour), 10)
	if err != nil || len(due) != 1 || due[0].Key != call || due[0].Kind != session.DeadlineApproval {
		t.Errorf("due: %+v, %v", due, err)
	}
	keys, err := r.Unsettled(t.Context(), events.ServiceWorkload)
	if err != nil || len(keys) != 2 {
		t.Errorf("unsettled for workload: %v, %v", keys, err)
	}
	if keys, err = r.Unsettled(t.Context(), events.ServicePolicy); err != nil || len(keys) != 0 {
		t.Errorf("unsettled for policy: %v, %v", keys, err)
	}
}

// populate writes a log with everything in it and gives its last sequence.
func populate(t testing.TB, s *scribe) uint64 {
	t.Helper()
	s.define()
	for i := range 4 {
		s.create(sid(i))
	}
	for i := range 3 {
		s.ready(sid(i))
	}
	calls := make([]string, 0, 2)
	for i := range 2 {
		calls = append(calls, s.ask(sid(i)))
	}
	s.say(sid(2), events.ServiceWorkload, session.Lost{Generation: 1, PodUID: sid(2) + "-pod", Cause: "node gone"})
	s.say(sid(2), events.ServiceSession, session.ResumeRequested{Cause: "run"})
	s.say(sid(2), events.ServiceWorkload, session.ClaimRequested{Generation: 2, Deadline: s.now.Add(time.Minute)})
	last := s.answer(sid(0), calls[0])
	return last
}

// summed gives the contents of the live read models.
func summed(t testing.TB, pool *pgxpool.Pool) []TableContents {
	t.Helper()
	var tables []TableContents
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) (err error) {
		tables, err = contents(t.Context(), tx, migrations.Views)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tables
}

// fresh projects a log into an empty database, one message a transaction.
func fresh(t testing.TB, log eventlog.Log, last uint64) []TableContents {
	t.Helper()
	pool := pgtest.Pool(t)
	p, stop := project(t, Config{Log: log, Pool: pool, BatchSize: 1})
	if err := p.WaitFor(timeout(t), last); err != nil {
		t.Fatal(err)
	}
	stop()
	return summed(t, pool)
}

func same(t testing.TB, what string, got, want []TableContents) {
	t.Helper()
	for _, d := range differences(got, want) {
		t.Errorf("%s: %s", what, d)
	}
}

// Invariant 8: rows at a checkpoint equal a fresh fold to there, whatever the
// batches, with a small cache, under two projectors and a failover.
func TestInvariantRowsEqualAFreshFold(t *testing.T) {
	t.Parallel()
	pool, log := pgtest.Pool(t), newLog()
	s := newScribe(t, log)
	_, stopFirst := project(t, Config{Log: log, Pool: pool, BatchSize: 7, CacheSize: 1})
	second, _ := project(t, Config{Log: log, Pool: pool, BatchSize: 3, CacheSize: 2})
	last := populate(t, s)
	if err := second.WaitFor(timeout(t), last); err != nil { // by either
		t.Fatal(err)
	}
	same(t, "two projectors", summed(t, pool), fresh(t, log, last))

	stopFirst()
	s.create(sid(9))
	s.ready(sid(9))
	last = s.answer(sid(9), s.ask(sid(9)))
	if err := second.WaitFor(timeout(t), last); err != nil {
		t.Fatal(err)
	}
	same(t, "after a failover", summed(t, pool), fresh(t, log, last))
}

func TestStaleLeaderWritesNothing(t *testing.T) {
	t.Parallel()
	pool, log := pgtest.Pool(t), newLog()
	last := populate(t, newScribe(t, log))
	p, stop := project(t, Config{Log: log, Pool: pool})
	if err := p.WaitFor(timeout(t), last); err != nil {
		t.Fatal(err)
	}
	stop()
	before := summed(t, pool)

	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for _, stale := range []checkpoint{{epoch: "e1", seq: 3}, {epoch: "another", seq: last}} {
		w := writer{log: discard, db: conn, folds: newFolds(log, "e1", nil, 16), at: stale, reached: func(uint64) {}}
		m, err := log.Get(t.Context(), stale.seq+1)
		if errors.Is(err, eventlog.ErrNotFound) {
			m = events.Message{Subject: "ev.other", Seq: last + 1, Raw: []byte("x")}
		}
		if err := w.project(t.Context(), []events.Message{m}); !errors.Is(err, errFenced) {
			t.Errorf("a leader at %+v wrote: %v", stale, err)
		}
	}
	same(t, "after a stale leader", summed(t, pool), before)
}

func TestCheckpointRefusesAnotherLog(t *testing.T) {
	t.Parallel()
	pool, log := pgtest.Pool(t), newLog()
	last := populate(t, newScribe(t, log))
	p, stop := project(t, Config{Log: log, Pool: pool})
	if err := p.WaitFor(timeout(t), last); err != nil {
		t.Fatal(err)
	}
	stop()
	before := summed(t, pool)

	otherEpoch := memlog.New(eventlog.Genesis{LogID: "l1", Epoch: "e2"})
	populate(t, newScribe(t, otherEpoch))
	older := newLog()
	newScribe(t, older).create(sid(0))
	otherHash := newLog()
	so := newScribe(t, otherHash)
	so.now = so.now.Add(time.Hour)
	populate(t, so)
	for want, foreign := range map[Mismatch]*memlog.Log{
		MismatchEpoch: otherEpoch, MismatchBehind: older, MismatchHash: otherHash,
	} {
		p, stop := project(t, Config{Log: foreign, Pool: pool})
		var mismatch *CheckpointError
		until(t, "refused for "+string(want), func() bool { return errors.As(p.Ready(), &mismatch) })
		if mismatch.Mismatch != want {
			t.Errorf("refused for %s, want %s", mismatch.Mismatch, want)
		}
		if want != MismatchEpoch {
			r := reader(t, pool, foreign)
			if _, err := r.Due(t.Context(), events.ServiceSession, start.Add(1000*time.Hour), 10); !errors.As(err, &mismatch) {
				t.Errorf("a sweep over a log that doesn't fit (%s): %v", want, err)
			}
			if _, err := r.Unsettled(t.Context(), events.ServiceSession); !errors.As(err, &mismatch) {
				t.Errorf("a sweep over a log that doesn't fit (%s): %v", want, err)
			}
		}
		stop()
	}
	same(t, "after foreign logs", summed(t, pool), before)
}

// A log that is restored older under a running projector is noticed.
func TestLogRestoredOlderIsNoticed(t *testing.T) {
	t.Parallel()
	pool, log := pgtest.Pool(t), newLog()
	last := populate(t, newScribe(t, log))
	older := newLog()
	swapped := &swapLog{Log: log}
	p, _ := project(t, Config{Log: swapped, Pool: pool})
	if err := p.WaitFor(timeout(t), last); err != nil {
		t.Fatal(err)
	}
	swapped.to.Store(older)
	var mismatch *CheckpointError
	until(t, "noticed", func() bool { return errors.As(p.Ready(), &mismatch) })
}

// swapLog becomes another log for all but who tails it already.
type swapLog struct {
	eventlog.Log
	to atomic.Pointer[memlog.Log]
}

func (s *swapLog) now() eventlog.Log {
	if to := s.to.Load(); to != nil {
		return to
	}
	return s.Log
}

func (s *swapLog) Info(ctx context.Context) (eventlog.Info, error) { return s.now().Info(ctx) }

func (s *swapLog) Get(ctx context.Context, seq uint64) (events.Message, error) {
	return s.now().Get(ctx, seq)
}

func TestBadEventFaultsItsSessionAlone(t *testing.T) {
	t.Parallel()
	good := events.Envelope{
		Command: "c", Actor: events.Actor{Kind: events.ActorService, ID: "x"}, Service: events.ServiceSession,
		N: 3, Prev: 2, Time: start, Events: []events.Record{{Type: session.TypeEnded, V: 1, Data: json.RawMessage(`{}`)}},
	}
	encode := func(change func(*events.Envelope)) []byte {
		e := good
		e.Events = append([]events.Record{}, good.Events...)
		change(&e)
		raw, err := e.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	for name, raw := range map[string][]byte{
		"unknown type":    encode(func(e *events.Envelope) { e.Events[0].Type = "session.dreamt" }),
		"unknown version": encode(func(e *events.Envelope) { e.Events[0].V = 2 }),
		"foreign type":    encode(func(e *events.Envelope) { e.Service = events.ServiceRunner }),
		"payload":         encode(func(e *events.Envelope) { e.Events[0].Data = json.RawMessage(`{"outcome":7}`) }),
		"chain":           encode(func(e *events.Envelope) { e.Prev, e.N = 1, 7 }),
		"not an envelope": []byte("\x00\xff junk"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, log := pgtest.Pool(t), newLog()
			s := newScribe(t, log)
			s.create(sid(1))
			subject, err := events.SessionSubject(testTenant, sid(1))
			if err != nil {
				t.Fatal(err)
			}
			seq := log.Plant(subject, raw)
			s.create(sid(2))
			last := log.Plant(subject, encode(func(e *events.Envelope) { e.N, e.Prev = 4, seq }))
			p, stop := project(t, Config{Log: log, Pool: pool})
			if err := p.WaitFor(timeout(t), last); err != nil {
				t.Fatal(err)
			}
			r := reader(t, pool, log)
			faults, err := r.Faults(t.Context(), testTenant)
			if err != nil || len(faults) != 1 || faults[0].Key != sid(1) || faults[0].Seq != seq {
				t.Fatalf("faults: %+v, %v", faults, err)
			}
			for i, n := range map[int]uint64{1: 2, 2: 2} {
				st, err := r.Session(t.Context(), testTenant, sid(i))
				if err != nil || st.N != n {
					t.Errorf("session %d: n %d, %v", i, st.N, err)
				}
			}
			var kept []byte
			if err := pool.QueryRow(t.Context(), "SELECT raw FROM envelopes WHERE seq = $1", int64(seq)).Scan(&kept); err != nil || !bytes.Equal(kept, raw) {
				t.Errorf("kept %q of %q, %v", kept, raw, err)
			}
			stop()
			same(t, "with a fault", summed(t, pool), fresh(t, log, last))
		})
	}
}

// A row that Postgres refuses faults its session, whatever batch it is in.
func TestRefusedRowFaultsItsSessionAlone(t *testing.T) {
	t.Parallel()
	pool, log := pgtest.Pool(t), newLog()
	if _, err := pool.Exec(t.Context(), "ALTER TABLE messages ADD CHECK (id <> 'poison')"); err != nil {
		t.Fatal(err)
	}
	s := newScribe(t, log)
	s.create(sid(1))
	s.create(sid(2))
	bad := s.say(sid(1), events.ServiceSession, session.MessageReceived{MessageID: "poison", RunID: "r", Content: json.RawMessage(`"x"`)})
	s.ready(sid(1))
	s.ready(sid(2))
	last := s.create(sid(3))
	p, _ := project(t, Config{Log: log, Pool: pool})
	if err := p.WaitFor(timeout(t), last); err != nil {
		t.Fatal(err)
	}
	r := reader(t, pool, log)
	faults, err := r.Faults(t.Context(), testTenant)
	if err != nil || len(faults) != 1 || faults[0].Seq != bad {
		t.Fatalf("faults: %+v, %v", faults, err)
	}
	for i, phase := range map[int]session.Phase{1: session.PhasePending, 2: session.PhaseReady, 3: session.PhasePending} {
		if st, err := r.Session(t.Context(), testTenant, sid(i)); err != nil || st.Phase != phase {
			t.Errorf("session %d: %s, %v", i, st.Phase, err)
		}
	}
	if l, err := r.Audit(t.Context(), testTenant, AuditFilter{Session: sid(1)}, Page{}); err != nil || len(l.Items) != 6 {
		t.Errorf("audit of the faulted session: %d entries, %v", len(l.Items), err)
	}
}
