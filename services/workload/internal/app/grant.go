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
	"github.com/holdfast-io/holdfast/services/internal/bind"
	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/internal/sandboxtoken"
	"github.com/holdfast-io/holdfast/services/workload/internal/remote"
)

var _ remote.Granter = (*App)(nil)

// Errors of the Granter.
var (
	errOtherProcess = errors.New("the bind is for another process")
	errOtherPod     = errors.New("the bind is for another sandbox")
	errNotWanted    = errors.New("the session has no such sandbox any more")
	errTooEarly     = errors.New("the session's claim isn't written down yet")
)

// Redeem gives a sandbox its session's token and config, for a bind that this
// service signed for exactly this Pod UID. Any replica can: what it takes is the bind
// and the log. That a sandbox is bound once is seen to where it lives, by its host and
// by sandboxd itself; of a Pod's processes only the one that the bind names redeems it
// (see redeemBind), as often as its answer is lost.
func (a *App) Redeem(ctx context.Context, podUID, signed string) (sandboxapi.Grant, error) {
	b, err := bind.Verify(a.publicKey(), signed, a.cfg.Now())
	if err != nil {
		return sandboxapi.Grant{}, err
	}
	return a.grantTo(ctx, podUID, b)
}

// Renew gives a bound sandbox a fresh token while it is its session's, for the bind
// that it once redeemed.
func (a *App) Renew(ctx context.Context, podUID, signed string) (sandboxapi.Grant, error) {
	b, err := bind.Read(a.publicKey(), signed)
	if err != nil {
		return sandboxapi.Grant{}, err
	}
	return a.grantTo(ctx, podUID, b)
}

func (a *App) grantTo(ctx context.Context, podUID string, b bind.Bind) (sandboxapi.Grant, error) {
	if b.PodUID != podUID {
		return sandboxapi.Grant{}, errOtherPod
	}
	return a.grantFor(ctx, b)
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
		switch w := st.Workload; {
		case !s.Exists():
			return errNotWanted
		case w.Status == session.WorkloadRequested && w.Generation == b.Generation && !st.Ending:
			return errTooEarly
		case !serves(st, b):
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
