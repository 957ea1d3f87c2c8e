package rest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiserver"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/projections"
	"github.com/holdfast-io/holdfast/projections/view"
	"github.com/holdfast-io/holdfast/services/gateway/internal/auth"
	"github.com/holdfast-io/holdfast/services/gateway/internal/cursor"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

const defaultLimit = 50

// list reads one page: it waits for minSeq, opens the cursor, which is good for
// this very list alone, reads, and makes the next cursor.
func list[From, To any](
	ctx context.Context, a *API, name []string, at *api.Cursor, limit *api.Limit, minSeq *api.MinSeq,
	read func(projections.Page) (projections.List[From], error), convert func(From) To,
) ([]To, api.Cursor, error) {
	name = append([]string{auth.From(ctx).Tenant}, name...)
	after, err := cursor.ParsePage(name, value(at))
	if err != nil {
		return nil, "", badCursor()
	}
	if err := a.reached(ctx, minSeq); err != nil {
		return nil, "", err
	}
	page := projections.Page{Cursor: after, Limit: defaultLimit}
	if limit != nil {
		page.Limit = *limit
	}
	found, err := read(page)
	if err != nil {
		return nil, "", unavailable(err)
	}
	return each(found.Items, convert), cursor.Page(name, found.Next), nil
}

func badCursor() error {
	return problem.New(api.CodeInvalidCursor, "The cursor is not one of this list's.").At("query/cursor", "not made for this list")
}

// ListSessions lists the tenant's sessions, newest first.
func (a *API) ListSessions(ctx context.Context, req apiserver.ListSessionsRequestObject) (apiserver.ListSessionsResponseObject, error) {
	p := req.Params
	filter := projections.SessionFilter{
		Phases: words[session.Phase](p.Phase), Labels: map[string]string{}, Runtime: value(p.Runtime),
		Owner: strings.TrimPrefix(value(p.Owner), "user:"), // who owns a session is kept by name
	}
	for _, l := range value(p.Label) {
		key, label, _ := strings.Cut(l, "=")
		if before, twice := filter.Labels[key]; twice && before != label {
			return apiserver.ListSessions200JSONResponse{Items: []api.Session{}}, nil // no session has one label twice
		}
		filter.Labels[key] = label
	}
	name := slices.Concat([]string{"sessions", filter.Runtime, filter.Owner}, names(filter.Phases), []string{"labels"}, value(p.Label))
	items, next, err := list(ctx, a, name, p.Cursor, p.Limit, p.MinSeq, func(page projections.Page) (projections.List[view.Session], error) {
		return a.cfg.History.Sessions(ctx, auth.From(ctx).Tenant, filter, page)
	}, sessionOf)
	return apiserver.ListSessions200JSONResponse{Items: items, Next: next}, err
}

// ListMessages lists the conversation, oldest first.
func (a *API) ListMessages(ctx context.Context, req apiserver.ListMessagesRequestObject) (apiserver.ListMessagesResponseObject, error) {
	p := req.Params
	if err := a.exists(ctx, req.ID); err != nil {
		return nil, err
	}
	items, next, err := list(ctx, a, []string{"messages", req.ID}, p.Cursor, p.Limit, p.MinSeq, func(page projections.Page) (projections.List[view.Message], error) {
		return a.cfg.History.Messages(ctx, auth.From(ctx).Tenant, req.ID, page)
	}, messageOf)
	return apiserver.ListMessages200JSONResponse{Items: items, Next: next}, err
}

// ListRuns lists the turns of a session, oldest first.
func (a *API) ListRuns(ctx context.Context, req apiserver.ListRunsRequestObject) (apiserver.ListRunsResponseObject, error) {
	p := req.Params
	if err := a.exists(ctx, req.ID); err != nil {
		return nil, err
	}
	items, next, err := list(ctx, a, []string{"runs", req.ID}, p.Cursor, p.Limit, p.MinSeq, func(page projections.Page) (projections.List[view.Run], error) {
		return a.cfg.History.Runs(ctx, auth.From(ctx).Tenant, req.ID, page)
	}, runOf)
	return apiserver.ListRuns200JSONResponse{Items: items, Next: next}, err
}

// exists refuses a session that isn't in the tenant, as the log has it: a view
// that lags knows nothing of a session made a moment ago.
func (a *API) exists(ctx context.Context, id string) error {
	return a.cfg.Live.Session(ctx, auth.From(ctx).Tenant, id, func(*session.State) error { return nil })
}

// ListApprovals lists questions to people.
func (a *API) ListApprovals(ctx context.Context, req apiserver.ListApprovalsRequestObject) (apiserver.ListApprovalsResponseObject, error) {
	p := req.Params
	filter := projections.ApprovalFilter{States: words[session.CallState](p.State), Session: value(p.Session)}
	name := append([]string{"approvals", filter.Session}, names(filter.States)...)
	items, next, err := list(ctx, a, name, p.Cursor, p.Limit, p.MinSeq, func(page projections.Page) (projections.List[view.Approval], error) {
		return a.cfg.History.Approvals(ctx, auth.From(ctx).Tenant, filter, page)
	}, approvalOf)
	return apiserver.ListApprovals200JSONResponse{Items: items, Next: next}, err
}

// ListRuntimes lists the newest revision of each runtime.
func (a *API) ListRuntimes(ctx context.Context, req apiserver.ListRuntimesRequestObject) (apiserver.ListRuntimesResponseObject, error) {
	p := req.Params
	items, next, err := list(ctx, a, []string{"runtimes"}, p.Cursor, p.Limit, p.MinSeq, func(page projections.Page) (projections.List[view.Runtime], error) {
		return a.cfg.History.Runtimes(ctx, auth.From(ctx).Tenant, page)
	}, attempt(runtimeOf))
	if err != nil {
		return nil, err
	}
	out, err := all(items)
	return apiserver.ListRuntimes200JSONResponse{Items: out, Next: next}, err
}

// ListPolicies lists the newest revision of each policy.
func (a *API) ListPolicies(ctx context.Context, req apiserver.ListPoliciesRequestObject) (apiserver.ListPoliciesResponseObject, error) {
	p := req.Params
	items, next, err := list(ctx, a, []string{"policies"}, p.Cursor, p.Limit, p.MinSeq, func(page projections.Page) (projections.List[view.Policy], error) {
		return a.cfg.History.Policies(ctx, auth.From(ctx).Tenant, page)
	}, attempt(policyOf))
	if err != nil {
		return nil, err
	}
	out, err := all(items)
	return apiserver.ListPolicies200JSONResponse{Items: out, Next: next}, err
}

// ListAudit lists every event of the tenant, newest first.
func (a *API) ListAudit(ctx context.Context, req apiserver.ListAuditRequestObject) (apiserver.ListAuditResponseObject, error) {
	p := req.Params
	filter := projections.AuditFilter{
		Session: value(p.Session), Actor: value(p.Actor), Types: value(p.Type), From: value(p.From), To: value(p.To),
	}
	name := append([]string{
		"audit", filter.Session, filter.Actor,
		filter.From.Format(time.RFC3339Nano), filter.To.Format(time.RFC3339Nano),
	}, filter.Types...)
	items, next, err := list(ctx, a, name, p.Cursor, p.Limit, p.MinSeq, func(page projections.Page) (projections.List[view.AuditEntry], error) {
		return a.cfg.History.Audit(ctx, auth.From(ctx).Tenant, filter, page)
	}, auditOf)
	return apiserver.ListAudit200JSONResponse{Items: items, Next: next}, err
}

// tried is the outcome of a conversion that may fail.
type tried[T any] struct {
	item T
	err  error
}

func attempt[From, To any](convert func(From) (To, error)) func(From) tried[To] {
	return func(v From) tried[To] {
		item, err := convert(v)
		return tried[To]{item, err}
	}
}

func all[T any](items []tried[T]) ([]T, error) {
	out := make([]T, len(items))
	for i, t := range items {
		if t.err != nil {
			return nil, t.err
		}
		out[i] = t.item
	}
	return out, nil
}

// words are the values of an enum's filter, in one order: the same filter is the
// same list.
func words[To, From ~string](p *[]From) []To {
	out := each(value(p), func(w From) To { return To(w) })
	slices.Sort(out)
	return out
}

func names[T ~string](words []T) []string {
	return each(words, func(w T) string { return string(w) })
}
