package projections

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// TableContents is what a table holds: how many rows, and a hash over them that
// doesn't depend on their order.
type TableContents struct {
	Name string
	Rows int64
	Hash string
}

// Difference is a table whose contents aren't those of a fresh build.
type Difference struct {
	Table string
	// Live is what was there, Fresh what the log gives; a table that one of them
	// lacks has -1 rows.
	Live, Fresh TableContents
}

// String names the table and both counts.
func (d Difference) String() string {
	return fmt.Sprintf("%s: live %d rows, fresh %d rows", d.Table, d.Live.Rows, d.Fresh.Rows)
}

// contents sums up every table of a schema, by name. The checkpoint's updated_at is
// left out: it is the clock's.
func contents(ctx context.Context, tx pgx.Tx, schema string) ([]TableContents, error) {
	rows, err := tx.Query(ctx, `SELECT tablename::text FROM pg_tables WHERE schemaname = $1 ORDER BY tablename`, schema)
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	tables := make([]TableContents, len(names))
	for i, name := range names {
		row := "t::text"
		if name == "checkpoint" {
			row = "(t.name, t.epoch, t.seq, t.hash)::text"
		}
		// Two sums of different hashes: rows that cancel out in both are not by chance.
		query := fmt.Sprintf(`SELECT count(*), coalesce(sum(hashtextextended(%[1]s, 1))::text, '') || ':' ||
			coalesce(sum(hashtextextended(%[1]s, 2))::text, '') FROM %[2]s t`, row, pgx.Identifier{schema, name}.Sanitize())
		tables[i].Name = name
		if err := tx.QueryRow(ctx, query).Scan(&tables[i].Rows, &tables[i].Hash); err != nil {
			return nil, fmt.Errorf("sum up %s: %w", name, err)
		}
	}
	return tables, nil
}

// differences compares two schemas' tables.
func differences(live, fresh []TableContents) []Difference {
	byName := map[string]TableContents{}
	for _, t := range live {
		byName[t.Name] = t
	}
	var found []Difference
	for _, f := range fresh {
		l, ok := byName[f.Name]
		delete(byName, f.Name)
		if !ok {
			l = TableContents{Name: f.Name, Rows: -1}
		}
		if l != f {
			found = append(found, Difference{Table: f.Name, Live: l, Fresh: f})
		}
	}
	for _, t := range live {
		if l, ok := byName[t.Name]; ok {
			found = append(found, Difference{Table: t.Name, Live: l, Fresh: TableContents{Name: t.Name, Rows: -1}})
		}
	}
	return found
}
