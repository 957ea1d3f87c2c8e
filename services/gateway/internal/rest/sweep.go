package rest

import (
	"context"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiserver"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
)

// ListStrays lists what exists of the tenant, and the log has no use for.
func (a *API) ListStrays(ctx context.Context, _ apiserver.ListStraysRequestObject) (apiserver.ListStraysResponseObject, error) {
	var found verbs.SweepListResult
	if _, err := a.send(ctx, write{service: events.ServiceWorkload, verb: verbs.SweepList, body: struct{}{}}, &found); err != nil {
		return nil, err
	}
	out := api.StrayList{Items: make([]api.Stray, len(found.Items))}
	for i, s := range found.Items {
		out.Items[i] = api.Stray{
			Kind: api.StrayKind(s.Kind), Namespace: s.Namespace, Name: s.Name, UID: s.UID, Why: api.StrayWhy(s.Why),
			Session: s.Session, Generation: int64(s.Generation), Runtime: s.Runtime, Revision: int64(s.Revision),
			Epoch: s.Epoch, Since: s.Since,
		}
	}
	return apiserver.ListStrays200JSONResponse(out), nil
}

// RemoveStrays removes those that are named, as they were listed.
func (a *API) RemoveStrays(ctx context.Context, req apiserver.RemoveStraysRequestObject) (apiserver.RemoveStraysResponseObject, error) {
	body := verbs.SweepRemoveBody{Items: make([]verbs.StrayName, len(req.Body.Items))}
	for i, n := range req.Body.Items {
		body.Items[i] = verbs.StrayName{Kind: string(n.Kind), Namespace: n.Namespace, Name: n.Name, UID: n.UID}
	}
	var done verbs.SweepRemoveResult
	if _, err := a.send(ctx, write{service: events.ServiceWorkload, verb: verbs.SweepRemove, body: body}, &done); err != nil {
		return nil, err
	}
	out := api.StrayOutcomes{Items: make([]api.StrayOutcome, len(done.Items))}
	for i, s := range done.Items {
		out.Items[i] = api.StrayOutcome{
			Kind: api.StrayKind(s.Kind), Namespace: s.Namespace, Name: s.Name, UID: s.UID,
			Outcome: api.StrayOutcomeOutcome(s.Outcome), Detail: s.Detail,
		}
	}
	return apiserver.RemoveStrays200JSONResponse(out), nil
}
