package projections

import (
	"context"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/projections/internal/dbsqlc"
	"github.com/holdfast-io/holdfast/projections/view"
)

// ApprovalFilter narrows a list of approvals; what is left zero doesn't.
type ApprovalFilter struct {
	States  []session.CallState
	Session string
}

// Approvals lists a tenant's questions: those that are pending alone by their
// deadline, nearest first, else newest first.
func (r *Reader) Approvals(ctx context.Context, tenant string, f ApprovalFilter, p Page) (List[view.Approval], error) {
	if len(f.States) == 1 && f.States[0] == session.CallStatePending {
		return r.pending(ctx, tenant, f.Session, p)
	}
	const name = "approvals"
	at, err := p.from(name, last)
	if err != nil {
		return List[view.Approval]{}, err
	}
	rows, err := r.q.Approvals(ctx, dbsqlc.ApprovalsParams{
		Tenant: tenant, Session: clean(f.Session), BeforeAt: at.At, BeforeID: at.ID, Most: int32(p.limit() + 1), Bytes: pageBytes,
		States: texts(f.States, func(s session.CallState) string { return string(s) }),
	})
	if err != nil {
		return List[view.Approval]{}, readError(err)
	}
	return listBytes(name, rows, p.limit(), func(row dbsqlc.ApprovalsRow) int64 { return row.Found },
		func(row dbsqlc.ApprovalsRow) (view.Approval, error) { return decode[view.Approval](row.View) },
		func(row dbsqlc.ApprovalsRow) place { return place{At: row.AskedAt, ID: row.ID} })
}

func (r *Reader) pending(ctx context.Context, tenant, session string, p Page) (List[view.Approval], error) {
	const name = "inbox"
	at, err := p.from(name, place{})
	if err != nil {
		return List[view.Approval]{}, err
	}
	rows, err := r.q.PendingApprovals(ctx, dbsqlc.PendingApprovalsParams{
		Tenant: tenant, Session: clean(session), AfterAt: at.At, AfterID: at.ID, Most: int32(p.limit() + 1), Bytes: pageBytes,
	})
	if err != nil {
		return List[view.Approval]{}, readError(err)
	}
	return listBytes(name, rows, p.limit(), func(row dbsqlc.PendingApprovalsRow) int64 { return row.Found },
		func(row dbsqlc.PendingApprovalsRow) (view.Approval, error) { return decode[view.Approval](row.View) },
		func(row dbsqlc.PendingApprovalsRow) place { return place{At: row.Due, ID: row.ID} })
}

// Approval gives one question.
func (r *Reader) Approval(ctx context.Context, tenant, id string) (view.Approval, error) {
	sessionID, ok := events.SessionOfCall(id)
	if !ok {
		return view.Approval{}, ErrNotFound
	}
	raw, err := r.q.Approval(ctx, dbsqlc.ApprovalParams{Tenant: tenant, Session: sessionID, ID: id})
	if err != nil {
		return view.Approval{}, readError(err)
	}
	return decode[view.Approval](raw)
}
