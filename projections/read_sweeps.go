package projections

import (
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/projections/internal/dbsqlc"
)

// SessionKey names a session of a tenant.
type SessionKey struct{ Tenant, Session string }

// DueDeadline is a deadline that has passed, with its session.
type DueDeadline struct {
	SessionKey
	session.Deadline
}

// Fault is a subject that the projector has given up, and why.
type Fault struct {
	Tenant    string
	Aggregate events.Aggregate
	// Key is the session's id, or the runtime's or policy's name.
	Key   string
	Seq   uint64
	Cause string
}

// fitFor is how long a log that fitted is taken to fit: sweeps come once a second.
const fitFor = 5 * time.Second

// Fits says whether the read models are of the log, message for message: a
// *CheckpointError says that they aren't, and that nothing may be swept by them.
func (r *Reader) Fits(ctx context.Context) error {
	r.fitMu.Lock()
	defer r.fitMu.Unlock()
	if time.Since(r.fitAt) < fitFor {
		return nil
	}
	cp, ok, err := readCheckpoint(ctx, r.cfg.Pool)
	if err != nil {
		return readError(err)
	}
	if !ok {
		return nil // there is nothing to sweep by
	}
	if cp.epoch != r.cfg.Epoch {
		return &CheckpointError{Mismatch: MismatchEpoch, Epoch: cp.epoch, Seq: cp.seq, LogEpoch: r.cfg.Epoch}
	}
	if r.cfg.Log != nil {
		if err := fits(ctx, r.cfg.Log, cp); err != nil {
			return err
		}
	}
	r.fitAt = time.Now()
	return nil
}

// Due lists up to limit deadlines of a service that have passed at now, of all
// tenants, the longest past first, but those of sessions that the projector has given
// up. A *CheckpointError says that nothing may be swept.
func (r *Reader) Due(ctx context.Context, service events.Service, now time.Time, limit int) ([]DueDeadline, error) {
	if err := r.Fits(ctx); err != nil {
		return nil, err
	}
	rows, err := r.q.Due(ctx, dbsqlc.DueParams{
		Service: string(service), Now: now, Checkpoint: checkpointEvents, Epoch: r.cfg.Epoch, Most: int32(min(max(limit, 0), math.MaxInt32)),
	})
	if err != nil {
		return nil, readError(err)
	}
	return column(rows, func(d dbsqlc.Deadline) DueDeadline {
		return DueDeadline{
			SessionKey{d.Tenant, d.Session},
			session.Deadline{Kind: session.DeadlineKind(d.Kind), Key: d.Key, Service: events.Service(d.Service), At: d.DueAt},
		}
	}), nil
}

// Unsettled lists the sessions, of all tenants, for which a service has something
// to do. A *CheckpointError says that nothing may be swept.
func (r *Reader) Unsettled(ctx context.Context, service events.Service) ([]SessionKey, error) {
	if err := r.Fits(ctx); err != nil {
		return nil, err
	}
	const page = 1000
	var keys []SessionKey
	var at SessionKey
	for {
		rows, err := r.q.Unsettled(ctx, dbsqlc.UnsettledParams{
			Service: string(service), AfterTenant: at.Tenant, AfterID: at.Session, Most: page,
		})
		if err != nil {
			return nil, readError(err)
		}
		for _, row := range rows {
			at = SessionKey{row.Tenant, row.ID}
			keys = append(keys, at)
		}
		if len(rows) < page {
			return keys, nil
		}
	}
}

// Faults lists a tenant's subjects that the projector has given up.
func (r *Reader) Faults(ctx context.Context, tenant string) ([]Fault, error) {
	rows, err := r.q.Faults(ctx, tenant)
	if err != nil {
		return nil, readError(err)
	}
	return column(rows, func(f dbsqlc.Fault) Fault {
		return Fault{Tenant: f.Tenant, Aggregate: events.Aggregate(f.Aggregate), Key: f.Key, Seq: uint64(f.Seq), Cause: f.Cause}
	}), nil
}

// FaultCount counts the subjects that the projector has given up, of all tenants.
func (r *Reader) FaultCount(ctx context.Context) (int64, error) {
	n, err := r.q.FaultCount(ctx)
	return n, readError(err)
}

// Envelopes is the copy of the log that loads are warmed from (eventlog.Copy).
type Envelopes struct{ q *dbsqlc.Queries }

var _ eventlog.Copy = Envelopes{}

// NewEnvelopes reads the copy through a pool.
func NewEnvelopes(pool *pgxpool.Pool) Envelopes { return Envelopes{q: dbsqlc.New(pool)} }

// Envelopes gives a subject's messages in order, none where the copy is of another
// epoch.
func (e Envelopes) Envelopes(ctx context.Context, epoch, subject string) ([]events.Message, error) {
	rows, err := e.q.Envelopes(ctx, dbsqlc.EnvelopesParams{Subject: subject, Checkpoint: checkpointEvents, Epoch: epoch})
	if err != nil {
		return nil, readError(err)
	}
	return column(rows, func(row dbsqlc.EnvelopesRow) events.Message { return message(row.Subject, row.Seq, row.Raw) }), nil
}

// Envelopes makes the Reader an eventlog.Copy.
func (r *Reader) Envelopes(ctx context.Context, epoch, subject string) ([]events.Message, error) {
	return Envelopes{q: r.q}.Envelopes(ctx, epoch, subject)
}
