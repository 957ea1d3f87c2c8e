package rest

import (
	"context"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiserver"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

// ListTimeline pages through a session's frames.
func (a *API) ListTimeline(ctx context.Context, req apiserver.ListTimelineRequestObject) (apiserver.ListTimelineResponseObject, error) {
	if err := a.exists(ctx, req.ID); err != nil {
		return nil, err
	}
	return nil, problem.New(api.CodeHistoryUnavailable, "")
}
