package projections

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/projections/internal/dbsqlc"
)

// database is a connection, or a transaction to write inside of.
type database interface {
	dbsqlc.DBTX
	beginner
}

// writer turns messages into committed rows, from at on.
type writer struct {
	log     *slog.Logger
	db      database
	folds   *folds
	at      checkpoint
	reached func(seq uint64)
}

// project commits the messages, which follow what is committed. Where Postgres
// refuses what a row holds, it finds the message by projecting one at a time, and
// gives that one's subject up. Other errors mean to start over from the checkpoint.
func (w *writer) project(ctx context.Context, ms []events.Message) error {
	err := w.commit(ctx, ms, nil)
	if !dataError(err) {
		return err
	}
	if len(ms) == 1 {
		w.log.Error("a message can't be projected, its subject is given up", "subject", ms[0].Subject, "seq", ms[0].Seq, "error", err)
		return w.commit(ctx, ms, err)
	}
	for i := range ms {
		if err := w.project(ctx, ms[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// commit makes the messages' rows and commits them. refuse is as for batch.add.
func (w *writer) commit(ctx context.Context, ms []events.Message, refuse error) error {
	faulted, err := w.faulted(ctx, ms)
	if err != nil {
		return err
	}
	r, err := w.prepare(ctx, ms, faulted, refuse)
	if err != nil {
		return err
	}
	return w.write(ctx, r)
}

// prepare folds the messages in and makes their rows. It uses no connection but the
// folds', so that the rows of one batch are made while those before are written.
func (w *writer) prepare(ctx context.Context, ms []events.Message, faulted map[string]bool, refuse error) (*rendered, error) {
	b := newBatch()
	for _, m := range ms {
		if err := b.add(ctx, w.folds, m, faulted, refuse); err != nil {
			return nil, err
		}
	}
	for subject, f := range b.faults {
		w.log.Error("events can't be followed, their subject is given up", "subject", subject, "seq", f.Seq, "cause", f.Cause)
	}
	return b.render(), nil
}

// write commits rows that follow what is committed.
func (w *writer) write(ctx context.Context, r *rendered) error {
	r.last.epoch = w.at.epoch
	if err := r.write(ctx, w.db, w.at); err != nil && !w.committed(ctx, r.last, err) {
		return err
	}
	w.at = r.last
	w.reached(w.at.seq)
	return nil
}

// committed says whether a failed commit took effect after all: its reply was lost,
// or another projector wrote the very same.
func (w *writer) committed(ctx context.Context, want checkpoint, err error) bool {
	if dataError(err) {
		return false
	}
	cp, ok, err := readCheckpoint(ctx, w.db)
	return err == nil && ok && cp.epoch == want.epoch && cp.seq == want.seq && bytes.Equal(cp.hash, want.hash)
}

// faulted finds which of the messages' subjects are given up.
func (w *writer) faulted(ctx context.Context, ms []events.Message) (map[string]bool, error) {
	return faultedOf(ctx, w.db, ms)
}

func faultedOf(ctx context.Context, db dbsqlc.DBTX, ms []events.Message) (map[string]bool, error) {
	seen := map[string]bool{}
	var subjects []string
	for _, m := range ms {
		if !seen[m.Subject] {
			seen[m.Subject] = true
			subjects = append(subjects, m.Subject)
		}
	}
	found, err := dbsqlc.New(db).Faulted(ctx, subjects)
	if err != nil {
		return nil, fmt.Errorf("read faults: %w", err)
	}
	faulted := map[string]bool{}
	for _, s := range found {
		faulted[s] = true
	}
	return faulted, nil
}
