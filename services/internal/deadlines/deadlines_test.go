package deadlines_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/deadlines"
)

// view is a reader over a list, as Postgres would answer.
type view struct {
	mu   sync.Mutex
	all  []deadlines.Due
	err  error
	read int
}

func (v *view) Due(_ context.Context, service events.Service, now time.Time, limit int) ([]deadlines.Due, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.read++
	if service != events.ServiceSession {
		return nil, errors.New("asked for another service's")
	}
	var due []deadlines.Due
	for _, d := range v.all {
		if !d.At.After(now) && len(due) < limit {
			due = append(due, d)
		}
	}
	return due, v.err
}

func (v *view) remove(id string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i, d := range v.all {
		if d.Session == id {
			v.all = append(v.all[:i], v.all[i+1:]...)
			return
		}
	}
}

func (v *view) fail(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.err = err
}

func (v *view) reads() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.read
}

// logged is a log that a test reads.
type logged struct {
	mu sync.Mutex
	strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Builder.Write(p)
}

func (l *logged) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.String(), text)
}

func run(t *testing.T, s deadlines.Sweep) (stop func()) {
	t.Helper()
	if s.Logger == nil {
		s.Logger = slog.New(slog.DiscardHandler)
	}
	s.Service = events.ServiceSession
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	}
}

// What is overdue is handled at once, what comes due within a second of its time,
// with what the state said of it.
func TestHandledWhenDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		v := &view{all: []deadlines.Due{
			{Tenant: "acme", Session: "s-1", Kind: session.DeadlineMax, At: began.Add(-time.Hour)},
			{Tenant: "acme", Session: "s-2", Kind: session.DeadlineApproval, Key: "s-2.c-1", At: began.Add(5500 * time.Millisecond)},
		}}
		type handled struct {
			tenant, id string
			d          session.Deadline
			after      time.Duration
		}
		got := make(chan handled, 10)
		stop := run(t, deadlines.Sweep{Reader: v, Handle: func(_ context.Context, tenant, id string, d session.Deadline) error {
			v.remove(id)
			got <- handled{tenant, id, d, time.Since(began)}
			return nil
		}})
		defer stop()
		synctest.Wait()
		first := <-got
		if first.id != "s-1" || first.tenant != "acme" || first.after != 0 || first.d.Kind != session.DeadlineMax ||
			first.d.Service != events.ServiceSession || !first.d.At.Equal(began.Add(-time.Hour)) {
			t.Errorf("first: %+v", first)
		}
		second := <-got
		if second.id != "s-2" || second.d.Key != "s-2.c-1" || second.after < 5500*time.Millisecond || second.after > 6500*time.Millisecond {
			t.Errorf("second: %+v", second)
		}
	})
}

// A view that lags lists what was handled: it is handled again, once a second.
func TestLaggingView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &view{all: []deadlines.Due{{Session: "s-1", At: time.Now()}}}
		var n atomic.Int32
		stop := run(t, deadlines.Sweep{Reader: v, Handle: func(context.Context, string, string, session.Deadline) error {
			n.Add(1)
			return nil
		}})
		time.Sleep(3500 * time.Millisecond) //nolint:forbidigo // the bubble's time
		stop()
		if n.Load() != 4 {
			t.Errorf("handled %d times in 3.5 s, want 4", n.Load())
		}
	})
}

func TestReaderFailureIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &view{err: errors.New("no database")}
		log := &logged{}
		stop := run(t, deadlines.Sweep{
			Reader: v, Logger: slog.New(slog.NewTextHandler(log, nil)),
			Handle: func(context.Context, string, string, session.Deadline) error { return nil },
		})
		defer stop()
		time.Sleep(10500 * time.Millisecond) //nolint:forbidigo // the bubble's time
		if v.reads() != 11 || log.count("can't be read") != 1 {
			t.Errorf("%d readings, %d lines, want 11 and 1", v.reads(), log.count("can't be read"))
		}
		v.fail(nil)
		time.Sleep(2 * time.Second) //nolint:forbidigo // the bubble's time
		v.fail(errors.New("again"))
		time.Sleep(2 * time.Second) //nolint:forbidigo // the bubble's time
		if log.count("are read again") != 1 || log.count("can't be read") != 2 {
			t.Errorf("log:\n%s", log.String())
		}
	})
}

// What fails is tried again less and less often, said once, and holds nobody up.
func TestFailingDeadlineBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &view{all: []deadlines.Due{{Session: "s-bad", At: time.Now()}, {Session: "s-good", At: time.Now()}}}
		log := &logged{}
		var bad, good atomic.Int32
		stop := run(t, deadlines.Sweep{
			Reader: v, Workers: 1, Logger: slog.New(slog.NewTextHandler(log, nil)),
			Handle: func(_ context.Context, _, id string, _ session.Deadline) error {
				if id == "s-bad" {
					bad.Add(1)
					panic("no such session")
				}
				good.Add(1)
				return nil
			},
		})
		defer stop()
		time.Sleep(60500 * time.Millisecond) //nolint:forbidigo // the bubble's time
		// At 0, 1, 3, 7, 15, 31 and 63 s, were there no end.
		if bad.Load() != 6 || good.Load() != 61 || log.count("not handled") != 1 {
			t.Errorf("bad %d, good %d, said %d times; want 6, 61, 1", bad.Load(), good.Load(), log.count("not handled"))
		}
		v.remove("s-bad")           // somebody else did it
		time.Sleep(2 * time.Second) //nolint:forbidigo // the bubble's time
		v.mu.Lock()
		v.all = append(v.all, deadlines.Due{Session: "s-bad", At: time.Now()})
		v.mu.Unlock()
		time.Sleep(time.Second) //nolint:forbidigo // the bubble's time; not a moment of the sweep
		if bad.Load() != 7 || log.count("not handled") != 2 {
			t.Errorf("a new deadline of the same session: tried %d times, said %d times", bad.Load(), log.count("not handled"))
		}
	})
}

func TestBoundedAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &view{}
		for range 100 {
			v.all = append(v.all, deadlines.Due{Session: "s", At: time.Now()})
		}
		var running, most, n atomic.Int32
		stop := run(t, deadlines.Sweep{Reader: v, Workers: 7, Limit: 30, Handle: func(context.Context, string, string, session.Deadline) error {
			now := running.Add(1)
			for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
			}
			time.Sleep(time.Millisecond) //nolint:forbidigo // the bubble's time
			running.Add(-1)
			n.Add(1)
			return nil
		}})
		time.Sleep(500 * time.Millisecond) //nolint:forbidigo // the bubble's time
		stop()
		if most.Load() != 7 || n.Load() != 30 {
			t.Errorf("%d at a time, %d in all; want 7 and 30", most.Load(), n.Load())
		}
	})
}

// Run ends when its context does, and not before what is being handled has ended.
func TestEndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &view{all: []deadlines.Due{{Session: "s-1", At: time.Now()}}}
		var ended atomic.Bool
		stop := run(t, deadlines.Sweep{Reader: v, Handle: func(ctx context.Context, _, _ string, _ session.Deadline) error {
			<-ctx.Done()
			time.Sleep(time.Second) //nolint:forbidigo // the bubble's time
			ended.Store(true)
			return ctx.Err()
		}})
		synctest.Wait()
		stop()
		if !ended.Load() {
			t.Error("it ended before its handler")
		}
	})
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	good := deadlines.Sweep{
		Reader: &view{}, Service: events.ServiceSession, Logger: slog.New(slog.DiscardHandler),
		Handle: func(context.Context, string, string, session.Deadline) error { return nil },
	}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*deadlines.Sweep){
		"reader":   func(s *deadlines.Sweep) { s.Reader = nil },
		"service":  func(s *deadlines.Sweep) { s.Service = "" },
		"handle":   func(s *deadlines.Sweep) { s.Handle = nil },
		"logger":   func(s *deadlines.Sweep) { s.Logger = nil },
		"negative": func(s *deadlines.Sweep) { s.Every = -1 },
	} {
		bad := good
		spoil(&bad)
		if bad.Run(t.Context()) == nil {
			t.Errorf("%s: it ran", name)
		}
	}
}
