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
	b := newBatch()
	b.last.epoch = w.at.epoch
	for _, m := range ms {
		if err := b.add(ctx, w.folds, m, faulted, refuse); err != nil {
			return err
		}
	}
	for subject, f := range b.faults {
		w.log.Error("a session's events can't be followed", "subject", subject, "seq", f.Seq, "cause", f.Cause)
	}
	if err := b.write(ctx, w.db, w.at); err != nil {
		if !w.committed(ctx, b.last, err) {
			return err
		}
	}
	w.at = b.last
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
	seen := map[string]bool{}
	var subjects []string
	for _, m := range ms {
		if !seen[m.Subject] {
			seen[m.Subject] = true
			subjects = append(subjects, m.Subject)
		}
	}
	found, err := dbsqlc.New(w.db).Faulted(ctx, subjects)
	if err != nil {
		return nil, fmt.Errorf("read faults: %w", err)
	}
	faulted := map[string]bool{}
	for _, s := range found {
		faulted[s] = true
	}
	return faulted, nil
}
