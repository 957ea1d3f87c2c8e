package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// table is a table's rows in COPY's binary format, cut into portions that are each
// a whole stream.
type table struct {
	name     string
	portions [][]byte
}

// copyAgain copies all rows of a schema into the same tables of a new one, in so
// many transactions, and gives how long that took. The rows are in memory before.
func copyAgain(ctx context.Context, from migrated, transactions int) (time.Duration, error) {
	tables, err := dump(ctx, from, transactions)
	if err != nil {
		return 0, err
	}
	into := migrated{dsn: from.dsn, schema: from.schema + "_copied"}
	pool, err := into.open(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	begin := time.Now()
	for i := range transactions {
		if err := copyPortion(ctx, conn.Conn(), tables, i); err != nil {
			return 0, err
		}
	}
	return time.Since(begin), nil
}

// copyPortion writes one portion of every table in a transaction that is as durable
// as the projector's.
func copyPortion(ctx context.Context, conn *pgx.Conn, tables []table, i int) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL synchronous_commit TO off"); err != nil {
			return err
		}
		for _, t := range tables {
			if len(t.portions[i]) == 0 {
				continue
			}
			sql := "COPY " + pgx.Identifier{t.name}.Sanitize() + " FROM STDIN (FORMAT binary)"
			if _, err := conn.PgConn().CopyFrom(ctx, bytes.NewReader(t.portions[i]), sql); err != nil {
				return fmt.Errorf("copy %s: %w", t.name, err)
			}
		}
		return nil
	})
}

// dump reads all tables of a schema.
func dump(ctx context.Context, from migrated, portions int) ([]table, error) {
	conf, err := pgxpool.ParseConfig(from.dsn)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, conf.ConnConfig)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, "SELECT tablename FROM pg_tables WHERE schemaname = $1 ORDER BY tablename", from.schema)
	if err != nil {
		return nil, err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	var tables []table
	for _, name := range names {
		var all bytes.Buffer
		if err := copyOut(ctx, conn.PgConn(), &all, pgx.Identifier{from.schema, name}.Sanitize()); err != nil {
			return nil, fmt.Errorf("dump %s: %w", name, err)
		}
		cut, err := cutBinary(all.Bytes(), portions)
		if err != nil {
			return nil, fmt.Errorf("dump %s: %w", name, err)
		}
		tables = append(tables, table{name: name, portions: cut})
	}
	return tables, nil
}

func copyOut(ctx context.Context, conn *pgconn.PgConn, to *bytes.Buffer, name string) error {
	_, err := conn.CopyTo(ctx, to, "COPY "+name+" TO STDOUT (FORMAT binary)")
	return err
}

// errBinary says that something isn't COPY's binary format.
var errBinary = errors.New("not COPY's binary format")

// headerBytes is the length of the format's header without an extension: eleven
// bytes of signature, flags, and the extension's length.
const headerBytes = 11 + 4 + 4

// cutBinary cuts COPY's binary format between rows into portions of about as many
// rows each; a portion without rows is empty.
//
//	header, then for each row: int16 fields, for each field: int32 length (-1: NULL), bytes; then int16 -1
func cutBinary(all []byte, portions int) ([][]byte, error) {
	if len(all) < headerBytes {
		return nil, errBinary
	}
	header, rest := all[:headerBytes], all[headerBytes:]
	var rows [][]byte
	for {
		size, end, err := rowSize(rest)
		if err != nil {
			return nil, err
		}
		if end {
			break
		}
		rows, rest = append(rows, rest[:size]), rest[size:]
	}
	cut := make([][]byte, portions)
	for i := range cut {
		part := rows[i*len(rows)/portions : (i+1)*len(rows)/portions]
		if len(part) == 0 {
			continue
		}
		cut[i] = bytes.Join([][]byte{header, bytes.Join(part, nil), {0xff, 0xff}}, nil)
	}
	return cut, nil
}

// rowSize is how many bytes the first row has; end says that there is none.
func rowSize(b []byte) (size int, end bool, err error) {
	if len(b) < 2 {
		return 0, false, errBinary
	}
	fields := int(int16(binary.BigEndian.Uint16(b)))
	if fields < 0 {
		return 0, true, nil
	}
	size = 2
	for range fields {
		if len(b) < size+4 {
			return 0, false, errBinary
		}
		length := int(int32(binary.BigEndian.Uint32(b[size:])))
		size += 4 + max(length, 0)
	}
	if size > len(b) {
		return 0, false, errBinary
	}
	return size, false, nil
}
