// Package deadlines acts when a time in a session's state has come.
//
// A deadline is a field of the state and nothing else: no timer is held for a
// session, so none can be lost with its process. A view lists what is due; the
// sweep reads it once a second and has each deadline handled, which sends a
// command. The deadline is checked again where that command is decided, so a view
// that lags, or two sweeps at once, do no harm. What came due while everything was
// down is due at the first reading, which is at the start.
package deadlines

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
)

// Due is a deadline that has passed, and whose. Key is the call's id for approval
// and execution.
type Due struct {
	Tenant  string
	Session string
	Kind    session.DeadlineKind
	Key     string
	At      time.Time
}

// Reader lists what is due, earliest first and at most limit; projections.Reader
// does, from Postgres.
type Reader interface {
	Due(ctx context.Context, service events.Service, now time.Time, limit int) ([]Due, error)
}

// Sweep has a service's deadlines handled.
type Sweep struct {
	Reader  Reader
	Service events.Service
	// Handle acts on one deadline, which may have been acted on before: the view
	// lags. After an error it is tried again, less and less often, for as long as
	// the deadline is due.
	Handle func(ctx context.Context, tenant, session string, d session.Deadline) error
	Logger *slog.Logger
	// Every is the time between readings; 0 means 1 s.
	Every time.Duration
	// Workers is how many deadlines are handled at a time; 0 means 16.
	Workers int
	// Limit is how many are read at a time, and so handled in the time of Every at
	// most; 0 means 2000.
	Limit int
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Validate says what is missing or negative.
func (s Sweep) Validate() error {
	switch {
	case s.Reader == nil:
		return errors.New("deadlines: no Reader")
	case s.Service == "":
		return errors.New("deadlines: no Service")
	case s.Handle == nil:
		return errors.New("deadlines: no Handle")
	case s.Logger == nil:
		return errors.New("deadlines: no Logger")
	case s.Every < 0, s.Workers < 0, s.Limit < 0:
		return errors.New("deadlines: negative Every, Workers or Limit")
	}
	return nil
}

// Run sweeps until ctx ends, and then returns nil once nothing is being handled. A
// reader that fails (Postgres is down) delays deadlines and ends nothing.
func (s Sweep) Run(ctx context.Context) error {
	if err := s.Validate(); err != nil {
		return err
	}
	s = s.withDefaults()
	log := s.Logger.With("service", s.Service)
	tick := time.NewTicker(s.Every)
	defer tick.Stop()
	failing := failures{}
	unread := false
	for {
		due, err := s.Reader.Due(ctx, s.Service, s.Now(), s.Limit)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !unread:
			log.Warn("deadlines can't be read", "error", err)
		case err == nil && unread:
			log.Info("deadlines are read again")
		}
		unread = err != nil
		if !unread {
			s.handle(ctx, log, due, failing)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (s Sweep) withDefaults() Sweep {
	if s.Every == 0 {
		s.Every = time.Second
	}
	if s.Workers == 0 {
		s.Workers = 16
	}
	if s.Limit == 0 {
		s.Limit = 2000
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	return s
}

// handle has each deadline handled, Workers at a time, and waits for all.
func (s Sweep) handle(ctx context.Context, log *slog.Logger, due []Due, failing failures) {
	failing.keep(due)
	slots := make(chan struct{}, s.Workers)
	results := make([]error, len(due))
	tried := make([]bool, len(due))
	var running sync.WaitGroup
	for i, d := range due {
		if ctx.Err() != nil {
			break
		}
		if s.Now().Before(failing[d.identity()].again) {
			continue
		}
		tried[i] = true
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			results[i] = s.call(ctx, d)
		})
	}
	running.Wait()
	for i, d := range due {
		switch {
		case !tried[i], ctx.Err() != nil:
		case results[i] == nil:
			delete(failing, d.identity())
		default:
			if failing.add(d, s.Now(), s.Every) == 1 {
				log.Warn("deadline not handled", "tenant", d.Tenant, "session", d.Session,
					"kind", d.Kind, "key", d.Key, "at", d.At, "error", results[i])
			}
		}
	}
}

// call turns a panic into the failure of one deadline.
func (s Sweep) call(ctx context.Context, d Due) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return s.Handle(ctx, d.Tenant, d.Session, session.Deadline{Kind: d.Kind, Key: d.Key, Service: s.Service, At: d.At})
}

// maxPause bounds the time between two tries of a deadline that fails.
const maxPause = time.Minute

// failures are the deadlines that are due and failed, so that one that can't be
// handled neither takes a worker each second nor fills the log.
type failures map[identity]failure

// identity is a Due as a key: two equal times may differ in their location.
type identity struct {
	tenant, session, key string
	kind                 session.DeadlineKind
	at                   int64
}

func (d Due) identity() identity {
	return identity{tenant: d.Tenant, session: d.Session, key: d.Key, kind: d.Kind, at: d.At.UnixNano()}
}

type failure struct {
	times int
	again time.Time
}

// add counts a failure and gives how many there were in a row.
func (f failures) add(d Due, now time.Time, every time.Duration) int {
	id := d.identity()
	times := f[id].times + 1
	f[id] = failure{times: times, again: now.Add(min(every<<min(times-1, 6), maxPause))}
	return times
}

// keep forgets what isn't due any more.
func (f failures) keep(due []Due) {
	if len(f) == 0 {
		return
	}
	still := make(map[identity]struct{}, len(due))
	for _, d := range due {
		still[d.identity()] = struct{}{}
	}
	maps.DeleteFunc(f, func(id identity, _ failure) bool { _, ok := still[id]; return !ok })
}
