package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiserver"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/projections/view"
	"github.com/holdfast-io/holdfast/services/gateway/internal/auth"
	"github.com/holdfast-io/holdfast/services/internal/command"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
)

// apply sends a spec and says which revision is in force after it.
func (a *API) apply(ctx context.Context, w write, name string, spec any) (command.Reply, verbs.ApplyResult, error) {
	var result verbs.ApplyResult
	raw, err := json.Marshal(spec)
	if err != nil {
		return command.Reply{}, result, fmt.Errorf("encode %s: %w", w.verb, err)
	}
	if w.unique, err = hashOf(json.RawMessage(raw)); err != nil {
		return command.Reply{}, result, err
	}
	w.names, w.body = []string{name}, verbs.ApplyBody{Name: name, Spec: raw}
	reply, err := a.send(ctx, w, &result)
	return reply, result, err
}

// ApplyRuntime makes a revision of a runtime.
func (a *API) ApplyRuntime(ctx context.Context, req apiserver.ApplyRuntimeRequestObject) (apiserver.ApplyRuntimeResponseObject, error) {
	if field := adminsOnly(req.Body.Sandbox); field != "" && !slices.Contains(auth.From(ctx).Roles, api.RoleAdmin) {
		return nil, problem.Newf(api.CodeForbidden, "Only an admin may say %s of a runtime.", field).At("/"+strings.ReplaceAll(field, ".", "/"), "admins only")
	}
	spec, err := runtimeSpec(req.Name, *req.Body)
	if err != nil {
		return nil, err
	}
	reply, result, err := a.apply(ctx, write{
		service: events.ServiceWorkload, verb: verbs.RuntimeApply, operation: "applyRuntime", key: req.Params.IdempotencyKey,
	}, req.Name, spec)
	if err != nil {
		return nil, err
	}
	out, err := a.runtime(ctx, req.Name, result.Revision)
	if err != nil {
		return nil, err
	}
	if !result.Changed {
		return apiserver.ApplyRuntime200JSONResponse{Body: out, Headers: apiserver.ApplyRuntime200ResponseHeaders{HoldfastSeq: reply.Seq}}, nil
	}
	return apiserver.ApplyRuntime201JSONResponse{Body: out, Headers: apiserver.ApplyRuntime201ResponseHeaders{HoldfastSeq: reply.Seq}}, nil
}

// adminsOnly names what of a sandbox only an admin may say, since it reaches beyond the
// sandbox: into the host, or into the namespace of the cluster.
func adminsOnly(s api.Sandbox) string {
	switch {
	case s.HostFolder != "":
		return "sandbox.hostFolder"
	case len(s.PodTemplate) > 0:
		return "sandbox.podTemplate"
	case s.ServiceAccountName != "":
		return "sandbox.serviceAccountName"
	case s.AllowSecrets:
		return "sandbox.allowSecrets"
	}
	return ""
}

// GetRuntime shows a runtime's revision.
func (a *API) GetRuntime(ctx context.Context, req apiserver.GetRuntimeRequestObject) (apiserver.GetRuntimeResponseObject, error) {
	out, err := a.runtime(ctx, req.Name, value(req.Params.Revision))
	return apiserver.GetRuntime200JSONResponse(out), err
}

func (a *API) runtime(ctx context.Context, name string, revision uint64) (api.Runtime, error) {
	rev, err := a.cfg.Live.Runtime(ctx, auth.From(ctx).Tenant, name, revision)
	if err != nil {
		return api.Runtime{}, err
	}
	return runtimeOf(view.Runtime{
		Name: name, Revision: rev.Number, Spec: view.RuntimeSpec(rev.Spec), By: view.Principal(rev.By), At: rev.Applied, Seq: rev.Seq,
	})
}

// RemoveRuntime takes a runtime out of use for new sessions.
func (a *API) RemoveRuntime(ctx context.Context, req apiserver.RemoveRuntimeRequestObject) (apiserver.RemoveRuntimeResponseObject, error) {
	reply, err := a.send(ctx, write{
		service: events.ServiceWorkload, verb: verbs.RuntimeRemove, operation: "removeRuntime", key: req.Params.IdempotencyKey,
		names: []string{req.Name}, body: verbs.RemoveBody{Name: req.Name},
	}, nil)
	return apiserver.RemoveRuntime204Response{Headers: apiserver.RemoveRuntime204ResponseHeaders{HoldfastSeq: reply.Seq}}, err
}

// ApplyPolicy makes a revision of a policy.
func (a *API) ApplyPolicy(ctx context.Context, req apiserver.ApplyPolicyRequestObject) (apiserver.ApplyPolicyResponseObject, error) {
	spec, err := policySpec(req.Name, *req.Body)
	if err != nil {
		return nil, err
	}
	reply, result, err := a.apply(ctx, write{
		service: events.ServicePolicy, verb: verbs.PolicyApply, operation: "applyPolicy", key: req.Params.IdempotencyKey,
	}, req.Name, spec)
	if err != nil {
		return nil, err
	}
	out, err := a.policy(ctx, req.Name, result.Revision)
	if err != nil {
		return nil, err
	}
	if !result.Changed {
		return apiserver.ApplyPolicy200JSONResponse{Body: out, Headers: apiserver.ApplyPolicy200ResponseHeaders{HoldfastSeq: reply.Seq}}, nil
	}
	return apiserver.ApplyPolicy201JSONResponse{Body: out, Headers: apiserver.ApplyPolicy201ResponseHeaders{HoldfastSeq: reply.Seq}}, nil
}

// GetPolicy shows a policy's revision.
func (a *API) GetPolicy(ctx context.Context, req apiserver.GetPolicyRequestObject) (apiserver.GetPolicyResponseObject, error) {
	out, err := a.policy(ctx, req.Name, value(req.Params.Revision))
	return apiserver.GetPolicy200JSONResponse(out), err
}

func (a *API) policy(ctx context.Context, name string, revision uint64) (api.Policy, error) {
	rev, err := a.cfg.Live.Policy(ctx, auth.From(ctx).Tenant, name, revision)
	if err != nil {
		return api.Policy{}, err
	}
	return policyOf(view.Policy{
		Name: name, Revision: rev.Number, Spec: view.PolicySpec(rev.Spec), By: view.Principal(rev.By), At: rev.Applied, Seq: rev.Seq,
	})
}

// RemovePolicy takes a policy out of force.
func (a *API) RemovePolicy(ctx context.Context, req apiserver.RemovePolicyRequestObject) (apiserver.RemovePolicyResponseObject, error) {
	reply, err := a.send(ctx, write{
		service: events.ServicePolicy, verb: verbs.PolicyRemove, operation: "removePolicy", key: req.Params.IdempotencyKey,
		names: []string{req.Name}, body: verbs.RemoveBody{Name: req.Name},
	}, nil)
	return apiserver.RemovePolicy204Response{Headers: apiserver.RemovePolicy204ResponseHeaders{HoldfastSeq: reply.Seq}}, err
}

func runtimeOf(v view.Runtime) (api.Runtime, error) {
	out := api.Runtime{Name: v.Name, Revision: v.Revision, By: v.By, At: v.At, Seq: v.Seq}
	if err := json.Unmarshal(v.Spec, &out.Spec); err != nil {
		return out, fmt.Errorf("runtime %s in revision %d: %w", v.Name, v.Revision, err)
	}
	return out, nil
}

func policyOf(v view.Policy) (api.Policy, error) {
	out := api.Policy{Name: v.Name, Revision: v.Revision, By: v.By, At: v.At, Seq: v.Seq}
	if err := json.Unmarshal(v.Spec, &out.Spec); err != nil {
		return out, fmt.Errorf("policy %s in revision %d: %w", v.Name, v.Revision, err)
	}
	return out, nil
}
