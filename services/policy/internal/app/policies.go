package app

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/policy"
	"github.com/holdfast-io/holdfast/services/internal/command"
	"github.com/holdfast-io/holdfast/services/internal/definitions"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
	"github.com/holdfast-io/holdfast/services/policy/internal/rules"
)

func (a *App) definitions() definitions.Definitions[policy.Spec] {
	return definitions.Definitions[policy.Spec]{
		Aggregate: events.AggregatePolicy, Store: a.policies, NotFound: api.CodePolicyNotFound, Invalid: api.CodePolicyInvalid,
	}
}

func (a *App) applyPolicy(ctx context.Context, tenant string, req command.Request) (command.Reply, error) {
	body, err := command.Decode[verbs.ApplyBody](req)
	if err != nil {
		return command.Reply{}, err
	}
	spec, err := a.definitions().Read(body)
	if err != nil {
		return command.Reply{}, err
	}
	if spec, err = checked(body.Name, spec); err != nil {
		return command.Reply{}, err
	}
	return a.definitions().Apply(ctx, tenant, req, body.Name, spec)
}

// checked compiles a policy and says every place that is wrong.
func checked(name string, spec policy.Spec) (policy.Spec, error) {
	if spec.Name == "" {
		spec.Name = name
	}
	if spec.Name != name {
		return spec, problem.New(api.CodePolicyInvalid, "the name in the path and in the policy differ").At("/name", "differs from the path")
	}
	_, err := rules.Compile(spec)
	if invalid, ok := errors.AsType[*rules.InvalidError](err); ok {
		p := problem.New(api.CodePolicyInvalid, "the policy does not compile, or fails its own tests")
		for _, f := range invalid.Fields {
			p = p.At(f.Pointer, f.Detail)
		}
		return spec, p
	}
	return spec, err
}

func (a *App) removePolicy(ctx context.Context, tenant string, req command.Request) (command.Reply, error) {
	body, err := command.Decode[verbs.RemoveBody](req)
	if err != nil {
		return command.Reply{}, err
	}
	return a.definitions().Remove(ctx, tenant, req, body.Name)
}
