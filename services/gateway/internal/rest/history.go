package rest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/projections/view"
	"github.com/holdfast-io/holdfast/services/gateway/internal/auth"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

// History is what the operations read from the projections. Every list takes the
// word of its place that the page before gave as next ("" is the beginning) and
// at most so many items.
type History interface {
	eventlog.Copy
	// WaitFor waits until the views include a sequence of the log, or ctx ends.
	WaitFor(ctx context.Context, seq uint64) error
	Sessions(ctx context.Context, tenant string, f SessionFilter, p Page) ([]view.Session, string, error)
	Messages(ctx context.Context, tenant, session string, p Page) ([]view.Message, string, error)
	Runs(ctx context.Context, tenant, session string, p Page) ([]view.Run, string, error)
	Approvals(ctx context.Context, tenant string, f ApprovalFilter, p Page) ([]view.Approval, string, error)
	Runtimes(ctx context.Context, tenant string, p Page) ([]view.Runtime, string, error)
	Policies(ctx context.Context, tenant string, p Page) ([]view.Policy, string, error)
	Audit(ctx context.Context, tenant string, f AuditFilter, p Page) ([]view.AuditEntry, string, error)
}

// Page is which part of a list is wanted.
type Page struct {
	After string
	Limit int
}

// SessionFilter narrows a list of sessions; zero fields don't.
type SessionFilter struct {
	Phases         []string
	Labels         map[string]string
	Runtime, Owner string
}

// ApprovalFilter narrows a list of approvals; zero fields don't.
type ApprovalFilter struct {
	States  []string
	Session string
}

// AuditFilter narrows the audit log; zero fields don't. From is inclusive, To
// exclusive.
type AuditFilter struct {
	Session, Actor string
	Types          []string
	From, To       time.Time
}

// maxBehind is how long a read waits for the views to include its minSeq.
const maxBehind = 5 * time.Second

// reached waits until the views include what the client has seen already.
func (a *API) reached(ctx context.Context, minSeq *uint64) error {
	if minSeq == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, maxBehind)
	defer cancel()
	err := a.cfg.History.WaitFor(ctx, *minSeq)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		p := problem.Wrap(api.CodeProjectionBehind, fmt.Sprintf("The view didn't reach sequence %d in %s.", *minSeq, maxBehind), err)
		p.RetryAfter = time.Second
		return p
	}
	return unavailable(err)
}

// asOf shows a session as it was at an n or at a time.
func (a *API) asOf(ctx context.Context, id, when string, minSeq *uint64) (api.Session, error) {
	if minSeq != nil {
		return api.Session{}, problem.New(api.CodeInvalidRequest, "The past doesn't wait.").
			At("query/minSeq", "doesn't go together with asOf")
	}
	limit, err := moment(when)
	if err != nil {
		return api.Session{}, err
	}
	tenant := auth.From(ctx).Tenant
	subject, err := events.SessionSubject(tenant, id)
	if err != nil {
		return api.Session{}, problem.New(api.CodeNotFound, "There is no such session in this tenant.")
	}
	messages, err := a.cfg.History.Envelopes(ctx, a.cfg.Epoch, subject)
	if err != nil {
		return api.Session{}, unavailable(err)
	}
	state := session.New()
	for _, m := range messages {
		m.Envelope.Events = m.Envelope.Events[:limit.includes(m.Envelope)]
		if len(m.Envelope.Events) == 0 {
			break
		}
		if err := state.Apply(m); err != nil {
			return api.Session{}, err
		}
	}
	if err := a.covered(ctx, tenant, id, limit, state); err != nil {
		return api.Session{}, err
	}
	return sessionOf(view.SessionOf(state)), nil
}

// covered refuses a past that history doesn't reach: one that never was, or one
// that the views haven't come to yet.
func (a *API) covered(ctx context.Context, tenant, id string, limit asOfLimit, state *session.State) error {
	if state.Exists() && (limit.n == 0 || state.N == limit.n) {
		return nil
	}
	return a.cfg.Live.Session(ctx, tenant, id, func(s *session.State) error {
		switch {
		case limit.n > s.N:
			return problem.Newf(api.CodeNotFound, "The session has come to n %d, not to %d.", s.N, limit.n)
		case limit.n == 0 && limit.at.Before(s.CreatedAt):
			return problem.Newf(api.CodeNotFound, "The session was created later, at %s.", s.CreatedAt.Format(time.RFC3339Nano))
		}
		p := problem.New(api.CodeProjectionBehind, "The views haven't come to that yet.")
		p.RetryAfter = time.Second
		return p
	})
}

// asOfLimit is a moment in a session: its n, or where that is 0, a time.
type asOfLimit struct {
	n  uint64
	at time.Time
}

// includes says how many of an envelope's events had happened.
func (l asOfLimit) includes(e events.Envelope) int {
	switch {
	case l.n == 0 && e.Time.After(l.at):
		return 0
	case l.n == 0 || e.LastN() <= l.n:
		return len(e.Events)
	case e.N > l.n:
		return 0
	}
	return int(l.n - e.N + 1) //nolint:gosec // less than the number of the envelope's events
}

func moment(when string) (asOfLimit, error) {
	if n, err := strconv.ParseUint(when, 10, 64); err == nil {
		return asOfLimit{n: n}, nil
	}
	at, err := time.Parse(time.RFC3339, when)
	if err != nil {
		return asOfLimit{}, problem.New(api.CodeInvalidRequest, "asOf is neither an n nor a time.").
			At("query/asOf", "neither a number from 1 nor an RFC 3339 time")
	}
	return asOfLimit{at: at}, nil
}
