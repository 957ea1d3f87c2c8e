package projections

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast/projections/internal/dbsqlc"
	"github.com/holdfast-io/holdfast/projections/view"
)

// OutputBatch is one kept OUTPUT message, masked. What a reader had of an earlier
// batch is not in it.
type OutputBatch struct {
	Seq           uint64
	Run           string
	FirstK, LastK uint64
	After         uint64
	Time          time.Time
	// Events is a JSON array of AG-UI events.
	Events json.RawMessage
}

// Output gives up to limit batches of a session after an OUTPUT sequence. More says that
// there are others behind them: where the batches are large, fewer than limit come.
func (r *Reader) Output(ctx context.Context, tenant, session string, after uint64, limit int) (batches []OutputBatch, more bool, err error) {
	mask, err := r.mask(ctx, tenant, session)
	if err != nil {
		return nil, false, err
	}
	limit = Page{Limit: limit}.limit()
	rows, err := r.q.Output(ctx, dbsqlc.OutputParams{
		Tenant: tenant, Session: clean(session), Epoch: r.cfg.Epoch, After: int64(min(after, last.N)), Most: int32(limit + 1),
		Bytes: pageBytes,
	})
	if err != nil {
		return nil, false, readError(err)
	}
	if n := len(rows); n > 0 {
		more = n > limit || int64(n) < rows[0].Found
	}
	return column(rows[:min(limit, len(rows))], func(o dbsqlc.OutputRow) OutputBatch {
		return OutputBatch{
			Seq: uint64(o.Seq), Run: o.Run, FirstK: uint64(o.FirstK), LastK: uint64(o.LastK), After: uint64(o.AfterN), Time: o.At,
			Events: maskBatch(mask, o.Data),
		}
	}), more, nil
}

// OutputBehind gives the OUTPUT sequence of a session's last copied batch that was
// written before its version went beyond n; 0 where there is none. What came since
// stands behind it.
func (r *Reader) OutputBehind(ctx context.Context, tenant, session string, n uint64) (uint64, error) {
	seq, err := r.q.OutputBehind(ctx, dbsqlc.OutputBehindParams{
		Tenant: tenant, Session: clean(session), Epoch: r.cfg.Epoch, N: int64(min(n, last.N)),
	})
	if err != nil {
		return 0, readError(err)
	}
	return uint64(seq), nil
}

// maskBatch masks a kept array of events.
func maskBatch(mask view.Masker, data []byte) json.RawMessage {
	var batch []json.RawMessage
	if err := json.Unmarshal(data, &batch); err != nil {
		return mask.JSON(data) // not written by the projector
	}
	return view.Agui(mask, batch)
}

// OutputExtent tells up to which OUTPUT sequence everything was copied, and up to
// which what a session said has aged out of the copy; 0 where nothing has. Read it
// before Output: what comes later is then at most copied as well.
func (r *Reader) OutputExtent(ctx context.Context, tenant, session string) (reached, gone uint64, err error) {
	row, err := r.q.OutputCheckpoint(ctx, checkpointOutput)
	switch {
	case errors.Is(err, pgx.ErrNoRows): // nothing was copied yet
	case err != nil:
		return 0, 0, readError(err)
	case row.Epoch == r.cfg.Epoch:
		reached = uint64(row.Seq)
	}
	floor, err := r.q.OutputFloor(ctx, dbsqlc.OutputFloorParams{Tenant: tenant, Session: clean(session)})
	if err != nil {
		return 0, 0, readError(err)
	}
	return reached, uint64(floor), nil
}
