// Package migrations owns the schema of Holdfast's Postgres: embedded SQL,
// applied in order by goose under a session lock, so that any number of
// processes may call [Up] at the same moment.
//
// # Two schemas
//
// The read models are rebuildable from EVENTS, and a rebuild builds beside the
// live ones and swaps in one transaction. So they live in a Postgres schema of
// their own, [Views], checkpoint included, and nothing in their SQL names a
// schema: the same files make any schema ([CreateViews]), and queries reach
// them by unqualified names through the connection's search_path
// ([SearchPath]). A swap ([SwapViews]) is a rename of two schemas.
//
// What cannot be built again (OUTPUT's copy, which ages out, with its own
// checkpoint, and goose's version table) lives in public and is untouched by a
// swap.
//
//	sql/views/NNNNN_*.sql   plain SQL, run in whichever views schema is meant
//	sql/public/NNNNN_*.sql  goose SQL, run in public
//
// The numbers of both folders are one sequence. A change of the read models is
// a new file in sql/views: [Up] runs it in the live schema and CreateViews runs
// all of them in order in a new one, so that both always have the same shape.
//
// # What a projector must keep to
//
// Its transaction begins with the fenced update of its checkpoint row
//
//	UPDATE checkpoint SET … WHERE name = $1 AND seq = $2 AND epoch = $3
//
// and only then writes rows. The update fences off a stale leader, and because
// a swap locks the checkpoint tables first, it also keeps a transaction from
// writing its rows to one schema and its checkpoint to another.
//
// # Old and new code
//
// Migrations only go forward, and each is safe for the code before it and
// after it: columns are added with a default, and dropped a release after the
// last reader is gone. A database that is ahead of the binary is not an error.
package migrations
