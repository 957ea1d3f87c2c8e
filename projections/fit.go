package projections

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/projections/internal/dbsqlc"
)

// fits checks that a log still has the message that a checkpoint ends with. A
// *CheckpointError says that it hasn't; any other error, that it can't be known now.
func fits(ctx context.Context, log eventlog.Log, cp checkpoint) error {
	info, err := log.Info(ctx)
	if errors.Is(err, eventlog.ErrNoGenesis) {
		return &CheckpointError{Mismatch: MismatchBehind, Epoch: cp.epoch, Seq: cp.seq}
	}
	if err != nil {
		return fmt.Errorf("read the log's identity: %w", err)
	}
	mismatch := &CheckpointError{Epoch: cp.epoch, Seq: cp.seq, LogEpoch: info.Genesis.Epoch, LogSeq: info.LastSeq}
	switch {
	case cp.epoch != info.Genesis.Epoch:
		mismatch.Mismatch = MismatchEpoch
		return mismatch
	case cp.seq > info.LastSeq:
		mismatch.Mismatch = MismatchBehind
		return mismatch
	case cp.seq == 0:
		return nil
	}
	m, err := log.Get(ctx, cp.seq)
	if errors.Is(err, eventlog.ErrNotFound) || err == nil && !bytes.Equal(hashOf(m.Raw), cp.hash) {
		mismatch.Mismatch = MismatchHash
		return mismatch
	}
	if err != nil {
		return fmt.Errorf("read the log at the checkpoint: %w", err)
	}
	return nil
}

// readCheckpoint reads the place of the read models; ok is false where there is none.
func readCheckpoint(ctx context.Context, db dbsqlc.DBTX) (cp checkpoint, ok bool, err error) {
	row, err := dbsqlc.New(db).Checkpoint(ctx, checkpointEvents)
	if errors.Is(err, pgx.ErrNoRows) {
		return checkpoint{}, false, nil
	}
	if err != nil {
		return checkpoint{}, false, fmt.Errorf("read the checkpoint: %w", err)
	}
	return checkpoint{epoch: row.Epoch, seq: uint64(row.Seq), hash: row.Hash}, true, nil
}

// openCheckpoint reads the place, making it where the read models are new, and
// checks that the log fits.
func openCheckpoint(ctx context.Context, db dbsqlc.DBTX, log eventlog.Log) (checkpoint, error) {
	cp, ok, err := readCheckpoint(ctx, db)
	if err != nil {
		return checkpoint{}, err
	}
	if !ok {
		info, err := log.Info(ctx)
		if err != nil {
			return checkpoint{}, fmt.Errorf("read the log's identity: %w", err)
		}
		start := dbsqlc.StartCheckpointParams{Name: checkpointEvents, Epoch: info.Genesis.Epoch}
		if err := dbsqlc.New(db).StartCheckpoint(ctx, start); err != nil {
			return checkpoint{}, fmt.Errorf("start the checkpoint: %w", err)
		}
		if cp, _, err = readCheckpoint(ctx, db); err != nil {
			return checkpoint{}, err
		}
	}
	return cp, fits(ctx, log, cp)
}
