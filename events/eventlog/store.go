package eventlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast-io/holdfast/events"
)

// Aggregate is a fold: a State that messages are applied to in order. After an
// error it is of no use any more.
type Aggregate interface {
	Apply(events.Message) error
}

// Ending is an Aggregate that comes to an end. Stores keep few of those that are over in
// memory; whatever still happens to one loads it anew.
type Ending interface {
	Aggregate
	Over() bool
}

// Copy is a source of a subject's messages that is faster than walking the log:
// the Postgres copy. It may lag or be down; what it gives is checked against the
// log's own chain. Envelopes come in order from the subject's first.
type Copy interface {
	Envelopes(ctx context.Context, epoch, subject string) ([]events.Message, error)
}

// Config of a Store.
type Config[A Aggregate] struct {
	Log Log
	// New gives the fold's start.
	New func() A
	// Service is who appends; "" for a store that only reads.
	Service events.Service
	// Copy may be nil.
	Copy Copy
	// CacheSize is how many aggregates stay in memory; 0 means 4096.
	CacheSize int
	// CacheBytes bounds them by the data of the events that they are folded from; 0
	// means 256 MiB.
	CacheBytes int
	// CacheIdle is for how long one stays that isn't used; 0 means 5 minutes. Loading it
	// again costs some milliseconds.
	CacheIdle time.Duration
	// Now is the clock that decisions get; nil means time.Now.
	Now func() time.Time
	// Epoch is passed to Copy: a copy of another epoch is of no use.
	Epoch string
}

// Store loads aggregates and runs commands on them, one at a time for each
// subject.
type Store[A Aggregate] struct {
	cfg   Config[A]
	locks keyLocks
	cache *cache[A]
	// copying holds a slot for each reading of the copy that is under way.
	copying chan struct{}
	// copyAgain is when the copy may be asked again, in Unix nanoseconds.
	copyAgain atomic.Int64
}

// Snapshot is an aggregate as of a sequence. State is shared with the cache: only
// read it, and only inside the function it was handed to.
type Snapshot[A Aggregate] struct {
	State  A
	Seq, N uint64
}

// Exists says whether the subject has any message.
func (s Snapshot[A]) Exists() bool { return s.N > 0 }

// entry is a cached aggregate with its chain.
type entry[A Aggregate] struct {
	state    A
	seq, n   uint64
	bytes    int // of the data of its events
	commands map[string]ref
}

// ref is where a command's envelope stands.
type ref struct{ n, seq uint64 }

// NewStore makes a Store.
func NewStore[A Aggregate](cfg Config[A]) *Store[A] {
	if cfg.CacheSize == 0 {
		cfg.CacheSize = 4096
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.CacheBytes == 0 {
		cfg.CacheBytes = 256 << 20
	}
	if cfg.CacheIdle == 0 {
		cfg.CacheIdle = 5 * time.Minute
	}
	// Not cfg.Now: that is the clock of decisions, which may step.
	kept := newCache[A](cfg.CacheSize, cfg.CacheBytes, cfg.CacheIdle, time.Now)
	return &Store[A]{cfg: cfg, cache: kept, copying: make(chan struct{}, copiesAtOnce)}
}

// Command says who wants something done, under which id.
type Command struct {
	// ID is the command's; the same id is done at most once on a subject.
	ID    string
	Actor events.Actor
	Cause string
	Trace string
}

// Result is the answer to a command.
type Result struct {
	// N and Seq are the version of the command's last event and the sequence of
	// its message; of the state that was read where nothing was appended.
	N, Seq uint64
	// Records are the command's events as stored; none where nothing was to do.
	Records []events.Record
	// Repeated says that the command had been done before this call. Then Execute
	// gives no refusal: the answer has to be read off the records.
	Repeated bool
}

// Decide is a pure decider with its command bound: what to append, nothing for
// "already so", or a refusal. A refusal may come with records: then they are
// appended (a refused answer is recorded) and the refusal is still the answer.
type Decide[A Aggregate] func(state A, now time.Time) ([]events.Record, error)

// Execute runs one command: load, decide, append, and again on conflict. A
// refusal by decide comes back as its own error, after a leader read has
// confirmed the state it was decided on. Errors besides: *OutcomeUnknownError,
// *NoRoomError, *ChainError, those of the fold, of ctx and of the log.
func (s *Store[A]) Execute(ctx context.Context, subject string, cmd Command, decide Decide[A]) (Result, error) {
	unlock, err := s.locks.lock(ctx, subject)
	if err != nil {
		return Result{}, err
	}
	defer unlock()

	e, cached := s.cache.Get(subject)
	fresh := false        // whether e is confirmed by a leader read
	var tried []attempted // what this call has sent
	for attempt := 0; ; attempt++ {
		if !cached || attempt > 0 {
			if e, err = s.refresh(ctx, subject, e); err != nil {
				return Result{}, unknownIfTried(tried, subject, cmd, err)
			}
			cached, fresh = true, true
		}
		if done, ok := e.commands[cmd.ID]; ok {
			res, err := s.repeated(ctx, subject, cmd, done)
			if errors.Is(err, errNotThere) && !fresh {
				e = nil // the cache is of a log that was restored since
				continue
			}
			if err != nil {
				return Result{}, unknownIfTried(tried, subject, cmd, err)
			}
			return ours(tried, res)
		}
		// As it is read back, from the log and from views in Postgres: to the
		// microsecond, without a monotonic clock.
		now := s.cfg.Now().UTC().Truncate(time.Microsecond)
		records, refusal := decide(e.state, now)
		if len(records) == 0 {
			if !fresh {
				continue // confirm by a leader read, then decide again
			}
			return Result{N: e.n, Seq: e.seq}, refusal
		}
		res, err := s.append(ctx, subject, e, cmd, records, now)
		if _, conflict := errors.AsType[*ConflictError](err); conflict {
			tried = append(tried, attempted{records, refusal})
			if err := pause(ctx, attempt); err != nil {
				return Result{}, unknownIfTried(tried, subject, cmd, err)
			}
			continue
		}
		if _, full := errors.AsType[*NoRoomError](err); full && !fresh {
			continue // what is in the log already needs no room: look for it there
		}
		if err != nil {
			s.cache.Remove(subject)
			return Result{}, err
		}
		return res, refusal
	}
}

// attempted is what one append of this call held, and the refusal beside it.
type attempted struct {
	records []events.Record
	refusal error
}

// ours gives the answer to a command found in the log: where it is what this call
// has sent itself and whose acknowledgement was lost, the answer is the same as if
// it had come.
func ours(tried []attempted, found Result) (Result, error) {
	for _, t := range tried {
		if slices.EqualFunc(t.records, found.Records, sameRecord) {
			found.Repeated = false
			return found, t.refusal
		}
	}
	return found, nil
}

func sameRecord(a, b events.Record) bool {
	return a.Type == b.Type && a.V == b.V && bytes.Equal(a.Data, b.Data)
}

// unknownIfTried keeps a failure after an attempt from looking like a refusal:
// the attempt may have been what the conflict met.
func unknownIfTried(tried []attempted, subject string, cmd Command, err error) error {
	if len(tried) == 0 {
		return err
	}
	return &OutcomeUnknownError{Subject: subject, Command: cmd.ID, Err: err}
}

func (s *Store[A]) append(
	ctx context.Context, subject string, e *entry[A], cmd Command, records []events.Record, now time.Time,
) (Result, error) {
	env := events.Envelope{
		Command: cmd.ID, Actor: cmd.Actor, Service: s.cfg.Service, Cause: cmd.Cause, Trace: cmd.Trace,
		N: e.n + 1, Prev: e.seq, Time: now, Events: records,
	}
	seq, err := s.cfg.Log.Append(ctx, subject, env)
	if err != nil {
		return Result{}, err
	}
	m := events.Message{Subject: subject, Seq: seq, Envelope: env}
	if err := e.apply(m); err != nil {
		s.cache.Remove(subject)
		return Result{}, fmt.Errorf("%s: decided what its own fold refuses: %w", subject, err)
	}
	s.cache.Add(subject, e)
	return Result{N: env.LastN(), Seq: seq, Records: records}, nil
}

// errNotThere says that a command's envelope isn't where it was seen.
var errNotThere = errors.New("the command's envelope is not where it was")

// repeated answers a command that is in the log already. Its envelope is read
// where it stands, so no further confirmation is needed: what is stored stays
// stored, and a log that was restored from an older copy shows.
func (s *Store[A]) repeated(ctx context.Context, subject string, cmd Command, done ref) (Result, error) {
	m, err := s.cfg.Log.Get(ctx, done.seq)
	switch {
	case errors.Is(err, ErrNotFound), err == nil && (m.Subject != subject || m.Envelope.Command != cmd.ID):
		s.cache.Remove(subject)
		return Result{}, fmt.Errorf("%s at %d: %w", subject, done.seq, errNotThere)
	case err == nil:
		m, err = s.cfg.Log.Whole(ctx, m)
	}
	if err != nil {
		return Result{}, fmt.Errorf("read what command did at %d: %w", done.seq, err)
	}
	return Result{N: m.Envelope.LastN(), Seq: m.Seq, Records: m.Envelope.Events, Repeated: true}, nil
}

// Read hands the aggregate, confirmed by a leader read, to view.
func (s *Store[A]) Read(ctx context.Context, subject string, view func(Snapshot[A]) error) error {
	unlock, err := s.locks.lock(ctx, subject)
	if err != nil {
		return err
	}
	defer unlock()
	e, _ := s.cache.Get(subject)
	if e, err = s.refresh(ctx, subject, e); err != nil {
		return err
	}
	return view(Snapshot[A]{State: e.state, Seq: e.seq, N: e.n})
}

// Forget drops what is cached of a subject.
func (s *Store[A]) Forget(subject string) { s.cache.Remove(subject) }

// pause backs off a little on conflict, with jitter; contention is only between
// processes and small.
func pause(ctx context.Context, attempt int) error {
	d := time.Duration(1+rand.IntN(4)) * time.Millisecond << min(attempt, 6) //nolint:gosec // jitter
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
