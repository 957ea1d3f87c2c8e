package projections

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// takeLead waits until this process holds the lock of the schema's projectors, on a
// connection of its own: where the connection is lost, so is the lead, and the
// writing with it. Standing by, it reports where the leader is.
func (p *Projector) takeLead(ctx context.Context) (*pgx.Conn, func(), error) {
	pooled, err := p.cfg.Pool.Acquire(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("connect: %w", err)
	}
	conn := pooled.Hijack() // it holds a lock: not for others
	release := func() {
		// ctx may have ended; closing is what frees the lock.
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing) // it is gone either way
	}
	for {
		leads, err := tryLead(ctx, conn)
		if err != nil {
			release()
			return nil, nil, err
		}
		if leads {
			return conn, release, nil
		}
		if cp, ok, err := readCheckpoint(ctx, conn); err == nil && ok {
			p.reached(cp.seq)
			p.set(fits(ctx, p.cfg.Log, cp))
		}
		if !sleep(ctx, p.cfg.CheckEvery/5) {
			release()
			return nil, nil, ctx.Err()
		}
	}
}

// tryLead takes the lock that all projectors of this schema share.
func tryLead(ctx context.Context, conn *pgx.Conn) (leads bool, err error) {
	const lock = `SELECT pg_try_advisory_lock(hashtextextended('holdfast projector of ' || current_schema(), 0))`
	if err := conn.QueryRow(ctx, lock).Scan(&leads); err != nil {
		return false, fmt.Errorf("take the projectors' lock: %w", err)
	}
	return leads, nil
}
