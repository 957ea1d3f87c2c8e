package projections

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/projections/internal/dbsqlc"
	"github.com/holdfast-io/holdfast/projections/view"
)

// AuditFilter narrows the audit log; what is left zero doesn't.
type AuditFilter struct {
	Session string
	// Actor is a principal as views write it ("user:bob").
	Actor string
	// Types: of one of them.
	Types []string
	// From is included, To isn't.
	From, To time.Time
}

// Audit lists a tenant's events, newest first, masked.
func (r *Reader) Audit(ctx context.Context, tenant string, f AuditFilter, p Page) (List[view.AuditEntry], error) {
	const name = "audit"
	at, err := p.from(name, last)
	if err != nil {
		return List[view.AuditEntry]{}, err
	}
	params := dbsqlc.AuditParams{
		Tenant: tenant, Session: clean(f.Session), Actor: clean(f.Actor), Types: texts(f.Types, clean),
		BeforeSeq: int64(at.N), BeforeIdx: int16(at.Idx), Most: int32(p.limit() + 1),
	}
	if !f.From.IsZero() {
		params.FromAt = &f.From
	}
	if !f.To.IsZero() {
		params.ToAt = &f.To
	}
	rows, err := r.q.Audit(ctx, params)
	if err != nil {
		return List[view.AuditEntry]{}, readError(err)
	}
	// Rows refer to large data, so that its bytes are known only as it is read.
	limit, bytes := p.limit(), 0
	l := List[view.AuditEntry]{Items: make([]view.AuditEntry, 0, min(limit, len(rows)))}
	for i, row := range rows {
		if i == limit || bytes >= pageBytes {
			l.Next = place{N: uint64(rows[i-1].Seq), Idx: int(rows[i-1].Idx)}.cursor(name)
			break
		}
		e, err := r.auditEntry(ctx, row)
		if err != nil {
			return List[view.AuditEntry]{}, err
		}
		l.Items = append(l.Items, e)
		bytes += len(e.Data)
	}
	return l, nil
}

func (r *Reader) auditEntry(ctx context.Context, row dbsqlc.AuditRow) (view.AuditEntry, error) {
	redact, err := decode[[]string]([]byte(row.Redact))
	if err != nil {
		return view.AuditEntry{}, err
	}
	m, err := r.whole(ctx, message(row.Subject, row.Seq, row.Raw))
	if err != nil {
		return view.AuditEntry{}, err
	}
	entries := view.AuditEntries(view.NewMasker(redact), m)
	if int(row.Idx) >= len(entries) {
		return view.AuditEntry{}, fmt.Errorf("audit row %d/%d has no event in its envelope", row.Seq, row.Idx)
	}
	return entries[row.Idx], nil
}
