package projections

import (
	"context"

	"github.com/holdfast-io/holdfast/projections/internal/dbsqlc"
	"github.com/holdfast-io/holdfast/projections/view"
)

// Runtimes lists a tenant's runtimes that are not removed, each by its newest
// revision, by name.
func (r *Reader) Runtimes(ctx context.Context, tenant string, p Page) (List[view.Runtime], error) {
	const name = "runtimes"
	at, err := p.from(name, place{})
	if err != nil {
		return List[view.Runtime]{}, err
	}
	rows, err := r.q.Runtimes(ctx, dbsqlc.RuntimesParams{Tenant: tenant, After: at.ID, Most: int32(p.limit() + 1)})
	if err != nil {
		return List[view.Runtime]{}, readError(err)
	}
	return list(name, rows, p.limit(),
		func(row dbsqlc.RuntimesRow) (view.Runtime, error) { return runtimeView(dbsqlc.RuntimeRow(row)), nil },
		func(row dbsqlc.RuntimesRow) place { return place{ID: row.Name} })
}

// Runtime gives a revision of a runtime, the newest for 0. An old revision stays
// readable when the runtime is removed.
func (r *Reader) Runtime(ctx context.Context, tenant, name string, revision uint64) (view.Runtime, error) {
	row, err := r.q.Runtime(ctx, dbsqlc.RuntimeParams{Tenant: tenant, Name: clean(name), Revision: int64(min(revision, last.N))})
	if err != nil {
		return view.Runtime{}, readError(err)
	}
	return runtimeView(row), nil
}

func runtimeView(row dbsqlc.RuntimeRow) view.Runtime {
	return view.Runtime{
		Name: row.Name, Revision: uint64(row.Revision), Spec: row.Spec, By: row.AppliedBy, At: row.At, Seq: uint64(row.Seq),
	}
}

// Policies lists a tenant's policies as Runtimes does runtimes.
func (r *Reader) Policies(ctx context.Context, tenant string, p Page) (List[view.Policy], error) {
	const name = "policies"
	at, err := p.from(name, place{})
	if err != nil {
		return List[view.Policy]{}, err
	}
	rows, err := r.q.Policies(ctx, dbsqlc.PoliciesParams{Tenant: tenant, After: at.ID, Most: int32(p.limit() + 1)})
	if err != nil {
		return List[view.Policy]{}, readError(err)
	}
	return list(name, rows, p.limit(),
		func(row dbsqlc.PoliciesRow) (view.Policy, error) { return policyView(dbsqlc.PolicyRow(row)), nil },
		func(row dbsqlc.PoliciesRow) place { return place{ID: row.Name} })
}

// Policy gives a revision of a policy as Runtime does a runtime's.
func (r *Reader) Policy(ctx context.Context, tenant, name string, revision uint64) (view.Policy, error) {
	row, err := r.q.Policy(ctx, dbsqlc.PolicyParams{Tenant: tenant, Name: clean(name), Revision: int64(min(revision, last.N))})
	if err != nil {
		return view.Policy{}, readError(err)
	}
	return policyView(row), nil
}

func policyView(row dbsqlc.PolicyRow) view.Policy {
	return view.Policy{
		Name: row.Name, Revision: uint64(row.Revision), Spec: row.Spec, By: row.AppliedBy, At: row.At, Seq: uint64(row.Seq),
	}
}

// RuntimeName names a runtime of a tenant.
type RuntimeName struct{ Tenant, Name string }

// RuntimeNames lists the runtimes of all tenants that are not removed: those whose
// warm pools are to be kept.
func (r *Reader) RuntimeNames(ctx context.Context) ([]RuntimeName, error) {
	rows, err := r.q.RuntimeNames(ctx)
	if err != nil {
		return nil, readError(err)
	}
	return column(rows, func(row dbsqlc.RuntimeNamesRow) RuntimeName { return RuntimeName(row) }), nil
}
