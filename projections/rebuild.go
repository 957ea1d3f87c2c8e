package projections

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/migrations"
)

// RebuildConfig of Rebuild.
type RebuildConfig struct {
	// Log is what is built from, Pool the live read models; projectors may run
	// meanwhile and wait only for the swap.
	Log  eventlog.Log
	Pool *pgxpool.Pool
	// CompareOnly builds and compares and leaves the live read models in place.
	CompareOnly bool
	// BatchSize is how many messages a transaction takes; 0 means 2000.
	BatchSize int
	// Progress, where it is given, is called after each transaction with the
	// sequence that is reached and the one to reach.
	Progress func(seq, target uint64)
	// Logger gets what can't be followed; nil discards.
	Logger *slog.Logger
}

// Report says what a rebuild found and did.
type Report struct {
	// Epoch and Seq are the checkpoint of what was built.
	Epoch string
	Seq   uint64
	// Tables are the built tables by name.
	Tables []TableContents
	// Compared says that the live read models were at the same checkpoint; else
	// Mismatch says why they can't be compared: they were of another log, or new.
	Compared bool
	Mismatch string
	// Differences are the tables whose contents were not those of a fresh build.
	Differences []Difference
	// Swapped says that what was built is live now.
	Swapped bool
	Took    time.Duration
}

// ErrRebuilding says that another rebuild is under way.
var ErrRebuilding = errors.New("another rebuild is under way")

// errUnswapped ends a transaction that only compares.
var errUnswapped = errors.New("compared only")

// Rebuild builds the read models beside the live ones from the log alone, compares
// both at an equal checkpoint, and swaps in one transaction. The log is right: a
// difference is named and swapped away. Live read models that aren't of this log
// are replaced, and OUTPUT's copy, if it is of another epoch, is dropped.
func Rebuild(ctx context.Context, cfg RebuildConfig) (Report, error) {
	if cfg.Log == nil || cfg.Pool == nil {
		return Report{}, errors.New("rebuild: needs a log and a pool")
	}
	cfg.BatchSize = orDefault(cfg.BatchSize, 2000)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	r := rebuild{cfg: cfg, began: time.Now()}
	if err := r.run(ctx); err != nil {
		return r.report, fmt.Errorf("rebuild the read models: %w", err)
	}
	return r.report, nil
}

type rebuild struct {
	cfg    RebuildConfig
	began  time.Time
	report Report
	w      writer
	copied switchedCopy
}

// switchedCopy is a copy of the log until it is switched off: under the swap's lock
// another connection can't read it.
type switchedCopy struct {
	from Envelopes
	off  bool
}

// Envelopes implements eventlog.Copy.
func (c *switchedCopy) Envelopes(ctx context.Context, epoch, subject string) ([]events.Message, error) {
	if c.off {
		return nil, nil
	}
	return c.from.Envelopes(ctx, epoch, subject)
}

func (r *rebuild) run(ctx context.Context) error {
	pooled, err := r.cfg.Pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	one := lead{conn: pooled.Hijack()}
	defer one.release(ctx)
	if leads, err := one.try(ctx, "rebuild"); err != nil || !leads {
		return errors.Join(err, ErrRebuilding)
	}
	if err := migrations.CreateViews(ctx, one.conn, migrations.ViewsNext); err != nil {
		return err
	}
	next, err := beside(ctx, r.cfg.Pool)
	if err != nil {
		return err
	}
	defer next.Close()
	conn, err := next.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Release()
	at, err := openCheckpoint(ctx, conn, r.cfg.Log)
	if err != nil {
		return err
	}
	r.report.Epoch = at.epoch
	r.copied.from = NewEnvelopes(next)
	r.w = writer{
		log: r.cfg.Logger, db: conn, at: at, reached: func(uint64) {},
		folds: newFolds(r.cfg.Log, at.epoch, &r.copied, 4096),
	}
	if err := r.build(ctx); err != nil {
		return err
	}
	return r.swap(ctx, one.conn)
}

// beside opens a pool on the schema that is built in.
func beside(ctx context.Context, live *pgxpool.Pool) (*pgxpool.Pool, error) {
	conf := live.Config()
	conf.ConnConfig.RuntimeParams["search_path"] = migrations.SearchPath(migrations.ViewsNext)
	conf.MinConns, conf.MaxConns = 0, 4
	pool, err := pgxpool.NewWithConfig(ctx, conf)
	if err != nil {
		return nil, fmt.Errorf("open the schema to build in: %w", err)
	}
	return pool, nil
}

// build projects up to where the live read models are, or, where they are of no use,
// to the log's end. They move on meanwhile; the swap does the rest.
func (r *rebuild) build(ctx context.Context) error {
	for {
		target, err := r.target(ctx, r.cfg.Pool)
		if err != nil {
			return err
		}
		before := r.w.at.seq
		if err := r.upTo(ctx, target); err != nil {
			return err
		}
		// What is left for the swap is what came while little was built.
		if r.w.at.seq-before <= uint64(r.cfg.BatchSize) {
			return nil
		}
	}
}

// target is the sequence to build up to. It notes why there is nothing to compare.
func (r *rebuild) target(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
},
) (uint64, error) {
	var cp checkpoint
	var seq int64
	const query = `SELECT epoch, seq, hash FROM ` + migrations.Views + `.checkpoint WHERE name = $1`
	err := db.QueryRow(ctx, query, checkpointEvents).Scan(&cp.epoch, &seq, &cp.hash)
	cp.seq = uint64(seq)
	var mismatch *CheckpointError
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		r.report.Mismatch = "there were no read models"
	case err != nil:
		return 0, fmt.Errorf("read the live checkpoint: %w", err)
	default:
		switch err := fits(ctx, r.cfg.Log, cp); {
		case errors.As(err, &mismatch):
			r.report.Mismatch = mismatch.Error()
		case err != nil:
			return 0, err
		default:
			r.report.Mismatch = ""
			return cp.seq, nil
		}
	}
	info, err := r.cfg.Log.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the log's extent: %w", err)
	}
	return info.LastSeq, nil
}

var errReached = errors.New("reached")

// upTo projects the messages up to a sequence.
func (r *rebuild) upTo(ctx context.Context, target uint64) error {
	if r.w.at.seq >= target {
		return nil
	}
	var ms []events.Message
	err := r.cfg.Log.Tail(ctx, r.w.at.seq+1, func(m events.Message) error {
		ms = append(ms, m)
		if len(ms) < r.cfg.BatchSize && m.Seq < target {
			return nil
		}
		if err := r.w.project(ctx, ms); err != nil {
			return err
		}
		if r.cfg.Progress != nil {
			r.cfg.Progress(m.Seq, target)
		}
		ms = nil
		if m.Seq >= target {
			return errReached
		}
		return nil
	})
	if errors.Is(err, errReached) {
		return nil
	}
	return err
}

// swap finishes under lock what came meanwhile, compares, and swaps.
func (r *rebuild) swap(ctx context.Context, conn *pgx.Conn) error {
	err := migrations.SwapViews(ctx, conn, migrations.ViewsNext, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL search_path TO "+migrations.SearchPath(migrations.ViewsNext)); err != nil {
			return fmt.Errorf("write beside: %w", err)
		}
		target, err := r.target(ctx, tx)
		if err != nil {
			return err
		}
		r.w.db, r.copied.off = tx, true
		if err := r.upTo(ctx, target); err != nil {
			return err
		}
		r.report.Seq = r.w.at.seq
		if r.report.Tables, err = contents(ctx, tx, migrations.ViewsNext); err != nil {
			return err
		}
		if r.report.Mismatch == "" {
			live, err := contents(ctx, tx, migrations.Views)
			if err != nil {
				return err
			}
			r.report.Compared, r.report.Differences = true, differences(live, r.report.Tables)
		} else if err := dropForeignOutput(ctx, tx, r.report.Epoch); err != nil {
			return err
		}
		if r.cfg.CompareOnly {
			return errUnswapped
		}
		// Unlike a batch, what is reported as swapped is on disk.
		_, err = tx.Exec(ctx, "SET LOCAL synchronous_commit TO DEFAULT")
		return err
	})
	r.report.Took = time.Since(r.began)
	r.report.Swapped = err == nil
	if errors.Is(err, errUnswapped) {
		_, err = conn.Exec(ctx, "DROP SCHEMA "+pgx.Identifier{migrations.ViewsNext}.Sanitize()+" CASCADE")
	}
	return err
}

// dropForeignOutput drops OUTPUT's copy where it is of another epoch.
func dropForeignOutput(ctx context.Context, tx pgx.Tx, epoch string) error {
	var foreign bool
	const query = `SELECT EXISTS (SELECT FROM output_checkpoint WHERE epoch <> $1)`
	if err := tx.QueryRow(ctx, query, epoch).Scan(&foreign); err != nil {
		return fmt.Errorf("read output's checkpoint: %w", err)
	}
	if !foreign {
		return nil
	}
	return dropOutput(ctx, tx, epoch)
}
