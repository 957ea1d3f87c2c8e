package projections

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/projections/internal/dbsqlc"
)

// checkpointEvents and checkpointOutput name the projectors' rows.
const (
	checkpointEvents = "events"
	checkpointOutput = "output"
)

// beginner is a pool, a connection, or a transaction to begin one inside of.
type beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// rendered is a batch whose rows are made: it shares nothing with the folds, which
// go on meanwhile.
type rendered struct {
	*batch
	sessions  dbsqlc.UpsertSessionsParams
	deadlines dbsqlc.InsertDeadlinesParams
	workloads dbsqlc.UpsertWorkloadsParams
	runs      dbsqlc.UpsertRunsParams
	said      dbsqlc.InsertMessagesParams
	calls     dbsqlc.UpsertCallsParams
	approvals dbsqlc.UpsertApprovalsParams
}

func (b *batch) render() *rendered {
	return &rendered{
		batch: b, sessions: b.sessionRows(), deadlines: b.deadlineRows(), workloads: b.workloadRows(), runs: b.runRows(),
		said: b.messageRows(), calls: b.callRows(), approvals: b.approvalRows(),
	}
}

// write commits the batch if the checkpoint is still old, else errFenced.
func (r *rendered) write(ctx context.Context, db beginner, old checkpoint) error {
	return inTx(ctx, db, func(q *dbsqlc.Queries) error {
		moved, err := q.MoveCheckpoint(ctx, dbsqlc.MoveCheckpointParams{
			Name: checkpointEvents, Epoch: old.epoch, OldSeq: int64(old.seq), Seq: int64(r.last.seq), Hash: r.last.hash,
		})
		if err != nil {
			return fmt.Errorf("move the checkpoint: %w", err)
		}
		if moved == 0 {
			return errFenced
		}
		for _, step := range []func(context.Context, *dbsqlc.Queries) error{
			r.writeLog, r.writeSessions, r.writeParts, r.writeDefinitions,
		} {
			if err := step(ctx, q); err != nil {
				return err
			}
		}
		return announce(ctx, q, r.last.seq)
	})
}

// inTx runs write in a transaction that doesn't wait for the disk at its commit: a
// crash of Postgres can only take back whole transactions, rows and checkpoint
// together, and the log has them still.
func inTx(ctx context.Context, db beginner, write func(*dbsqlc.Queries) error) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL synchronous_commit TO off"); err != nil {
			return fmt.Errorf("begin: %w", err)
		}
		return write(dbsqlc.New(tx))
	})
}

// announce tells readers that wait for a sequence (LISTEN/NOTIFY) at the commit.
func announce(ctx context.Context, q *dbsqlc.Queries, seq uint64) error {
	err := q.Announce(ctx, strconv.FormatUint(seq, 10))
	if err != nil {
		return fmt.Errorf("announce: %w", err)
	}
	return nil
}

func (b *batch) writeLog(ctx context.Context, q *dbsqlc.Queries) error {
	if _, err := q.InsertEnvelopes(ctx, b.envelopes); err != nil {
		return fmt.Errorf("write envelopes: %w", err)
	}
	if _, err := q.InsertAudit(ctx, b.audit); err != nil {
		return fmt.Errorf("write audit: %w", err)
	}
	if len(b.timeline) > 0 {
		if _, err := q.InsertTimeline(ctx, b.timeline); err != nil {
			return fmt.Errorf("write timeline: %w", err)
		}
	}
	for _, subject := range b.healed {
		if err := q.DeleteFault(ctx, subject); err != nil {
			return fmt.Errorf("delete fault: %w", err)
		}
	}
	for _, f := range b.faults {
		if err := q.InsertFault(ctx, f); err != nil {
			return fmt.Errorf("write fault: %w", err)
		}
	}
	return nil
}

func (r *rendered) writeSessions(ctx context.Context, q *dbsqlc.Queries) error {
	if len(r.sessions.Ids) == 0 {
		return nil
	}
	if err := q.UpsertSessions(ctx, r.sessions); err != nil {
		return fmt.Errorf("write sessions: %w", err)
	}
	gone := dbsqlc.DeleteDeadlinesParams{Tenants: r.sessions.Tenants, Sessions: r.sessions.Ids}
	if err := q.DeleteDeadlines(ctx, gone); err != nil {
		return fmt.Errorf("delete deadlines: %w", err)
	}
	if len(r.deadlines.Kinds) > 0 {
		if err := q.InsertDeadlines(ctx, r.deadlines); err != nil {
			return fmt.Errorf("write deadlines: %w", err)
		}
	}
	return nil
}

// writeParts writes what belongs to sessions; most batches lack some of it.
func (r *rendered) writeParts(ctx context.Context, q *dbsqlc.Queries) error {
	if len(r.workloads.Sessions) > 0 {
		if err := q.UpsertWorkloads(ctx, r.workloads); err != nil {
			return fmt.Errorf("write workloads: %w", err)
		}
	}
	if len(r.runs.Ids) > 0 {
		if err := q.UpsertRuns(ctx, r.runs); err != nil {
			return fmt.Errorf("write runs: %w", err)
		}
	}
	if len(r.said.Ids) > 0 {
		if err := q.InsertMessages(ctx, r.said); err != nil {
			return fmt.Errorf("write messages: %w", err)
		}
	}
	if len(r.calls.Ids) > 0 {
		if err := q.UpsertCalls(ctx, r.calls); err != nil {
			return fmt.Errorf("write calls: %w", err)
		}
	}
	if len(r.approvals.Ids) > 0 {
		if err := q.UpsertApprovals(ctx, r.approvals); err != nil {
			return fmt.Errorf("write approvals: %w", err)
		}
	}
	return nil
}

func (b *batch) writeDefinitions(ctx context.Context, q *dbsqlc.Queries) error {
	for _, d := range b.definitions {
		var err error
		if d.kind == events.AggregateRuntime {
			err = q.RetireRuntime(ctx, dbsqlc.RetireRuntimeParams{Tenant: d.tenant, Name: d.name})
			if err == nil {
				err = q.InsertRuntime(ctx, dbsqlc.InsertRuntimeParams{
					Tenant: d.tenant, Name: d.name, Revision: int64(d.n), Spec: d.spec, Removed: d.removed,
					AppliedBy: d.by, At: d.at, N: int64(d.n), Seq: int64(d.seq),
				})
			}
		} else {
			err = q.RetirePolicy(ctx, dbsqlc.RetirePolicyParams{Tenant: d.tenant, Name: d.name})
			if err == nil {
				err = q.InsertPolicy(ctx, dbsqlc.InsertPolicyParams{
					Tenant: d.tenant, Name: d.name, Revision: int64(d.n), Spec: d.spec, Removed: d.removed,
					AppliedBy: d.by, At: d.at, N: int64(d.n), Seq: int64(d.seq),
				})
			}
		}
		if err != nil {
			return fmt.Errorf("write %s %s: %w", d.kind, d.name, err)
		}
	}
	return nil
}
