// Package live reads how things are now from the log itself, and waits for them
// to change.
//
// Reads are folds confirmed by a leader read, so an answer never comes from a
// state that another process has outdated, and it comes while Postgres is down.
// Who waits sleeps until something happened to its session, and then reads. What
// happens comes from the hub, which has the gateway's one tail of EVENTS.
//
//	hub's tail ── Seen ──▶ wake the subject's waiters ──▶ Wait: read, done? else sleep again
package live

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/policy"
	"github.com/holdfast-io/holdfast/events/runtime"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/agentinput"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

// Config of a Live.
type Config struct {
	// Log is EVENTS, Epoch its genesis' epoch.
	Log   eventlog.Log
	Epoch string
	// Copy shortens cold loads; nil does without.
	Copy eventlog.Copy
}

// Live reads and waits. It is safe for concurrent use.
type Live struct {
	sessions *eventlog.Store[*session.State]
	threads  *eventlog.Store[*agentinput.Thread]
	runtimes *eventlog.Store[*Definition[runtime.Spec]]
	policies *eventlog.Store[*Definition[policy.Spec]]

	mu       sync.Mutex
	waiters  map[string]map[chan struct{}]struct{}
	stopping chan struct{}
	stopOnce sync.Once
}

// threadCache is smaller than that of states: conversations are large, and only
// agents that ask for their input need them.
const threadCache = 128

// New makes a Live. Reading works at once, waiting while somebody calls Seen.
func New(cfg Config) *Live {
	return &Live{
		sessions: eventlog.NewStore(eventlog.Config[*session.State]{
			Log: cfg.Log, New: session.New, Copy: cfg.Copy, Epoch: cfg.Epoch,
		}),
		threads: eventlog.NewStore(eventlog.Config[*agentinput.Thread]{
			Log: cfg.Log, New: agentinput.NewThread, Copy: cfg.Copy, Epoch: cfg.Epoch, CacheSize: threadCache,
		}),
		runtimes: eventlog.NewStore(eventlog.Config[*Definition[runtime.Spec]]{
			Log: cfg.Log, New: newRuntime, Copy: cfg.Copy, Epoch: cfg.Epoch,
		}),
		policies: eventlog.NewStore(eventlog.Config[*Definition[policy.Spec]]{
			Log: cfg.Log, New: newPolicy, Copy: cfg.Copy, Epoch: cfg.Epoch,
		}),
		waiters:  map[string]map[chan struct{}]struct{}{},
		stopping: make(chan struct{}),
	}
}

// Session hands a session's state to view; a session that isn't in the tenant is
// a not-found problem. The state may be read only inside view.
func (l *Live) Session(ctx context.Context, tenant, id string, view func(*session.State) error) error {
	subject, err := events.SessionSubject(tenant, id)
	if err != nil {
		return noSession()
	}
	return l.sessions.Read(ctx, subject, func(s eventlog.Snapshot[*session.State]) error {
		if !s.Exists() {
			return noSession()
		}
		return view(s.State)
	})
}

// Thread is Session with the conversation.
func (l *Live) Thread(ctx context.Context, tenant, id string, view func(*agentinput.Thread) error) error {
	subject, err := events.SessionSubject(tenant, id)
	if err != nil {
		return noSession()
	}
	return l.threads.Read(ctx, subject, func(s eventlog.Snapshot[*agentinput.Thread]) error {
		if !s.Exists() {
			return noSession()
		}
		return view(s.State)
	})
}

func noSession() error {
	return problem.New(api.CodeNotFound, "There is no such session in this tenant.")
}

// Runtime gives a runtime's revision, the newest for 0. A runtime that isn't
// there, or was removed and is asked for by name alone, is runtime-not-found.
func (l *Live) Runtime(ctx context.Context, tenant, name string, revision uint64) (Revision[runtime.Spec], error) {
	return read(ctx, l.runtimes, events.AggregateRuntime, tenant, name, revision, api.CodeRuntimeNotFound)
}

// Policy gives a policy's revision, as Runtime does.
func (l *Live) Policy(ctx context.Context, tenant, name string, revision uint64) (Revision[policy.Spec], error) {
	return read(ctx, l.policies, events.AggregatePolicy, tenant, name, revision, api.CodePolicyNotFound)
}

// Wait reads a session until done says so, as often as something happened to it,
// for at most the given time. It gives no error when the time is over: the caller
// reads once more and answers how things are. A gateway that stops ends all waits.
func (l *Live) Wait(ctx context.Context, tenant, id string, atMost time.Duration, done func(*session.State) bool) error {
	subject, err := events.SessionSubject(tenant, id)
	if err != nil {
		return noSession()
	}
	woken, release := l.subscribe(subject)
	defer release()
	over := time.NewTimer(atMost)
	defer over.Stop()
	for {
		finished := false
		if err := l.Session(ctx, tenant, id, func(s *session.State) error {
			finished = done(s)
			return nil
		}); err != nil || finished {
			return err
		}
		select {
		case <-woken:
		case <-over.C:
			return nil
		case <-l.stopping:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// subscribe gives a channel that holds a word when something happened on the
// subject since it was last read, and what takes the subscription back.
func (l *Live) subscribe(subject string) (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiters[subject] == nil {
		l.waiters[subject] = map[chan struct{}]struct{}{}
	}
	l.waiters[subject][ch] = struct{}{}
	return ch, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.waiters[subject], ch)
		if len(l.waiters[subject]) == 0 {
			delete(l.waiters, subject)
		}
	}
}

// Seen is told every message of the log, in order, and wakes who waits for what it
// is about.
func (l *Live) Seen(m events.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for ch := range l.waiters[m.Subject] {
		select {
		case ch <- struct{}{}:
		default: // one word is waiting already
		}
	}
}

// Stop ends all waits, now and later: who waits gets how things are.
func (l *Live) Stop() { l.stopOnce.Do(func() { close(l.stopping) }) }
