package projections

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast/migrations"
	"github.com/holdfast-io/holdfast/migrations/pgtest"
)

// BenchmarkProjector projects whole sessions; its baseline is COPY of the very rows
// that come out, in batches of the same size, into the same indexed tables.
func BenchmarkProjector(b *testing.B) {
	log := newLog()
	s := newScribe(b, log)
	var last uint64
	for i := range 1000 {
		s.create(sid(i))
		s.ready(sid(i))
		last = s.answer(sid(i), s.ask(sid(i)))
	}
	var projected, copied time.Duration
	for b.Loop() {
		pool := pgtest.Pool(b)
		began := time.Now()
		p, stop := project(b, Config{Log: log, Pool: pool, CheckEvery: time.Minute})
		if err := p.WaitFor(timeout(b), last); err != nil {
			b.Fatal(err)
		}
		projected += time.Since(began)
		stop()
		copied += copyRows(b, pool, pgtest.Pool(b))
	}
	b.ReportMetric(float64(last)*float64(b.N)/projected.Seconds(), "messages/s")
	b.ReportMetric(copied.Seconds()/projected.Seconds(), "ratio-to-COPY")
}

// copyRows copies all read models to another database, 2000 messages' worth a
// transaction, and gives the time that the writing took.
func copyRows(b *testing.B, from, to *pgxpool.Pool) (took time.Duration) {
	b.Helper()
	ctx := b.Context()
	const portions = 9 // 18,000 messages in batches of 2000
	for _, t := range summed(b, from) {
		rows, err := from.Query(ctx, "TABLE "+pgx.Identifier{migrations.Views, t.Name}.Sanitize(), pgx.QueryResultFormats{pgx.BinaryFormatCode})
		if err != nil {
			b.Fatal(err)
		}
		columns := column(rows.FieldDescriptions(), func(f pgconn.FieldDescription) string { return f.Name })
		all, err := pgx.CollectRows(rows, asStored)
		if err != nil {
			b.Fatal(err)
		}
		size := max(1, (len(all)+portions-1)/portions)
		began := time.Now()
		for len(all) > 0 {
			n := min(size, len(all))
			if _, err := to.CopyFrom(ctx, pgx.Identifier{t.Name}, columns, pgx.CopyFromRows(all[:n])); err != nil {
				b.Fatal(fmt.Errorf("copy %s: %w", t.Name, err))
			}
			all = all[n:]
		}
		took += time.Since(began)
	}
	return took
}

// asStored gives a row's values as COPY takes them: documents as their bytes.
func asStored(row pgx.CollectableRow) ([]any, error) {
	values, err := row.Values()
	for i, f := range row.FieldDescriptions() {
		switch f.DataTypeOID {
		case pgtype.JSONOID:
			values[i] = append([]byte(nil), row.RawValues()[i]...)
			if row.RawValues()[i] == nil {
				values[i] = nil
			}
		case pgtype.JSONBOID:
			values[i] = append([]byte(nil), row.RawValues()[i][1:]...) // after its version
		}
	}
	return values, err
}
