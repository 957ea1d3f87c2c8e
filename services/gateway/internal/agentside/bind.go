package agentside

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/agentserver"
	"github.com/holdfast-io/holdfast/api/apispec"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/services/gateway/internal/auth"
	"github.com/holdfast-io/holdfast/services/gateway/internal/edge"
	"github.com/holdfast-io/holdfast/services/internal/bind"
	"github.com/holdfast-io/holdfast/services/internal/command"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
)

const (
	// What one address may present. It may stand for a whole node whose Pods are all
	// started again at once.
	presentedPerSecond = 100
	presentedBurst     = 500
	// What one incarnation may have looked at: it redeems once and renews every few minutes,
	// and each costs the Kubernetes API a review.
	reviewedPerSecond = 1
	reviewedBurst     = 20
	// maxPodToken bounds a service-account token, in bytes; they have some 1,000.
	maxPodToken = 16 << 10
)

// presenting are the operations that sandboxd in a Pod calls for itself, by the proof
// that Kubernetes gave it.
var presenting = map[string]bool{"redeemBind": true, "renewToken": true}

type podTokenKey struct{}

// admitPod takes the token of a Pod, which only the workload service can have reviewed.
func (a *Agents) admitPod(r *http.Request) (context.Context, error) {
	if err := a.presented.Allow(addressOf(r)); err != nil {
		return nil, err
	}
	token, ok := auth.Bearer(r.Header.Get("Authorization"))
	if !ok || len(token) > maxPodToken {
		return nil, problem.New(api.CodeUnauthenticated, "This needs the service-account token of a session's Pod.")
	}
	return context.WithValue(r.Context(), podTokenKey{}, token), nil
}

// addressOf is where a request comes from, without the port; sockets of a machine have
// one address for all.
func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// RedeemBind passes a Pod's proof and its bind on to the workload service.
func (a *Agents) RedeemBind(ctx context.Context, req agentserver.RedeemBindRequestObject) (agentserver.RedeemBindResponseObject, error) {
	grant, err := a.present(ctx, req.Body, false)
	return agentserver.RedeemBind200JSONResponse(grant), err
}

// RenewToken is RedeemBind for a bind that was redeemed.
func (a *Agents) RenewToken(ctx context.Context, req agentserver.RenewTokenRequestObject) (agentserver.RenewTokenResponseObject, error) {
	grant, err := a.present(ctx, req.Body, true)
	return agentserver.RenewToken200JSONResponse(grant), err
}

// present has the workload service decide. What nobody signed is refused here: it costs
// no other service anything, and only what was signed says whose tenant it is about.
func (a *Agents) present(ctx context.Context, presented *api.BindPresented, renew bool) (api.SandboxGrant, error) {
	b, err := bind.Read(a.cfg.BindKey, presented.Bind)
	if err != nil {
		return api.SandboxGrant{}, problem.Wrap(api.CodeBindRefused, "The bind is not one of this Holdfast's.", err)
	}
	edge.SetCaller(ctx, "pod:"+b.PodUID)
	if err := a.reviewed.Allow(b.PodUID); err != nil {
		return api.SandboxGrant{}, err
	}
	token, _ := ctx.Value(podTokenKey{}).(string)
	body, err := json.Marshal(verbs.RedeemBindBody{Token: token, Bind: presented.Bind, Secret: presented.Secret, Renew: renew}) //nolint:gosec // for those whose it is
	if err != nil {
		return api.SandboxGrant{}, fmt.Errorf("encode %s: %w", verbs.RedeemBind, err)
	}
	reply, err := a.cfg.Commands.Do(ctx, events.ServiceWorkload, b.Tenant, verbs.RedeemBind, command.Request{
		// It appends nothing, so it can be repeated as it is.
		CommandID: events.RandomID(events.PrefixCommand),
		Actor:     events.Actor{Kind: events.ActorAgent, ID: b.Session},
		Session:   b.Session, Body: body,
	})
	if err != nil {
		return api.SandboxGrant{}, err
	}
	var grant api.SandboxGrant
	if err := json.Unmarshal(reply.Result, &grant); err != nil {
		// What is wrong with it might be quoted, and holds a token.
		return api.SandboxGrant{}, problem.New(api.CodeInternal, "The workload service's grant can't be read.")
	}
	return grant, nil
}

// forPods says whether an operation is called by sandboxd for itself.
func forPods(op *apispec.Operation) bool { return op != nil && presenting[op.ID] }
