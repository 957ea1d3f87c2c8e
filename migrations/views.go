package migrations

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// Views is the schema of the live read models.
	Views = "views"
	// ViewsNext is the schema in which a rebuild builds beside [Views].
	ViewsNext = "views_next"

	publicSchema = "public"
	// viewsOld exists only inside SwapViews' transaction.
	viewsOld = "views_old"
)

// SearchPath is the search_path of connections that read or write the read
// models of schema ([Views], or [ViewsNext] for a rebuild). Set it as a runtime
// parameter of the connection:
//
//	conf.ConnConfig.RuntimeParams["search_path"] = migrations.SearchPath(migrations.Views)
func SearchPath(schema string) string {
	return pgx.Identifier{schema}.Sanitize() + ", " + publicSchema
}

// Conn is what building and swapping need of a *pgx.Conn, a pgx.Tx or a pool.
type Conn interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// CreateViews creates schema with all read models, empty, in one transaction.
// A schema of that name with all that is in it is dropped first: what an
// interrupted rebuild left behind is worth nothing. It refuses [Views], which
// only [Up] makes and only [SwapViews] replaces.
func CreateViews(ctx context.Context, conn Conn, schema string) error {
	if schema == Views || schema == publicSchema {
		return fmt.Errorf("create views in %q: %w", schema, ErrLiveSchema)
	}
	views, err := filesIn(viewsDir)
	if err != nil {
		return err
	}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		drop := "DROP SCHEMA IF EXISTS " + pgx.Identifier{schema}.Sanitize() + " CASCADE"
		if _, err := tx.Exec(ctx, drop); err != nil {
			return fmt.Errorf("drop what an earlier build left: %w", err)
		}
		for _, f := range views {
			if err := f.apply(ctx, tx, schema); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("create views in %q: %w", schema, err)
	}
	return nil
}

// SwapViews puts the read models of schema next in the place of [Views] and
// drops the old ones, in one transaction: a reader sees the old or the new,
// never a mixture. check, when not nil, runs inside it with both checkpoint
// tables locked, so neither side moves: the place to compare the checkpoints.
// An error of check leaves everything as it was and comes back wrapped.
func SwapViews(ctx context.Context, conn Conn, next string, check func(context.Context, pgx.Tx) error) error {
	if next == Views || next == publicSchema {
		return fmt.Errorf("swap %q in: %w", next, ErrLiveSchema)
	}
	live, beside, old := pgx.Identifier{Views}.Sanitize(), pgx.Identifier{next}.Sanitize(), pgx.Identifier{viewsOld}.Sanitize()
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		// A projector's transaction begins with its checkpoint, so this waits
		// for those under way, and those that come after wait for the swap and
		// then find the new table under the name.
		lock := fmt.Sprintf("LOCK TABLE %s.checkpoint, %s.checkpoint IN ACCESS EXCLUSIVE MODE", live, beside)
		if _, err := tx.Exec(ctx, lock); err != nil {
			return fmt.Errorf("lock the checkpoints: %w", err)
		}
		if check != nil {
			if err := check(ctx, tx); err != nil {
				return fmt.Errorf("check before the swap: %w", err)
			}
		}
		for _, statement := range []string{
			"ALTER SCHEMA " + live + " RENAME TO " + viewsOld,
			"ALTER SCHEMA " + beside + " RENAME TO " + Views,
			"DROP SCHEMA " + old + " CASCADE",
		} {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("swap %q in: %w", next, err)
	}
	return nil
}

// execer is the one thing that a migration needs of a transaction, whichever
// library it belongs to.
type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// apply runs f in schema, making it if needed, and leaves the search_path of
// the transaction as the session has it.
func (f file) apply(ctx context.Context, tx execer, schema string) error {
	quoted := pgx.Identifier{schema}.Sanitize()
	for _, statement := range []string{
		"CREATE SCHEMA IF NOT EXISTS " + quoted,
		"SET LOCAL search_path TO " + quoted,
		f.text,
		"SET LOCAL search_path TO DEFAULT",
	} {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s in schema %q: %w", f.path, schema, err)
		}
	}
	return nil
}

// sqlTx lets goose's database/sql transaction run a migration.
type sqlTx struct{ tx *sql.Tx }

func (t sqlTx) Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error) {
	_, err := t.tx.ExecContext(ctx, query, args...)
	return pgconn.CommandTag{}, err
}
