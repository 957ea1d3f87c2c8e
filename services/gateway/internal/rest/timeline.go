package rest

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiserver"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/projections"
	"github.com/holdfast-io/holdfast/projections/view"
	"github.com/holdfast-io/holdfast/services/gateway/internal/auth"
	"github.com/holdfast-io/holdfast/services/gateway/internal/cursor"
)

// ListTimeline pages through a session's frames, in the order of every replay. Its
// cursors are those of the streams. A range that is gone is a frame that says so.
func (a *API) ListTimeline(ctx context.Context, req apiserver.ListTimelineRequestObject) (apiserver.ListTimelineResponseObject, error) {
	if err := a.exists(ctx, req.ID); err != nil {
		return nil, err
	}
	after, err := cursor.ParseSession(value(req.Params.After))
	if errors.Is(err, cursor.ErrInvalid) {
		return nil, badCursor()
	}
	if err := a.reached(ctx, req.Params.MinSeq); err != nil {
		return nil, err
	}
	limit := defaultLimit
	if req.Params.Limit != nil {
		limit = *req.Params.Limit
	}
	out := apiserver.ListTimeline200JSONResponse{Items: []api.Frame{}}
	if after.Epoch != "" && after.Epoch != a.cfg.Epoch {
		// A place in another log is none in this one: from the beginning, and said so.
		gap, err := a.gap(ctx, req.ID, value(req.Params.After), cursor.Session{Epoch: a.cfg.Epoch}, api.ControlReasonEpoch)
		if err != nil {
			return nil, err
		}
		out.Items, after = append(out.Items, gap), cursor.Session{}
		limit--
	}
	after.Epoch = a.cfg.Epoch
	page, err := a.cfg.History.Timeline(ctx, auth.From(ctx).Tenant, req.ID, projections.Place{N: after.N, Out: after.Out}, max(limit, 1))
	if err != nil {
		return nil, unavailable(err)
	}
	if page.OutputGone > 0 {
		to := cursor.Session{Epoch: a.cfg.Epoch, N: after.N, Out: page.OutputGone}
		gap, err := a.gap(ctx, req.ID, fromOf(after), to, api.ControlReasonExpired)
		if err != nil {
			return nil, err
		}
		out.Items = append(out.Items, gap)
	}
	for _, f := range page.Frames {
		shown := frameOf(f.Frame)
		shown.N = f.Place.N // what an agent says stands behind an event, as in the streams
		shown.Cursor = cursor.Session{Epoch: a.cfg.Epoch, N: f.Place.N, Out: max(f.Place.Out, page.OutputGone)}.String()
		out.Items = append(out.Items, shown)
	}
	if page.More {
		out.Next = out.Items[len(out.Items)-1].Cursor
	}
	return out, nil
}

// fromOf is how a gap names the place before it; the beginning has no name.
func fromOf(at cursor.Session) string {
	if at.N == 0 && at.Out == 0 {
		return ""
	}
	return at.String()
}

// gap is the frame that says that a range is gone, and how the session stands.
func (a *API) gap(ctx context.Context, id, from string, to cursor.Session, reason api.ControlReason) (api.Frame, error) {
	control := api.Control{Type: api.ControlTypeGap, From: from, To: to.String(), Reason: reason}
	err := a.cfg.Live.Session(ctx, auth.From(ctx).Tenant, id, func(s *session.State) error {
		control.Snapshot.Session = sessionOf(view.SessionOf(s))
		for _, call := range s.CallOrder {
			if c := s.Calls[call]; c.State == session.CallStatePending {
				control.Snapshot.Approvals = append(control.Snapshot.Approvals, approvalOf(view.ApprovalOf(s, c)))
			}
		}
		return nil
	})
	if err != nil {
		return api.Frame{}, err
	}
	data, err := json.Marshal(control)
	if err != nil {
		return api.Frame{}, err
	}
	return api.Frame{Cursor: to.String(), Session: id, Time: time.Now().UTC(), Kind: api.FrameKindControl, Data: data}, nil
}
