package projections

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Config of a Projector.
type Config struct {
	// Log is what is projected, Pool where to; its connections' search_path decides
	// which schema of read models (migrations.SearchPath).
	Log  eventlog.Log
	Pool *pgxpool.Pool
	// BatchSize is how many messages one transaction takes at most; 0 means 8000.
	BatchSize int
	// BatchWait is how long a transaction waits for more messages at most, and
	// BatchIdle how long it waits for the next one; 0 means 25 ms and 1 ms.
	BatchWait, BatchIdle time.Duration
	// CheckEvery is how often the log is asked whether it still has what has been
	// projected, and a standby whether it may lead; 0 means 5 s and a fifth of it.
	CheckEvery time.Duration
	// CacheSize is how many sessions' folds stay in memory; 0 means 4096.
	CacheSize int
	// Logger gets what goes wrong and how it goes on; nil discards.
	Logger *slog.Logger
}

// Validate fills in what is left out. It names what is missing.
func (c *Config) Validate() error {
	if c.Log == nil || c.Pool == nil {
		return errors.New("projector: needs a log and a pool")
	}
	if c.BatchSize < 0 || c.BatchWait < 0 || c.BatchIdle < 0 || c.CheckEvery < 0 || c.CacheSize < 0 {
		return errors.New("projector: sizes and times can't be negative")
	}
	c.BatchSize = orDefault(c.BatchSize, 8000)
	c.BatchWait = orDefault(c.BatchWait, 25*time.Millisecond)
	c.BatchIdle = orDefault(c.BatchIdle, time.Millisecond)
	c.CheckEvery = orDefault(c.CheckEvery, 5*time.Second)
	c.CacheSize = orDefault(c.CacheSize, 4096)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

func orDefault[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// Projector keeps the read models of EVENTS up to date. Any number may run.
type Projector struct {
	cfg   Config
	folds *folds
	*progress
}

// NewProjector makes a Projector; it does nothing before Run.
func NewProjector(cfg Config) (*Projector, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Projector{cfg: cfg, progress: newProgress()}, nil
}

// Run projects until ctx ends, whatever happens in between: it tries again after
// any failure and says by Ready what stands in the way. It gives nil.
func (p *Projector) Run(ctx context.Context) error {
	persist(ctx, p.progress, p.cfg.Logger, p.lead)
	return nil
}

// persist calls work again whenever it fails, backing off while it gets nowhere,
// until ctx ends.
func persist(ctx context.Context, at *progress, log *slog.Logger, work func(context.Context) error) {
	const first, most = 50 * time.Millisecond, 3 * time.Second
	delay := first
	for {
		before := at.Position()
		err := work(ctx)
		if ctx.Err() != nil {
			at.set(errStopped)
			return
		}
		if at.Position() != before {
			delay = first
		}
		if errors.Is(err, errFenced) {
			log.Info("another projector has moved the checkpoint, starting from there")
		} else {
			at.set(err)
			log.Warn("projection interrupted, trying again", "error", err, "delay", delay)
		}
		if !sleep(ctx, delay/2+rand.N(delay)) { //nolint:gosec // jitter
			at.set(errStopped)
			return
		}
		delay = min(2*delay, most)
	}
}

var errStopped = errors.New("the projector has stopped")

// sleep says whether the time passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// lead waits for the lead, checks that the log fits, and projects from the
// checkpoint until something fails.
func (p *Projector) lead(ctx context.Context) error {
	l, err := takeLead(ctx, p.cfg.Pool, checkpointEvents, p.cfg.CheckEvery/5, func(conn *pgx.Conn) {
		if cp, ok, err := readCheckpoint(ctx, conn); err == nil && ok {
			p.reached(cp.seq)
			p.set(fits(ctx, p.cfg.Log, cp))
		}
	})
	if err != nil {
		return err
	}
	defer l.release(ctx)
	cp, err := openCheckpoint(ctx, l.conn, p.cfg.Log)
	if err != nil {
		return err
	}
	if p.folds == nil {
		p.folds = newFolds(p.cfg.Log, cp.epoch, NewEnvelopes(p.cfg.Pool), p.cfg.CacheSize)
	}
	w := writer{log: p.cfg.Logger, db: l.conn, folds: p.folds, at: cp, reached: p.reached}
	p.reached(cp.seq)
	p.set(nil)
	if err := w.heal(ctx, NewEnvelopes(p.cfg.Pool)); err != nil {
		return err
	}
	for {
		err := p.pipeline(ctx, &w)
		var refused *refusedError
		if !errors.As(err, &refused) {
			return err
		}
		// One of the rows is bad: find its message by going one at a time.
		if err := p.carefully(ctx, &w, refused.upTo); err != nil {
			return err
		}
	}
}

// tail hands what a tail gives to a channel.
func tail[M any](ctx context.Context, to chan<- M, run func(func(M) error) error) error {
	err := run(func(m M) error {
		select {
		case to <- m:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if err == nil {
		err = errors.New("ended by itself")
	}
	return fmt.Errorf("tail: %w", err)
}

// collect takes one message and what follows it closely: when the log is quiet a
// message is projected at once, under load batches grow by themselves.
func collect[M any](ctx context.Context, from <-chan M, size int, wait, idle time.Duration) ([]M, error) {
	var ms []M
	select {
	case m := <-from:
		ms = append(ms, m)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	full := time.NewTimer(wait)
	defer full.Stop()
	quiet := time.NewTimer(idle)
	defer quiet.Stop()
	for len(ms) < size {
		select {
		case m := <-from:
			ms = append(ms, m)
			continue
		default:
		}
		quiet.Reset(idle)
		select {
		case m := <-from:
			ms = append(ms, m)
		case <-quiet.C:
			return ms, nil
		case <-full.C:
			return ms, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return ms, nil
}

// watch asks now and then whether the log still is the one that was projected: a
// tail over a log that was restored older says nothing and skips what is new.
func (p *Projector) watch(ctx context.Context) error {
	for sleep(ctx, p.cfg.CheckEvery) {
		cp, ok, err := readCheckpoint(ctx, p.cfg.Pool)
		if err != nil || !ok {
			continue // the writer meets the same and says so
		}
		var mismatch *CheckpointError
		if err := fits(ctx, p.cfg.Log, cp); errors.As(err, &mismatch) {
			return err
		}
	}
	return ctx.Err()
}
