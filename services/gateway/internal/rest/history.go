package rest

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/projections"
	"github.com/holdfast-io/holdfast/projections/view"
	"github.com/holdfast-io/holdfast/services/gateway/internal/auth"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

// History is what the operations read from the projections; projections.Reader
// is one.
type History interface {
	eventlog.Copy
	// WaitFor waits until the views include a sequence of the log, or ctx ends.
	WaitFor(ctx context.Context, seq uint64) error
	SessionAtN(ctx context.Context, tenant, id string, n uint64) (view.Session, error)
	SessionAtTime(ctx context.Context, tenant, id string, at time.Time) (view.Session, error)
	Sessions(ctx context.Context, tenant string, f projections.SessionFilter, p projections.Page) (projections.List[view.Session], error)
	Messages(ctx context.Context, tenant, session string, p projections.Page) (projections.List[view.Message], error)
	Runs(ctx context.Context, tenant, session string, p projections.Page) (projections.List[view.Run], error)
	Approvals(ctx context.Context, tenant string, f projections.ApprovalFilter, p projections.Page) (projections.List[view.Approval], error)
	Runtimes(ctx context.Context, tenant string, p projections.Page) (projections.List[view.Runtime], error)
	Policies(ctx context.Context, tenant string, p projections.Page) (projections.List[view.Policy], error)
	Audit(ctx context.Context, tenant string, f projections.AuditFilter, p projections.Page) (projections.List[view.AuditEntry], error)
	Timeline(ctx context.Context, tenant, session string, after projections.Place, limit int) (projections.TimelinePage, error)
}

// maxBehind is how long a read waits for the views to include its minSeq.
const maxBehind = 5 * time.Second

// reached waits until the views include what the client has seen already.
func (a *API) reached(ctx context.Context, minSeq *uint64) error {
	if minSeq == nil {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, maxBehind)
	defer cancel()
	return unavailable(a.cfg.History.WaitFor(bounded, *minSeq))
}

// unavailable words what the projections answer.
func unavailable(err error) error {
	_, worded := errors.AsType[*problem.Error](err)
	var p *problem.Error
	switch {
	case err == nil || worded || errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, projections.ErrCursor):
		return badCursor()
	case errors.Is(err, projections.ErrBehind):
		p = problem.Wrap(api.CodeProjectionBehind, "The views haven't come to that yet.", err)
	default:
		p = problem.Wrap(api.CodeHistoryUnavailable, "Lists, history and audit can't be read now; commands work.", err)
	}
	p.RetryAfter = time.Second
	return p
}

// asOf shows a session as it was at an n or at a time.
func (a *API) asOf(ctx context.Context, id, when string, minSeq *uint64) (api.Session, error) {
	if minSeq != nil {
		return api.Session{}, problem.New(api.CodeInvalidRequest, "The past doesn't wait.").
			At("query/minSeq", "doesn't go together with asOf")
	}
	tenant := auth.From(ctx).Tenant
	if err := a.exists(ctx, id); err != nil {
		return api.Session{}, err
	}
	n, numbered := asNumber(when)
	at, err := time.Parse(time.RFC3339, when)
	if !numbered && err != nil {
		return api.Session{}, problem.New(api.CodeInvalidRequest, "asOf is neither an n nor a time.").
			At("query/asOf", "neither a number from 1 nor an RFC 3339 time")
	}
	var out view.Session
	if numbered {
		out, err = a.cfg.History.SessionAtN(ctx, tenant, id, n)
	} else {
		out, err = a.cfg.History.SessionAtTime(ctx, tenant, id, at)
	}
	if errors.Is(err, projections.ErrNotFound) {
		return api.Session{}, a.neverWas(ctx, id, n, at)
	}
	return sessionOf(out), unavailable(err)
}

func asNumber(when string) (uint64, bool) {
	n, err := strconv.ParseUint(when, 10, 64)
	return n, err == nil
}

// neverWas tells a past that never was from one that the views haven't come to.
func (a *API) neverWas(ctx context.Context, id string, n uint64, at time.Time) error {
	return a.cfg.Live.Session(ctx, auth.From(ctx).Tenant, id, func(s *session.State) error {
		switch {
		case n > s.N:
			return problem.Newf(api.CodeNotFound, "The session has come to n %d, not to %d.", s.N, n)
		case n == 0 && at.Before(s.CreatedAt):
			return problem.Newf(api.CodeNotFound, "The session was created later, at %s.", s.CreatedAt.Format(time.RFC3339Nano))
		}
		return unavailable(projections.ErrBehind)
	})
}
