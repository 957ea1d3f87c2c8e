package migrations_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast/migrations"
	"github.com/holdfast-io/holdfast/migrations/pgtest"
)

func TestMain(m *testing.M) { pgtest.Exit(m) }

// Every table of schema version 1, by schema. A new migration adds to it.
var tables = map[string][]string{
	migrations.Views: {
		"approvals", "audit", "calls", "checkpoint", "deadlines", "envelopes", "faults", "messages",
		"policies", "runs", "runtimes", "sessions", "timeline", "workloads",
	},
	"public": {"goose_db_version", "output", "output_checkpoint", "output_floor"},
}

func TestUpOnAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	ctx, dsn := t.Context(), pgtest.Empty(t)
	if v := version(ctx, t, dsn); v != 0 {
		t.Fatalf("version of an empty database is %d, want 0", v)
	}
	up(ctx, t, dsn)
	if v := version(ctx, t, dsn); v != migrations.Latest() {
		t.Errorf("version is %d, want %d", v, migrations.Latest())
	}
	pool := pgtest.OpenPool(t, dsn, migrations.Views)
	for schema, want := range tables {
		if got := tablesIn(ctx, t, pool, schema); !slices.Equal(got, want) {
			t.Errorf("tables in %s:\n got %v\nwant %v", schema, got, want)
		}
	}
}

func TestUpAgainChangesNothing(t *testing.T) {
	t.Parallel()
	ctx, dsn := t.Context(), pgtest.New(t)
	pool := pgtest.OpenPool(t, dsn, migrations.Views)
	exec(ctx, t, pool, insertCheckpoint, "projector", 7)
	before := shape(ctx, t, pool, migrations.Views)
	up(ctx, t, dsn)
	if after := shape(ctx, t, pool, migrations.Views); !slices.Equal(before, after) {
		t.Error("a second Up changed the read models")
	}
	if seq := checkpoint(ctx, t, pool, "projector"); seq != 7 {
		t.Errorf("checkpoint is %d after a second Up, want 7", seq)
	}
}

func TestTwoUpsAtTheSameTime(t *testing.T) {
	t.Parallel()
	ctx, dsn := t.Context(), pgtest.Empty(t)
	const ups = 3
	done := make(chan error, ups)
	for range ups {
		go func() { done <- migrations.Up(ctx, dsn) }()
	}
	for range ups {
		if err := <-done; err != nil {
			t.Errorf("one of several Ups: %v", err)
		}
	}
	pool := pgtest.OpenPool(t, dsn, migrations.Views)
	var applied, distinct int64
	err := pool.QueryRow(ctx, `SELECT count(*), count(DISTINCT version_id) FROM public.goose_db_version WHERE version_id > 0`).
		Scan(&applied, &distinct)
	if err != nil {
		t.Fatal(err)
	}
	if applied != distinct || applied != migrations.Latest() {
		t.Errorf("%d migrations recorded, %d distinct, want %d of both", applied, distinct, migrations.Latest())
	}
}

// Output, which may be large, is compressed by what costs least where the server has it.
func TestOutputIsCompressedCheaply(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	var can bool
	var by string
	if err := pool.QueryRow(t.Context(), `SELECT
		(SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression'),
		(SELECT attcompression FROM pg_attribute WHERE attrelid = 'public.output'::regclass AND attname = 'data')`).Scan(&can, &by); err != nil {
		t.Fatal(err)
	}
	if (by == "l") != can {
		t.Errorf("the server has LZ4: %t; output is compressed by %q", can, by)
	}
}

func TestUpNamesABadAddress(t *testing.T) {
	t.Parallel()
	if err := migrations.Up(t.Context(), "postgres://%zz"); err == nil {
		t.Error("Up accepted an address that is none")
	}
	if err := migrations.Up(t.Context(), "postgres://nobody@/none?host=/nonexistent"); err == nil {
		t.Error("Up reached a server that is not there")
	}
}

func TestClonesAreApart(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	a, b := pgtest.Pool(t), pgtest.Pool(t)
	exec(ctx, t, a, insertCheckpoint, "projector", 1)
	exec(ctx, t, b, insertCheckpoint, "projector", 2)
	if got := checkpoint(ctx, t, a, "projector"); got != 1 {
		t.Errorf("first clone has %d, want its own 1", got)
	}
}

func TestCreateViewsHasTheShapeOfTheLiveOnes(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), pgtest.Pool(t)
	create(ctx, t, pool, migrations.ViewsNext)
	live, next := shape(ctx, t, pool, migrations.Views), shape(ctx, t, pool, migrations.ViewsNext)
	if !slices.Equal(live, next) {
		t.Errorf("shapes differ:\nlive %s\nnext %s", strings.Join(live, "\n     "), strings.Join(next, "\n     "))
	}
	if len(live) < 100 {
		t.Errorf("the shape has only %d columns and indexes: is it compared at all?", len(live))
	}
}

func TestCreateViewsReplacesAnInterruptedBuild(t *testing.T) {
	t.Parallel()
	ctx, dsn := t.Context(), pgtest.New(t)
	next := pgtest.OpenPool(t, dsn, migrations.ViewsNext)
	create(ctx, t, next, migrations.ViewsNext)
	exec(ctx, t, next, insertCheckpoint, "projector", 5)
	create(ctx, t, next, migrations.ViewsNext)
	var rows int
	if err := next.QueryRow(ctx, "SELECT count(*) FROM checkpoint").Scan(&rows); err != nil {
		t.Fatal(err)
	}
	if rows != 0 {
		t.Errorf("a new build starts with %d checkpoints of the old one", rows)
	}
}

func TestSwapViews(t *testing.T) {
	t.Parallel()
	ctx, dsn := t.Context(), pgtest.New(t)
	live := pgtest.OpenPool(t, dsn, migrations.Views)
	exec(ctx, t, live, insertCheckpoint, "projector", 3)
	exec(ctx, t, live, `INSERT INTO output VALUES (1, 'e', 't', 's', 'r', 1, 1, 1, '[]', now())`)
	beside := pgtest.OpenPool(t, dsn, migrations.ViewsNext)
	create(ctx, t, beside, migrations.ViewsNext)
	exec(ctx, t, beside, insertCheckpoint, "projector", 4)
	if got := checkpoint(ctx, t, live, "projector"); got != 3 {
		t.Fatalf("building beside changed the live checkpoint to %d", got)
	}

	refusal := errors.New("not equal")
	err := migrations.SwapViews(ctx, live, migrations.ViewsNext, func(context.Context, pgx.Tx) error { return refusal })
	if !errors.Is(err, refusal) {
		t.Errorf("a failed check gave %v", err)
	}
	if got := checkpoint(ctx, t, live, "projector"); got != 3 {
		t.Errorf("a failed check left checkpoint %d, want 3", got)
	}

	if err := migrations.SwapViews(ctx, live, migrations.ViewsNext, nil); err != nil {
		t.Fatal(err)
	}
	// The same pool, with statements prepared on the old tables.
	if got := checkpoint(ctx, t, live, "projector"); got != 4 {
		t.Errorf("after the swap the live checkpoint is %d, want 4", got)
	}
	var outputs, schemas int
	if err := live.QueryRow(ctx, "SELECT count(*) FROM output").Scan(&outputs); err != nil || outputs != 1 {
		t.Errorf("output has %d rows after the swap (%v), want the 1 it had", outputs, err)
	}
	err = live.QueryRow(ctx, `SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'views%'`).Scan(&schemas)
	if err != nil || schemas != 1 {
		t.Errorf("%d views schemas are left (%v), want 1", schemas, err)
	}
	create(ctx, t, live, migrations.ViewsNext)
	if err := migrations.SwapViews(ctx, live, migrations.ViewsNext, nil); err != nil {
		t.Errorf("a second rebuild: %v", err)
	}
}

// A projector that is in the middle of a transaction holds the swap up, and one
// that comes during the swap finds the new checkpoint, so that no transaction
// has its rows in one schema and its checkpoint in the other.
func TestSwapViewsAgainstAProjector(t *testing.T) {
	t.Parallel()
	ctx, dsn := t.Context(), pgtest.New(t)
	pool := pgtest.OpenPool(t, dsn, migrations.Views)
	exec(ctx, t, pool, insertCheckpoint, "projector", 10)
	beside := pgtest.OpenPool(t, dsn, migrations.ViewsNext)
	create(ctx, t, beside, migrations.ViewsNext)
	exec(ctx, t, beside, insertCheckpoint, "projector", 10)

	const fenced = `UPDATE checkpoint SET seq = $1 WHERE name = 'projector' AND seq = $2 AND epoch = 'e'`
	before, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer before.Rollback(ctx)
	exec(ctx, t, before, fenced, 11, 10)

	swapped := make(chan error, 1)
	go func() {
		swapped <- migrations.SwapViews(ctx, pool, migrations.ViewsNext, func(ctx context.Context, tx pgx.Tx) error {
			var live, next int64
			err := tx.QueryRow(ctx, "SELECT l.seq, n.seq FROM views.checkpoint l, views_next.checkpoint n").Scan(&live, &next)
			if err == nil && (live != 11 || next != 10) {
				err = fmt.Errorf("the check saw %d and %d, want 11 and 10", live, next)
			}
			return err
		})
	}()
	awaitWaiting(ctx, t, pool, "LOCK TABLE%")
	after := make(chan error, 1)
	go func() {
		tag, err := pool.Exec(ctx, fenced, 12, 11)
		if err == nil && tag.RowsAffected() != 0 {
			err = errors.New("the fence let a projector of the old read models pass")
		}
		after <- err
	}()
	awaitWaiting(ctx, t, pool, "UPDATE checkpoint%")
	if err := before.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-swapped; err != nil {
		t.Fatal(err)
	}
	if err := <-after; err != nil {
		t.Error(err)
	}
	if got := checkpoint(ctx, t, pool, "projector"); got != 10 {
		t.Errorf("the checkpoint is %d, want the new read models' 10", got)
	}
}

func TestTheLiveSchemaIsRefused(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), pgtest.Pool(t)
	for _, schema := range []string{migrations.Views, "public"} {
		if err := migrations.CreateViews(ctx, pool, schema); !errors.Is(err, migrations.ErrLiveSchema) {
			t.Errorf("CreateViews in %s: %v", schema, err)
		}
		if err := migrations.SwapViews(ctx, pool, schema, nil); !errors.Is(err, migrations.ErrLiveSchema) {
			t.Errorf("SwapViews with %s: %v", schema, err)
		}
	}
	if got := tablesIn(ctx, t, pool, migrations.Views); len(got) == 0 {
		t.Error("the live tables are gone")
	}
}

// What agents write reaches the read models as it is: jsonb would refuse both.
func TestDocumentsKeepEveryByte(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), pgtest.Pool(t)
	for i, doc := range []string{`"nul \u0000"`, `"half \ud800"`, `{"b":1,  "a":1.0e2}`} {
		exec(ctx, t, pool, `INSERT INTO timeline VALUES ('t', 's', $1, 1, 0, 'event', $2, now())`, i, []byte(doc))
		var got []byte
		if err := pool.QueryRow(ctx, `SELECT data FROM timeline WHERE n = $1`, i).Scan(&got); err != nil {
			t.Fatal(err)
		}
		if string(got) != doc {
			t.Errorf("wrote %s, read %s", doc, got)
		}
	}
}

func TestOneLatestRevision(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), pgtest.Pool(t)
	for _, table := range []string{"runtimes", "policies"} {
		insert := "INSERT INTO " + table + " VALUES ('t', 'coder', $1, $2, '{}', false, 'ann', now(), $1, $1)"
		exec(ctx, t, pool, insert, 1, false)
		exec(ctx, t, pool, insert, 2, true)
		if _, err := pool.Exec(ctx, insert, 3, true); err == nil {
			t.Errorf("%s has two latest revisions", table)
		}
	}
}

// The queries that the indexes are for must be able to use them. (With
// sequential scans discouraged, as tables in a test are tiny.)
func TestIndexesServeTheirQueries(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), pgtest.Pool(t)
	conn, err := pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	exec(ctx, t, conn, "SET enable_seqscan = off")
	exec(ctx, t, conn, "SET enable_sort = off")
	for index, query := range map[string]string{
		"envelopes_subject":    `SELECT raw FROM envelopes WHERE subject = 'x' ORDER BY seq`,
		"audit_key":            `SELECT * FROM audit WHERE tenant = 't' AND key = 'k' ORDER BY n`,
		"audit_actor":          `SELECT * FROM audit WHERE tenant = 't' AND actor = 'a' AND seq > 5 ORDER BY seq`,
		"audit_type":           `SELECT * FROM audit WHERE tenant = 't' AND type = 'a' AND seq > 5 ORDER BY seq`,
		"audit_at":             `SELECT * FROM audit WHERE tenant = 't' AND at >= now() ORDER BY at, seq`,
		"sessions_created":     `SELECT view FROM sessions WHERE tenant = 't' ORDER BY created_at DESC, id DESC LIMIT 50`,
		"sessions_owner":       `SELECT view FROM sessions WHERE tenant = 't' AND owner = 'a' ORDER BY created_at DESC, id DESC LIMIT 50`,
		"sessions_phase":       `SELECT view FROM sessions WHERE tenant = 't' AND phase = 'ready' ORDER BY created_at DESC, id DESC LIMIT 50`,
		"sessions_labels":      `SELECT view FROM sessions WHERE labels @> '{"team":"a"}'`,
		"sessions_unsettled":   `SELECT tenant, id FROM sessions WHERE unsettled <> '{}' ORDER BY tenant, id`,
		"deadlines_due":        `SELECT * FROM deadlines WHERE service = 'session' AND due_at <= now() ORDER BY due_at`,
		"workloads_sandbox":    `SELECT * FROM workloads WHERE sandbox_uid = 'u' AND sandbox_uid <> ''`,
		"workloads_unreleased": `SELECT * FROM workloads WHERE tenant = 't' AND released_at IS NULL`,
		"messages_order":       `SELECT * FROM messages WHERE tenant = 't' AND session = 's' ORDER BY n`,
		"calls_order":          `SELECT * FROM calls WHERE tenant = 't' AND session = 's' ORDER BY n`,
		"approvals_inbox":      `SELECT view FROM approvals WHERE tenant = 't' AND state = 'pending' ORDER BY coalesce(deadline, '9999-12-31 00:00:00+00'), id`,
		"output_session":       `SELECT data FROM output WHERE tenant = 't' AND session = 's' AND seq > 5 ORDER BY seq`,
		"output_age":           `DELETE FROM output WHERE at < now()`,
	} {
		rows, err := conn.Query(ctx, "EXPLAIN "+query)
		if err != nil {
			t.Fatalf("%s: %v", index, err)
		}
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatalf("%s: %v", index, err)
		}
		text := strings.Join(plan, "\n")
		if !strings.Contains(text, index) || strings.Contains(text, "Sort ") {
			t.Errorf("%s doesn't serve %s:\n%s", index, query, text)
		}
	}
}

func create(ctx context.Context, t *testing.T, pool *pgxpool.Pool, schema string) {
	t.Helper()
	if err := migrations.CreateViews(ctx, pool, schema); err != nil {
		t.Fatal(err)
	}
}
