package projections

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// waiter knows how far the projector is, which may be another process: it listens
// for what each commit announces. The listener starts with the first wait and
// lives until close.
type waiter struct {
	pool     *pgxpool.Pool
	log      *slog.Logger
	progress *progress
	mu       sync.Mutex
	cancel   context.CancelFunc // nil before the first wait
	closed   bool
	done     sync.WaitGroup
}

func newWaiter(pool *pgxpool.Pool, log *slog.Logger) *waiter {
	return &waiter{pool: pool, log: log, progress: newProgress()}
}

func (w *waiter) close() {
	w.mu.Lock()
	w.closed = true
	if w.cancel != nil {
		w.cancel()
	}
	w.mu.Unlock()
	w.done.Wait()
}

// listen starts the listener if there is none.
func (w *waiter) listen() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cancel != nil || w.closed {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	w.done.Go(func() {
		for {
			err := w.follow(ctx)
			if ctx.Err() != nil {
				return
			}
			w.log.Warn("lost what announces projections, trying again", "error", err)
			if !sleep(ctx, time.Second) {
				return
			}
		}
	})
}

// follow hears announcements until the connection fails.
func (w *waiter) follow(ctx context.Context) error {
	pooled, err := w.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	conn := pooled.Hijack() // it would hear for others
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing) // it is gone either way
	}()
	var channel string
	if err := conn.QueryRow(ctx, "SELECT 'holdfast_projected_' || current_schema()").Scan(&channel); err != nil {
		return fmt.Errorf("name what to listen to: %w", err)
	}
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	// What was committed before LISTEN is not announced.
	cp, _, err := readCheckpoint(ctx, conn)
	if err != nil {
		return err
	}
	w.progress.reached(cp.seq)
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return fmt.Errorf("wait: %w", err)
		}
		if seq, err := strconv.ParseUint(n.Payload, 10, 64); err == nil {
			w.progress.reached(seq)
		}
	}
}

// poll is how often a wait looks by itself: announcements may get lost.
const poll = 250 * time.Millisecond

// WaitFor waits until the read models have the message at seq, wherever the
// projector runs. ErrBehind where ctx ends first, ErrUnavailable where Postgres
// can't be asked.
func (r *Reader) WaitFor(ctx context.Context, seq uint64) error {
	r.waiter.listen() //nolint:contextcheck // the listener outlives this wait; Close ends it
	for {
		if r.waiter.progress.Position() >= seq {
			return nil
		}
		cp, _, err := readCheckpoint(ctx, r.cfg.Pool)
		if ctx.Err() != nil {
			return fmt.Errorf("%w: not yet at %d: %w", ErrBehind, seq, ctx.Err())
		}
		if err != nil {
			return readError(err)
		}
		if cp.seq >= seq {
			return nil
		}
		short, cancel := context.WithTimeout(ctx, poll)
		err = r.waiter.progress.WaitFor(short, seq)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
	}
}
