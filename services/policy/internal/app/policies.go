package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/policy"
	"github.com/holdfast-io/holdfast/services/internal/command"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
	"github.com/holdfast-io/holdfast/services/policy/internal/rules"
)

func (a *App) applyPolicy(ctx context.Context, tenant string, req command.Request) (command.Reply, error) {
	body, err := command.Decode[verbs.ApplyBody](req)
	if err != nil {
		return command.Reply{}, err
	}
	spec, err := readPolicy(body)
	if err != nil {
		return command.Reply{}, err
	}
	subject, err := events.SubjectOf(events.AggregatePolicy, tenant, body.Name)
	if err != nil {
		return command.Reply{}, problem.New(api.CodeInvalidRequest, err.Error()).At("path/name", "not a valid name")
	}
	res, err := a.policies.Execute(ctx, subject, a.named(req), func(s *policy.State, _ time.Time) ([]events.Record, error) {
		if rev, ok := s.Current(); ok && same(rev.Spec, spec) {
			return nil, nil
		}
		r, err := s.ApplyRecord(spec)
		return []events.Record{r}, err
	})
	if err != nil {
		return command.Reply{}, err
	}
	out := verbs.ApplyResult{Revision: res.N, Changed: len(res.Records) > 0}
	return command.Result(res.N, res.Seq, res.Repeated, out)
}

// readPolicy decodes and compiles a policy, and says every place that is wrong.
func readPolicy(body verbs.ApplyBody) (policy.Spec, error) {
	var spec policy.Spec
	dec := json.NewDecoder(bytes.NewReader(body.Spec))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&spec); err != nil {
		return spec, problem.New(api.CodePolicyInvalid, "the policy can't be read: "+err.Error())
	}
	if spec.Name == "" {
		spec.Name = body.Name
	}
	if spec.Name != body.Name {
		return spec, problem.New(api.CodePolicyInvalid, "the name in the path and in the policy differ").At("/name", "differs from the path")
	}
	_, err := rules.Compile(spec)
	var invalid *rules.InvalidError
	if errors.As(err, &invalid) {
		p := problem.New(api.CodePolicyInvalid, invalid.Error())
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
	missing := problem.Newf(api.CodePolicyNotFound, "there is no policy %q", body.Name)
	subject, err := events.SubjectOf(events.AggregatePolicy, tenant, body.Name)
	if err != nil {
		return command.Reply{}, missing
	}
	res, err := a.policies.Execute(ctx, subject, a.named(req), func(s *policy.State, _ time.Time) ([]events.Record, error) {
		if _, ok := s.Current(); !ok {
			return nil, missing
		}
		return []events.Record{s.RemoveRecord()}, nil
	})
	return command.Reply{N: res.N, Seq: res.Seq, Repeated: res.Repeated}, err
}

func (a *App) named(req command.Request) eventlog.Command {
	return eventlog.Command{ID: req.CommandID, Actor: req.Actor, Trace: req.Trace}
}

// same compares two policies by what would be stored.
func same(a, b policy.Spec) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
