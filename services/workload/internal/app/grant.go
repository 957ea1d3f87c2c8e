package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/policy"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/internal/sandboxtoken"
	"github.com/holdfast-io/holdfast/services/workload/internal/bind"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

var _ driver.Granter = (*App)(nil)

// grant is a bind that was redeemed.
type grant struct{ bind bind.Bind }

// Errors of the Granter.
var (
	errRedeemed  = errors.New("this sandbox was bound before, to another session")
	errOtherPod  = errors.New("the bind is for another sandbox")
	errNotBound  = errors.New("this sandbox was never bound")
	errNotWanted = errors.New("the session has no such sandbox any more")
)

// Redeem gives a sandbox its session's token and config, for a bind that this
// service signed for exactly this Pod UID. A sandbox is bound once: the same bind
// again gives the same session, any other is refused.
func (a *App) Redeem(ctx context.Context, podUID, signed string) (sandboxapi.Grant, error) {
	b, err := bind.Verify(a.publicKey(), signed, a.cfg.Now())
	if err != nil {
		return sandboxapi.Grant{}, err
	}
	if b.PodUID != podUID {
		return sandboxapi.Grant{}, errOtherPod
	}
	a.mu.Lock()
	before, ok := a.granted[podUID]
	if !ok {
		a.granted[podUID] = grant{bind: b}
	}
	a.mu.Unlock()
	if ok && before.bind != b {
		return sandboxapi.Grant{}, errRedeemed
	}
	return a.grantFor(ctx, b)
}

// Renew gives a bound sandbox a fresh token while it is its session's.
func (a *App) Renew(ctx context.Context, podUID string) (sandboxapi.Grant, error) {
	a.mu.Lock()
	g, ok := a.granted[podUID]
	a.mu.Unlock()
	if !ok {
		return sandboxapi.Grant{}, errNotBound
	}
	return a.grantFor(ctx, g.bind)
}

// forget drops what was granted to an incarnation that is gone.
func (a *App) forget(podUID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.granted, podUID)
}

func (a *App) grantFor(ctx context.Context, b bind.Bind) (sandboxapi.Grant, error) {
	subject, err := events.SessionSubject(b.Tenant, b.Session)
	if err != nil {
		return sandboxapi.Grant{}, err
	}
	var (
		config     json.RawMessage
		policyName string
	)
	err = a.sessions.Read(ctx, subject, func(s eventlog.Snapshot[*session.State]) error {
		st := s.State
		if !s.Exists() || !serves(st, b) {
			return errNotWanted
		}
		config, policyName = st.Config, st.Terms.Policy
		return nil
	})
	if err != nil {
		return sandboxapi.Grant{}, err
	}
	revision, err := a.policyRevision(ctx, b.Tenant, policyName)
	if err != nil {
		return sandboxapi.Grant{}, err
	}
	token, expires, err := sandboxtoken.Mint(a.cfg.Key, sandboxtoken.Claims{
		Tenant: b.Tenant, Session: b.Session, Generation: b.Generation, PodUID: b.PodUID,
	}, a.cfg.Now())
	if err != nil {
		return sandboxapi.Grant{}, err
	}
	return sandboxapi.Grant{
		Tenant: b.Tenant, Session: b.Session, Generation: b.Generation, PodUID: b.PodUID,
		Token: token, ExpiresUnix: expires.Unix(), Config: config, PolicyRevision: revision,
	}, nil
}

// serves says whether the bound incarnation is the session's, or on its way to be:
// a resume's Pod UID is in the log only once it has answered.
func serves(s *session.State, b bind.Bind) bool {
	w := s.Workload
	if s.Ending || s.Ended || w.Generation != b.Generation {
		return false
	}
	switch w.Status {
	case session.WorkloadClaimed, session.WorkloadReady:
		return w.PodUID == b.PodUID
	case session.WorkloadSuspended:
		return s.WantRunning
	case session.WorkloadNone, session.WorkloadRequested, session.WorkloadLost, session.WorkloadFailed, session.WorkloadReleased:
	}
	return false
}

// policyRevision is the revision in force, 0 where there is none.
func (a *App) policyRevision(ctx context.Context, tenant, name string) (uint64, error) {
	subject, err := events.SubjectOf(events.AggregatePolicy, tenant, name)
	if err != nil {
		return 0, fmt.Errorf("policy of the session: %w", err)
	}
	var revision uint64
	err = a.policies.Read(ctx, subject, func(s eventlog.Snapshot[*policy.State]) error {
		if rev, ok := s.State.Current(); ok {
			revision = rev.Number
		}
		return nil
	})
	return revision, err
}
