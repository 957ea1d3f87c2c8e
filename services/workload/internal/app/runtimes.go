package app

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/runtime"
	"github.com/holdfast-io/holdfast/projections"
	"github.com/holdfast-io/holdfast/services/internal/command"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
	"github.com/holdfast-io/holdfast/services/workload/internal/recipe"
)

func (a *App) applyRuntime(ctx context.Context, tenant string, req command.Request) (command.Reply, error) {
	body, err := command.Decode[verbs.ApplyBody](req)
	if err != nil {
		return command.Reply{}, err
	}
	spec, err := readRuntime(body)
	if err != nil {
		return command.Reply{}, err
	}
	subject, err := events.SubjectOf(events.AggregateRuntime, tenant, body.Name)
	if err != nil {
		return command.Reply{}, problem.New(api.CodeInvalidRequest, err.Error()).At("path/name", "not a valid name")
	}
	res, err := a.runtimes.Execute(ctx, subject, commandOf(req), func(s *runtime.State, _ time.Time) ([]events.Record, error) {
		if rev, ok := s.Current(); ok && same(rev.Spec, spec) {
			return nil, nil
		}
		r, err := s.ApplyRecord(spec)
		return []events.Record{r}, err
	})
	if err != nil {
		return command.Reply{}, err
	}
	a.fill(ctx, projections.RuntimeName{Tenant: tenant, Name: body.Name})
	return command.Result(res.N, res.Seq, res.Repeated, verbs.ApplyResult{Revision: res.N, Changed: len(res.Records) > 0})
}

// readRuntime decodes a runtime, fills in what it leaves out, and says every place
// that is wrong.
func readRuntime(body verbs.ApplyBody) (runtime.Spec, error) {
	var spec runtime.Spec
	dec := json.NewDecoder(bytes.NewReader(body.Spec))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&spec); err != nil {
		return spec, problem.New(api.CodeRuntimeInvalid, "the runtime can't be read: "+err.Error())
	}
	if spec.Name == "" {
		spec.Name = body.Name
	}
	spec = recipe.WithDefaults(spec)
	wrong := recipe.Check(spec)
	if spec.Name != body.Name {
		wrong = append(wrong, recipe.Wrong{Pointer: "/name", Detail: "differs from the name in the path"})
	}
	if len(wrong) == 0 {
		return spec, nil
	}
	p := problem.Newf(api.CodeRuntimeInvalid, "%d places of the runtime are wrong, the first is %s: %s", len(wrong), wrong[0].Pointer, wrong[0].Detail)
	for _, w := range wrong {
		p = p.At(w.Pointer, w.Detail)
	}
	return spec, p
}

func (a *App) removeRuntime(ctx context.Context, tenant string, req command.Request) (command.Reply, error) {
	body, err := command.Decode[verbs.RemoveBody](req)
	if err != nil {
		return command.Reply{}, err
	}
	missing := problem.Newf(api.CodeRuntimeNotFound, "there is no runtime %q", body.Name)
	subject, err := events.SubjectOf(events.AggregateRuntime, tenant, body.Name)
	if err != nil {
		return command.Reply{}, missing
	}
	res, err := a.runtimes.Execute(ctx, subject, commandOf(req), func(s *runtime.State, _ time.Time) ([]events.Record, error) {
		if _, ok := s.Current(); !ok {
			return nil, missing
		}
		return []events.Record{s.RemoveRecord()}, nil
	})
	if err != nil {
		return command.Reply{}, err
	}
	a.fill(ctx, projections.RuntimeName{Tenant: tenant, Name: body.Name})
	return command.Reply{N: res.N, Seq: res.Seq, Repeated: res.Repeated}, nil
}

// pool makes the warm pool of a runtime what its newest revision wants; none where
// it was removed.
func (a *App) pool(ctx context.Context, tenant, name string) error {
	subject, err := events.SubjectOf(events.AggregateRuntime, tenant, name)
	if err != nil {
		return err
	}
	var (
		spec driver.RuntimeSpec
		size int
	)
	err = a.runtimes.Read(ctx, subject, func(s eventlog.Snapshot[*runtime.State]) error {
		n := len(s.State.Revisions)
		if n == 0 {
			return nil
		}
		newest := s.State.Revisions[n-1]
		spec = driverSpec(tenant, newest)
		if !s.State.Removed {
			size = newest.Spec.WarmPool.Size
		}
		return nil
	})
	if err != nil || spec.Name == "" {
		return err
	}
	return a.driver.EnsurePool(ctx, spec, size)
}

// driverSpec words a revision for the driver. A driver's names know no tenants,
// so the tenant is part of the name.
func driverSpec(tenant string, rev runtime.Revision) driver.RuntimeSpec {
	spec := recipe.ForDriver(rev.Spec)
	spec.Name, spec.Revision = tenant+"."+rev.Spec.Name, rev.Number
	return spec
}

func commandOf(req command.Request) eventlog.Command {
	return eventlog.Command{ID: req.CommandID, Actor: req.Actor, Trace: req.Trace}
}

// same compares two runtimes by what would be stored.
func same(a, b runtime.Spec) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
