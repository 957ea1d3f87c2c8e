package projections

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/eventlog/memlog"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/migrations/pgtest"
)

// Invariant 8 by rebuild: what is live equals what the log gives, while sessions go
// on and the projector runs.
func TestRebuildEqualsTheLiveOnes(t *testing.T) {
	t.Parallel()
	pool, log := pgtest.Pool(t), newLog()
	s := newScribe(t, log)
	p, _ := project(t, Config{Log: log, Pool: pool})
	last := populate(t, s)
	if err := p.WaitFor(timeout(t), last); err != nil {
		t.Fatal(err)
	}
	var busy sync.WaitGroup
	stop := make(chan struct{})
	busy.Go(func() {
		for i := 100; ; i++ {
			select {
			case <-stop:
				return
			default:
				// One at a time, or nothing could catch up with a log in memory.
				if err := p.WaitFor(timeout(t), s.create(sid(i))); err != nil {
					t.Errorf("session %d: %v", i, err)
					return
				}
			}
		}
	})
	report, err := Rebuild(timeout(t), RebuildConfig{Log: log, Pool: pool, BatchSize: 20})
	close(stop)
	busy.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if !report.Compared || !report.Swapped || len(report.Differences) > 0 || report.Seq == 0 || len(report.Tables) == 0 {
		t.Errorf("report: %+v", report)
	}
	// The same projector goes on in what is live now.
	last = s.create(sid(1_000_000))
	if err := p.WaitFor(timeout(t), last); err != nil {
		t.Fatal(err)
	}
	if err := p.Ready(); err != nil {
		t.Errorf("after the swap: %v", err)
	}
	same(t, "after a rebuild", summed(t, pool), fresh(t, log, last))
}

func TestRebuildNamesAndRepairsWhatDiffers(t *testing.T) {
	t.Parallel()
	pool, log := pgtest.Pool(t), newLog()
	last := populate(t, newScribe(t, log))
	p, stop := project(t, Config{Log: log, Pool: pool})
	if err := p.WaitFor(timeout(t), last); err != nil {
		t.Fatal(err)
	}
	stop()
	for _, tamper := range []string{
		"UPDATE audit SET actor = 'user:nobody' WHERE seq = (SELECT max(seq) FROM audit)",
		"DELETE FROM deadlines",
	} {
		if _, err := pool.Exec(t.Context(), tamper); err != nil {
			t.Fatal(err)
		}
	}
	for _, compareOnly := range []bool{true, false} {
		report, err := Rebuild(timeout(t), RebuildConfig{Log: log, Pool: pool, CompareOnly: compareOnly})
		if err != nil {
			t.Fatal(err)
		}
		d := report.Differences
		if len(d) != 2 || d[0].Table != "audit" || d[1].Table != "deadlines" || d[1].Live.Rows != 0 || report.Swapped == compareOnly {
			t.Errorf("compare only %t: %+v", compareOnly, report)
		}
	}
	same(t, "repaired", summed(t, pool), fresh(t, log, last))
}

// A log that was restored under a new epoch is refused until a rebuild.
func TestRebuildTakesUpAnotherLog(t *testing.T) {
	t.Parallel()
	pool, log := pgtest.Pool(t), newLog()
	p, stop := project(t, Config{Log: log, Pool: pool})
	if err := p.WaitFor(timeout(t), populate(t, newScribe(t, log))); err != nil {
		t.Fatal(err)
	}
	stop()
	restored := memlog.New(eventlog.Genesis{LogID: "l1", Epoch: "e2"})
	s := newScribe(t, restored)
	last := s.create(sid(7))
	p, _ = project(t, Config{Log: restored, Pool: pool})
	var mismatch *CheckpointError
	until(t, "refused", func() bool { return errors.As(p.Ready(), &mismatch) })

	report, err := Rebuild(timeout(t), RebuildConfig{Log: restored, Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	if report.Compared || report.Mismatch == "" || !report.Swapped || report.Epoch != "e2" || report.Seq != last {
		t.Errorf("report: %+v", report)
	}
	until(t, "ready again", func() bool { return p.Ready() == nil })
	if err := p.WaitFor(timeout(t), s.create(sid(8))); err != nil {
		t.Fatal(err)
	}
}

func TestRebuildTakesUpAFault(t *testing.T) {
	t.Parallel()
	pool, log := pgtest.Pool(t), newLog()
	if _, err := pool.Exec(t.Context(), "ALTER TABLE messages ADD CHECK (id <> 'poison')"); err != nil {
		t.Fatal(err)
	}
	s := newScribe(t, log)
	s.create(sid(1))
	last := s.say(sid(1), events.ServiceSession, session.MessageReceived{MessageID: "poison", RunID: "r", Content: []byte(`"x"`)})
	p, _ := project(t, Config{Log: log, Pool: pool})
	if err := p.WaitFor(timeout(t), last); err != nil {
		t.Fatal(err)
	}
	report, err := Rebuild(timeout(t), RebuildConfig{Log: log, Pool: pool}) // the new schema has no such check
	if err != nil || len(report.Differences) == 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	if err := p.WaitFor(timeout(t), s.say(sid(1), events.ServiceSession, session.ActivityNoted{Holder: "h", Until: start.Add(time.Hour)})); err != nil {
		t.Fatal(err)
	}
	r := reader(t, pool, log)
	if n, err := r.FaultCount(t.Context()); err != nil || n != 0 {
		t.Errorf("%d faults, %v", n, err)
	}
	if st, err := r.Session(t.Context(), testTenant, sid(1)); err != nil || st.N != 4 {
		t.Errorf("session: n %d, %v", st.N, err)
	}
}

func TestOneRebuildAtATime(t *testing.T) {
	t.Parallel()
	pool, log := pgtest.Pool(t), newLog()
	other, err := takeLead(t.Context(), pool, "rebuild", time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Rebuild(t.Context(), RebuildConfig{Log: log, Pool: pool}); !errors.Is(err, ErrRebuilding) {
		t.Errorf("beside another rebuild: %v", err)
	}
	other.release(t.Context())
}
