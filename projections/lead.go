package projections

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// lead is the right to be the one that writes: an advisory lock that all projectors
// of a name in a schema share, on a connection of its own. Where the connection is
// lost, so is the lead, and the writing with it.
type lead struct {
	conn *pgx.Conn
}

// takeLead waits for the lead. Standing by, it calls standby each time that it
// looked.
func takeLead(ctx context.Context, pool *pgxpool.Pool, name string, every time.Duration, standby func(*pgx.Conn)) (lead, error) {
	pooled, err := pool.Acquire(ctx)
	if err != nil {
		return lead{}, fmt.Errorf("connect: %w", err)
	}
	l := lead{conn: pooled.Hijack()} // it holds a lock: not for others
	for {
		leads, err := l.try(ctx, name)
		if err == nil && leads {
			return l, nil
		}
		if err == nil {
			standby(l.conn)
			if !sleep(ctx, every) {
				err = ctx.Err()
			}
		}
		if err != nil {
			l.release(ctx)
			return lead{}, err
		}
	}
}

func (l lead) try(ctx context.Context, name string) (leads bool, err error) {
	const lock = `SELECT pg_try_advisory_lock(hashtextextended('holdfast ' || $1::text || ' of ' || current_schema(), 0))`
	if err := l.conn.QueryRow(ctx, lock, name).Scan(&leads); err != nil {
		return false, fmt.Errorf("take the lock of %s: %w", name, err)
	}
	return leads, nil
}

// release gives the lead up, also where ctx has ended. Closing would free the lock
// too, but some time after this returns.
func (l lead) release(ctx context.Context) {
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = l.conn.Exec(closing, "SELECT pg_advisory_unlock_all()")
	_ = l.conn.Close(closing) // it is gone either way
}
