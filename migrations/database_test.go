package migrations_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast/migrations"
)

const insertCheckpoint = `INSERT INTO checkpoint (name, epoch, seq, hash, updated_at) VALUES ($1, 'e', $2, '', now())`

func up(ctx context.Context, t *testing.T, dsn string) {
	t.Helper()
	if err := migrations.Up(ctx, dsn); err != nil {
		t.Fatal(err)
	}
}

func version(ctx context.Context, t *testing.T, dsn string) int64 {
	t.Helper()
	v, err := migrations.Version(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// exec runs a statement on a pool, a connection or a transaction.
func exec(ctx context.Context, t *testing.T, on interface {
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
}, statement string, args ...any,
) {
	t.Helper()
	if _, err := on.Exec(ctx, statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func checkpoint(ctx context.Context, t *testing.T, pool *pgxpool.Pool, name string) int64 {
	t.Helper()
	var seq int64
	if err := pool.QueryRow(ctx, "SELECT seq FROM checkpoint WHERE name = $1", name).Scan(&seq); err != nil {
		t.Fatal(err)
	}
	return seq
}

func tablesIn(ctx context.Context, t *testing.T, pool *pgxpool.Pool, schema string) []string {
	t.Helper()
	return texts(ctx, t, pool, `SELECT tablename::text FROM pg_tables WHERE schemaname = $1 ORDER BY 1`, schema)
}

// shape lists all columns and indexes of a schema, without its name.
func shape(ctx context.Context, t *testing.T, pool *pgxpool.Pool, schema string) []string {
	t.Helper()
	return texts(ctx, t, pool, `
		SELECT format('%s.%s %s null=%s default=%s', table_name, column_name, data_type, is_nullable, column_default)
		FROM information_schema.columns WHERE table_schema = $1
		UNION ALL
		SELECT replace(indexdef, $1 || '.', '') FROM pg_indexes WHERE schemaname = $1
		ORDER BY 1`, schema)
}

func texts(ctx context.Context, t *testing.T, pool *pgxpool.Pool, query string, args ...any) []string {
	t.Helper()
	rows, err := pool.Query(ctx, query, args...)
	if err != nil {
		t.Fatal(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// awaitWaiting returns when a statement like this one waits for a lock.
func awaitWaiting(ctx context.Context, t *testing.T, pool *pgxpool.Pool, like string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		var waiting bool
		err := pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE $1)`, like).Scan(&waiting)
		if err != nil {
			t.Fatalf("no %q waits for a lock: %v", like, err)
		}
		if waiting {
			return
		}
	}
}
