package projections

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/output"
	"github.com/holdfast-io/holdfast/projections/internal/dbsqlc"
)

// OutputTail is what an OutputProjector needs of the OUTPUT stream (output.Stream).
type OutputTail interface {
	Tail(ctx context.Context, from uint64, handle func(output.Message) error) error
	Info(ctx context.Context) (first, last uint64, err error)
}

// OutputConfig of an OutputProjector.
type OutputConfig struct {
	// Stream is what is copied, Pool where to.
	Stream OutputTail
	Pool   *pgxpool.Pool
	// Epoch is the log's: OUTPUT belongs to it.
	Epoch string
	// Keep is how long output stays in Postgres; 0 means 7 days.
	Keep time.Duration
	// SweepEvery is how often what is older is deleted, and a standby looks whether
	// it may lead; 0 means a minute and a sixtieth of it.
	SweepEvery time.Duration
	// Now is the clock that age is measured by; nil means time.Now.
	Now func() time.Time
	// Logger gets what goes wrong and how it goes on; nil discards.
	Logger *slog.Logger
}

// Validate fills in what is left out. It names what is missing.
func (c *OutputConfig) Validate() error {
	if c.Stream == nil || c.Pool == nil || c.Epoch == "" {
		return errors.New("output projector: needs a stream, a pool and the log's epoch")
	}
	if c.Keep < 0 || c.SweepEvery < 0 {
		return errors.New("output projector: times can't be negative")
	}
	c.Keep = orDefault(c.Keep, 7*24*time.Hour)
	c.SweepEvery = orDefault(c.SweepEvery, time.Minute)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// OutputProjector keeps a copy of OUTPUT in Postgres, without the repeats that the
// stream may hold, and deletes it by age. It can't be rebuilt once the stream has
// aged; what a reader can't have any more is said by output_floor.
type OutputProjector struct {
	cfg OutputConfig
	// ks is the last k of each run that was copied.
	ks *lru.Cache[runKey, uint64]
	*progress
}

type runKey struct{ tenant, session, run string }

// NewOutputProjector makes an OutputProjector; it does nothing before Run.
func NewOutputProjector(cfg OutputConfig) (*OutputProjector, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	ks, err := lru.New[runKey, uint64](4096)
	if err != nil {
		return nil, fmt.Errorf("output projector: %w", err)
	}
	return &OutputProjector{cfg: cfg, ks: ks, progress: newProgress()}, nil
}

// Run copies until ctx ends, as Projector.Run does.
func (p *OutputProjector) Run(ctx context.Context) error {
	persist(ctx, p.progress, p.cfg.Logger, p.lead)
	return nil
}

func (p *OutputProjector) lead(ctx context.Context) error {
	l, err := takeLead(ctx, p.cfg.Pool, checkpointOutput, p.cfg.SweepEvery/60, func(*pgx.Conn) { p.set(nil) })
	if err != nil {
		return err
	}
	defer l.release(ctx)
	at, err := p.open(ctx, l.conn)
	if err != nil {
		return err
	}
	p.ks.Purge() // another leader may have copied since
	p.reached(at.seq)
	p.set(nil)
	c := copier{OutputProjector: p, db: l.conn, at: at, joined: at.seq == 0}

	messages := make(chan output.Message, outputBatch)
	ahead := semaphore.NewWeighted(aheadBytes)
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		// From the checkpoint itself, to see that it is still the same.
		return tail(gctx, messages, func(handle func(output.Message) error) error {
			return p.cfg.Stream.Tail(gctx, max(at.seq, 1), func(m output.Message) error {
				if err := ahead.Acquire(gctx, outputWeight(m)); err != nil {
					return err
				}
				return handle(m)
			})
		})
	})
	g.Go(func() error { return p.sweep(gctx) })
	g.Go(func() error {
		for {
			ms, err := collect(gctx, messages, outputBatch, 25*time.Millisecond, time.Millisecond)
			if err != nil {
				return err
			}
			if err := c.copy(gctx, ms); err != nil {
				return err
			}
			for _, m := range ms {
				ahead.Release(outputWeight(m))
			}
		}
	})
	err = g.Wait()
	var truncated *output.TruncatedError
	if errors.As(err, &truncated) || errors.Is(err, errOtherStream) {
		return errors.Join(err, p.startOver(ctx, l.conn))
	}
	return err
}

// outputBatch is how many batches a transaction takes, of aheadBytes together: one has
// 768 KiB and what of its events is larger.
const outputBatch = 64

// outputWeight is a batch's part of aheadBytes.
func outputWeight(m output.Message) int64 {
	var n int64
	for _, e := range m.Batch.Events {
		n += int64(len(e))
	}
	return min(n, aheadBytes)
}

// errOtherStream says that OUTPUT was made anew.
var errOtherStream = errors.New("output has another message at the checkpoint")

func (p *OutputProjector) open(ctx context.Context, db dbsqlc.DBTX) (checkpoint, error) {
	q := dbsqlc.New(db)
	start := dbsqlc.StartOutputCheckpointParams{Name: checkpointOutput, Epoch: p.cfg.Epoch}
	if err := q.StartOutputCheckpoint(ctx, start); err != nil {
		return checkpoint{}, fmt.Errorf("start output's checkpoint: %w", err)
	}
	row, err := q.OutputCheckpoint(ctx, checkpointOutput)
	if err != nil {
		return checkpoint{}, fmt.Errorf("read output's checkpoint: %w", err)
	}
	at := checkpoint{epoch: row.Epoch, seq: uint64(row.Seq), hash: row.Hash}
	if at.epoch != p.cfg.Epoch {
		return at, &CheckpointError{Mismatch: MismatchEpoch, Epoch: at.epoch, Seq: at.seq, LogEpoch: p.cfg.Epoch}
	}
	return at, nil
}

// startOver forgets a stream that isn't there any more: its sequences would meet
// those of the new one.
func (p *OutputProjector) startOver(ctx context.Context, db beginner) error {
	p.cfg.Logger.Warn("output was made anew, copying it from its start")
	return dropOutput(ctx, db, p.cfg.Epoch)
}

func dropOutput(ctx context.Context, db beginner, epoch string) error {
	return inTx(ctx, db, func(q *dbsqlc.Queries) error {
		if err := q.ResetOutputCheckpoint(ctx, dbsqlc.ResetOutputCheckpointParams{Name: checkpointOutput, Epoch: epoch}); err != nil {
			return fmt.Errorf("reset output's checkpoint: %w", err)
		}
		if err := q.DropOutput(ctx); err != nil {
			return fmt.Errorf("drop output: %w", err)
		}
		if err := q.DropOutputFloors(ctx); err != nil {
			return fmt.Errorf("drop output's floors: %w", err)
		}
		return nil
	})
}

// copier commits batches from at on. joined says that the message at the checkpoint
// has been seen, or is known to have aged out.
type copier struct {
	*OutputProjector
	db     database
	at     checkpoint
	joined bool
}

func (c *copier) copy(ctx context.Context, ms []output.Message) error {
	next := c.at
	var rows []dbsqlc.InsertOutputParams
	var missed uint64
	ks := map[runKey]uint64{}
	for _, m := range ms {
		hash, err := identity(m.Batch)
		if err != nil {
			return fmt.Errorf("output at %d: %w", m.Seq, err)
		}
		if !c.joined && m.Seq == c.at.seq {
			if !bytes.Equal(hash, c.at.hash) {
				return errOtherStream
			}
			c.joined = true
			continue
		}
		c.joined = true
		if m.Seq > next.seq+1 {
			gone, err := c.agedOut(ctx, next.seq, m.Seq)
			if err != nil {
				return err
			}
			missed = max(missed, gone)
		}
		next.seq, next.hash = m.Seq, hash
		row, ok, err := c.row(ctx, m, ks)
		if err != nil {
			return err
		}
		if ok {
			rows = append(rows, row)
		}
	}
	if next.seq == c.at.seq {
		return nil
	}
	if err := c.write(ctx, next, rows, missed); err != nil {
		return err
	}
	for k, v := range ks {
		c.ks.Add(k, v)
	}
	c.at = next
	c.reached(next.seq)
	return nil
}

// agedOut gives up to which sequence between two batches something aged out before it
// was copied, nobody knows whose; 0 for nothing. Most that lies between them is no batch:
// pieces of large events are in OUTPUT, too.
func (c *copier) agedOut(ctx context.Context, after, before uint64) (uint64, error) {
	first, _, err := c.cfg.Stream.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("where output begins: %w", err)
	}
	if first <= after+1 {
		return 0, nil
	}
	return min(first, before) - 1, nil
}

// identity tells a batch from all others. One whose large events were put back fits
// into no message, and is known by its head.
func identity(b output.Batch) ([]byte, error) {
	raw, err := b.Encode()
	if errors.Is(err, output.ErrTooLarge) {
		b.Events = nil
		raw, err = events.Marshal(b)
	}
	if err != nil {
		return nil, err
	}
	return hashOf(raw), nil
}

// row makes the row of what of a batch has not been copied yet; ks is what this
// transaction has of each run.
func (c *copier) row(ctx context.Context, m output.Message, ks map[runKey]uint64) (dbsqlc.InsertOutputParams, bool, error) {
	key := runKey{m.Tenant, m.Session, clean(m.Batch.Run)}
	k, ok := ks[key]
	if !ok {
		k, ok = c.ks.Get(key)
	}
	if !ok {
		had, err := dbsqlc.New(c.db).LastOutputK(ctx, dbsqlc.LastOutputKParams{Tenant: key.tenant, Session: key.session, Run: key.run})
		if err != nil {
			return dbsqlc.InsertOutputParams{}, false, fmt.Errorf("last k of %s: %w", key.run, err)
		}
		k = uint64(had)
	}
	b, ok := m.Batch.AfterK(k)
	if !ok {
		return dbsqlc.InsertOutputParams{}, false, nil
	}
	ks[key] = b.LastK
	data, err := events.Marshal(b.Events)
	if err != nil {
		return dbsqlc.InsertOutputParams{}, false, fmt.Errorf("output at %d: %w", m.Seq, err)
	}
	return dbsqlc.InsertOutputParams{
		Seq: int64(m.Seq), Epoch: c.at.epoch, Tenant: m.Tenant, Session: m.Session, Run: key.run,
		FirstK: int64(b.FirstK), LastK: int64(b.LastK), AfterN: int64(min(b.After, last.N)), Data: data, At: b.Time,
	}, true, nil
}

func (c *copier) write(ctx context.Context, next checkpoint, rows []dbsqlc.InsertOutputParams, missed uint64) error {
	return inTx(ctx, c.db, func(q *dbsqlc.Queries) error {
		moved, err := q.MoveOutputCheckpoint(ctx, dbsqlc.MoveOutputCheckpointParams{
			Name: checkpointOutput, Epoch: c.at.epoch, OldSeq: int64(c.at.seq), Seq: int64(next.seq), Hash: next.hash,
		})
		if err != nil {
			return fmt.Errorf("move output's checkpoint: %w", err)
		}
		if moved == 0 {
			return errFenced
		}
		if len(rows) > 0 {
			if _, err := q.InsertOutput(ctx, rows); err != nil {
				return fmt.Errorf("write output: %w", err)
			}
		}
		if missed > 0 {
			return raiseFloors(ctx, q, []dbsqlc.DeleteOutputBeforeRow{{Seq: int64(missed)}})
		}
		return nil
	})
}

// sweep deletes what is older than Keep, in portions that hold no lock for long.
func (p *OutputProjector) sweep(ctx context.Context) error {
	const most = 5000
	for {
		for n := most; n == most; {
			err := inTx(ctx, p.cfg.Pool, func(q *dbsqlc.Queries) error {
				gone, err := q.DeleteOutputBefore(ctx, dbsqlc.DeleteOutputBeforeParams{Before: p.cfg.Now().Add(-p.cfg.Keep), Most: most})
				if err != nil {
					return fmt.Errorf("delete old output: %w", err)
				}
				n = len(gone)
				return raiseFloors(ctx, q, gone)
			})
			if err != nil {
				return err
			}
		}
		if !sleep(ctx, p.cfg.SweepEvery) {
			return ctx.Err()
		}
	}
}

// raiseFloors notes up to where each session's output is gone.
func raiseFloors(ctx context.Context, q *dbsqlc.Queries, gone []dbsqlc.DeleteOutputBeforeRow) error {
	if len(gone) == 0 {
		return nil
	}
	floors := map[SessionKey]int64{}
	for _, g := range gone {
		key := SessionKey{g.Tenant, g.Session}
		floors[key] = max(floors[key], g.Seq)
	}
	var params dbsqlc.RaiseOutputFloorsParams
	for key, seq := range floors {
		params.Tenants = append(params.Tenants, key.Tenant)
		params.Sessions = append(params.Sessions, key.Session)
		params.Seqs = append(params.Seqs, seq)
	}
	if err := q.RaiseOutputFloors(ctx, params); err != nil {
		return fmt.Errorf("raise output's floors: %w", err)
	}
	return nil
}
