package app

import (
	"context"
	"log/slog"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/runtime"
	"github.com/holdfast-io/holdfast/projections"
	"github.com/holdfast-io/holdfast/services/internal/command"
	"github.com/holdfast-io/holdfast/services/internal/definitions"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
	"github.com/holdfast-io/holdfast/services/workload/internal/recipe"
)

func (a *App) definitions() definitions.Definitions[runtime.Spec] {
	return definitions.Definitions[runtime.Spec]{
		Aggregate: events.AggregateRuntime, Store: a.runtimes, NotFound: api.CodeRuntimeNotFound, Invalid: api.CodeRuntimeInvalid,
	}
}

func (a *App) applyRuntime(ctx context.Context, tenant string, req command.Request) (command.Reply, error) {
	body, err := command.Decode[verbs.ApplyBody](req)
	if err != nil {
		return command.Reply{}, err
	}
	spec, err := a.definitions().Read(body)
	if err != nil {
		return command.Reply{}, err
	}
	if spec, err = a.checked(body.Name, spec); err != nil {
		return command.Reply{}, err
	}
	reply, err := a.definitions().Apply(ctx, tenant, req, body.Name, spec)
	if err != nil {
		return reply, err
	}
	a.fill(ctx, projections.RuntimeName{Tenant: tenant, Name: body.Name})
	return reply, nil
}

// checked fills in what a runtime leaves out, and says every place that is wrong.
func (a *App) checked(name string, spec runtime.Spec) (runtime.Spec, error) {
	if spec.Name == "" {
		spec.Name = name
	}
	spec, wrong := a.cfg.Rules.Checked(spec)
	if spec.Name != name {
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
	reply, err := a.definitions().Remove(ctx, tenant, req, body.Name)
	if err != nil {
		return reply, err
	}
	a.fill(ctx, projections.RuntimeName{Tenant: tenant, Name: body.Name})
	return reply, nil
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

// driverName is a driver's name of a runtime. It knows no tenants, so the tenant is part
// of the name.
func driverName(tenant, name string) string { return tenant + "." + name }

// forsake has nothing stay of a runtime that was removed while sessions had it, now that one
// of these has ended: its pool stood for them, and no sweep asks for what was removed.
func (a *App) forsake(ctx context.Context, tenant, name string) {
	if _, keeps := a.driver.(driver.Keeper); !keeps {
		return
	}
	removed := false
	subject, err := events.SubjectOf(events.AggregateRuntime, tenant, name)
	if err == nil {
		err = a.runtimes.Read(ctx, subject, func(s eventlog.Snapshot[*runtime.State]) error {
			removed = s.State.Removed
			return nil
		})
	}
	if err != nil {
		a.cfg.Logger.LogAttrs(ctx, levelOf(err), "runtime not read at a session's end", slog.String("runtime", name), slog.Any("error", err))
	}
	if removed {
		a.fill(ctx, projections.RuntimeName{Tenant: tenant, Name: name})
	}
}

// driverSpec words a revision for the driver.
func driverSpec(tenant string, rev runtime.Revision) driver.RuntimeSpec {
	spec := recipe.ForDriver(rev.Spec)
	spec.Name, spec.Revision = driverName(tenant, rev.Spec.Name), rev.Number
	return spec
}
