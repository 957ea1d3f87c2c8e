package eventlog_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/eventlog/memlog"
	"github.com/holdfast-io/holdfast/events/session"
)

// What one suite can show of every log is in eventlogtest; here is what needs a
// log that is another one from one moment to the next.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const subject = "ev.t1.s.s-1"

// switched is whichever log is set.
type switched struct{ eventlog.Log }

func storeOn(log eventlog.Log) *eventlog.Store[*session.State] {
	return eventlog.NewStore(eventlog.Config[*session.State]{Log: log, New: session.New, Service: events.ServiceSession})
}

func send(run string) eventlog.Decide[*session.State] {
	return func(*session.State, time.Time) ([]events.Record, error) {
		return session.Records(events.ServiceSession, session.MessageReceived{MessageID: "m-" + run, RunID: run, Content: json.RawMessage(`"x"`)})
	}
}

func execute(t *testing.T, s *eventlog.Store[*session.State], id string) eventlog.Result {
	t.Helper()
	cmd := eventlog.Command{ID: id, Actor: events.Actor{Kind: events.ActorPerson, ID: "alice"}}
	res, err := s.Execute(t.Context(), subject, cmd, send("r-"+id))
	if err != nil {
		t.Fatalf("command %s: %v", id, err)
	}
	return res
}

// A log is replaced by one that has another command at the same sequence: what the
// cache holds of the first is neither answered nor shown.
func TestAnotherLogUnderTheCache(t *testing.T) {
	queue := func(t *testing.T, s *eventlog.Store[*session.State]) (runs []string) {
		t.Helper()
		if err := s.Read(t.Context(), subject, func(snap eventlog.Snapshot[*session.State]) error {
			for _, q := range snap.State.Queue {
				runs = append(runs, q.RunID)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return runs
	}
	begin := func(t *testing.T) *eventlog.Store[*session.State] {
		t.Helper()
		first, second := memlog.New(eventlog.Genesis{}), memlog.New(eventlog.Genesis{})
		log := &switched{first}
		s := storeOn(log)
		execute(t, s, "c1")
		execute(t, s, "c2")
		execute(t, storeOn(second), "c1")
		execute(t, storeOn(second), "x2")
		log.Log = second
		return s
	}
	t.Run("a command of the first log is decided anew", func(t *testing.T) {
		s := begin(t)
		if res := execute(t, s, "c2"); res.Repeated || res.N != 3 {
			t.Errorf("%+v; want n 3", res)
		}
		if got := queue(t, s); !slices.Equal(got, []string{"r-c1", "r-x2", "r-c2"}) {
			t.Errorf("the state has %v queued", got)
		}
	})
	t.Run("a read gives the second log's state", func(t *testing.T) {
		if got := queue(t, begin(t)); !slices.Equal(got, []string{"r-c1", "r-x2"}) {
			t.Errorf("the state has %v queued", got)
		}
	})
}

// Commands of one subject wait for each other, no longer than their context; other
// subjects don't wait.
func TestOneAtATimeForASubject(t *testing.T) {
	s := storeOn(memlog.New(eventlog.Genesis{}))
	deciding, goOn, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	cmd := eventlog.Command{ID: "slow", Actor: events.Actor{Kind: events.ActorPerson, ID: "alice"}}
	go func() {
		_, err := s.Execute(t.Context(), subject, cmd, func(st *session.State, now time.Time) ([]events.Record, error) {
			close(deciding)
			<-goOn
			return send("r-slow")(st, now)
		})
		done <- err
	}()
	<-deciding
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Execute(ended, subject, cmd, send("r")); !errors.Is(err, context.Canceled) {
		t.Errorf("a command behind another: %v", err)
	}
	if err := s.Read(ended, subject, func(eventlog.Snapshot[*session.State]) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a read behind a command: %v", err)
	}
	if _, err := s.Execute(t.Context(), "ev.t1.s.s-2", cmd, send("r")); err != nil {
		t.Errorf("a command on another subject: %v", err)
	}
	close(goOn)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// crowded is a copy that notes how many read it at once, and lets them go on once as
// many as may have come.
type crowded struct {
	come chan struct{}
	goOn chan struct{}
	now  atomic.Int64
	most atomic.Int64
}

// Envelopes implements eventlog.Copy.
func (c *crowded) Envelopes(ctx context.Context, _, _ string) ([]events.Message, error) {
	n := c.now.Add(1)
	defer c.now.Add(-1)
	for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
	}
	c.come <- struct{}{}
	select {
	case <-c.goOn:
	case <-ctx.Done():
	}
	return nil, ctx.Err()
}

// Of a herd of loads few read the copy at a time, all come to their end, and one that
// waits too long does without.
func TestFewReadTheCopyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := memlog.New(eventlog.Genesis{})
		const herd, few = 40, 4
		cmd := eventlog.Command{ID: "c1", Actor: events.Actor{Kind: events.ActorPerson, ID: "alice"}}
		subjectOf := func(i int) string { return fmt.Sprintf("ev.t1.s.s-%d", i) }
		for i := range herd {
			if _, err := storeOn(log).Execute(t.Context(), subjectOf(i), cmd, send("r")); err != nil {
				t.Fatal(err)
			}
		}
		copied := &crowded{come: make(chan struct{}, herd), goOn: make(chan struct{})}
		s := eventlog.NewStore(eventlog.Config[*session.State]{Log: log, New: session.New, Service: events.ServiceSession, Copy: copied})
		var reads sync.WaitGroup
		for i := range herd {
			reads.Go(func() {
				err := s.Read(t.Context(), subjectOf(i), func(snap eventlog.Snapshot[*session.State]) error {
					if snap.N != 1 {
						t.Errorf("session %d is at n %d", i, snap.N)
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		for range 3 * few { // some in turn, and the rest after they have waited
			<-copied.come
			copied.goOn <- struct{}{}
		}
		reads.Wait()
		if most := copied.most.Load(); most != few {
			t.Errorf("%d read the copy at once, want %d", most, few)
		}
	})
}
