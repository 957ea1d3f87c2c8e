package projections

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Errors of the Reader that callers branch on.
var (
	// ErrUnavailable says that Postgres can't be asked now (history-unavailable).
	ErrUnavailable = errors.New("the read models can't be read now")
	// ErrBehind says that a projection didn't reach a sequence in time
	// (projection-behind).
	ErrBehind = errors.New("the read models are behind")
	// ErrNotFound says that the tenant has no such thing.
	ErrNotFound = errors.New("not found")
)

// Mismatch says how a checkpoint and a log fail to fit.
type Mismatch string

// The ways.
const (
	// MismatchEpoch: the read models are of another log, or of this one before it
	// was restored.
	MismatchEpoch Mismatch = "epoch"
	// MismatchBehind: the log ends before the checkpoint; it was restored from an
	// older copy, or emptied.
	MismatchBehind Mismatch = "behind"
	// MismatchHash: the log has another message at the checkpoint.
	MismatchHash Mismatch = "hash"
)

// CheckpointError says that the read models are not of this log: nothing is
// written and nothing may be swept until an operator has rebuilt them, or has
// restored the log that they belong to.
type CheckpointError struct {
	Mismatch Mismatch
	// Epoch and Seq are the checkpoint's, LogEpoch and LogSeq the log's (LogSeq its
	// last sequence).
	Epoch, LogEpoch string
	Seq, LogSeq     uint64
}

// Error says what doesn't fit and what to do.
func (e *CheckpointError) Error() string {
	const way = "; restore the log, or run 'holdfast projections rebuild'"
	switch e.Mismatch {
	case MismatchEpoch:
		return fmt.Sprintf("the read models are of epoch %q, the log is of %q%s", e.Epoch, e.LogEpoch, way)
	case MismatchBehind:
		return fmt.Sprintf("the read models are at sequence %d, the log ends at %d%s", e.Seq, e.LogSeq, way)
	case MismatchHash:
		return fmt.Sprintf("the log has another message at sequence %d than the read models%s", e.Seq, way)
	}
	return fmt.Sprintf("the read models don't fit the log (%s)%s", e.Mismatch, way)
}

// errFenced says that the checkpoint isn't where this projector left it.
var errFenced = errors.New("the checkpoint was moved by another projector")

// readError turns an error of Postgres into one of this package's.
func readError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgx.ErrNoRows):
		return ErrNotFound
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case unavailable(err):
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}

// unavailable says whether an error is of the way to Postgres or of its state, so
// that the same may work later. Anything else is about what was asked.
func unavailable(err error) bool {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		// Connection exceptions, resources, operator intervention, serialisation.
		for _, class := range []string{"08", "53", "57", "58", "40", "55"} {
			if strings.HasPrefix(pgErr.Code, class) {
				return true
			}
		}
		return false
	}
	var connect *pgconn.ConnectError
	var network net.Error
	return errors.As(err, &connect) || errors.As(err, &network) || !dataError(err)
}

// dataError says that Postgres refused what a row holds: it will refuse it again.
func dataError(err error) bool {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return false
	}
	// Data exceptions, integrity constraints, a program limit (nesting too deep).
	return strings.HasPrefix(pgErr.Code, "22") || strings.HasPrefix(pgErr.Code, "23") || strings.HasPrefix(pgErr.Code, "54")
}
