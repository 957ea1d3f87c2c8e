package app

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/runtime"
	"github.com/holdfast-io/holdfast/events/sweep"
	"github.com/holdfast-io/holdfast/services/internal/command"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// stray is something that exists and that the log has no use for.
type stray struct {
	driver.Kept
	why string
}

// listStrays shows the strays of a tenant.
func (a *App) listStrays(ctx context.Context, tenant string, _ command.Request) (command.Reply, error) {
	strays, err := a.strays(ctx, tenant)
	if err != nil {
		return command.Reply{}, err
	}
	list := verbs.SweepListResult{Items: make([]verbs.Stray, len(strays))}
	for i, s := range strays {
		list.Items[i] = verbs.Stray{
			StrayName: nameOf(s.Kept), Why: s.why, Session: s.Session, Generation: s.Generation,
			Runtime: strings.TrimPrefix(s.Runtime, tenant+"."), Revision: s.Revision, Epoch: s.Epoch, Since: s.Since,
		}
	}
	return command.Result(0, 0, false, list)
}

// removeStrays removes those of the named that are strays still: it looks anew, so that
// nothing is removed that another has the name of, or that a session wants by now. Who
// wanted what removed is in the log before it is, and what came of it after.
func (a *App) removeStrays(ctx context.Context, tenant string, req command.Request) (command.Reply, error) {
	body, err := command.Decode[verbs.SweepRemoveBody](req)
	if err != nil {
		return command.Reply{}, err
	}
	strays, err := a.strays(ctx, tenant)
	if err != nil {
		return command.Reply{}, err
	}
	asked := map[verbs.StrayName]string{}
	for _, name := range body.Items {
		asked[name] = verbs.StrayGone
	}
	// In the order in which nothing is in the way of another.
	condemned := slices.DeleteFunc(slices.Clone(strays), func(s stray) bool { _, ok := asked[nameOf(s.Kept)]; return !ok })
	failures := map[verbs.StrayName]string{}
	at, err := a.onRecord(ctx, tenant, req, condemned, failures, func() {
		for _, s := range condemned {
			name := nameOf(s.Kept)
			err := a.discard(ctx, s, strays)
			switch {
			case err == nil:
				asked[name] = verbs.StrayRemoved
			case !errors.Is(err, driver.ErrNotFound):
				asked[name], failures[name] = verbs.StrayFailed, err.Error()
			}
		}
	})
	if err != nil {
		return command.Reply{}, err
	}
	result := verbs.SweepRemoveResult{Items: make([]verbs.StrayOutcome, len(body.Items))}
	for i, name := range body.Items {
		result.Items[i] = verbs.StrayOutcome{StrayName: name, Outcome: asked[name], Detail: failures[name]}
	}
	return command.Result(at.N, at.Seq, false, result)
}

// onRecord has strays removed between what the log says of it: who wants which removed,
// without which nothing is, and what came of each, which is in failures where it failed.
// A command that is sent again is another attempt, which has a subject of its own.
func (a *App) onRecord(
	ctx context.Context, tenant string, req command.Request, condemned []stray, failures map[verbs.StrayName]string, remove func(),
) (at eventlog.Result, _ error) {
	if len(condemned) == 0 {
		return at, nil
	}
	subject, err := events.SubjectOf(events.AggregateSweep, tenant, events.RandomID(events.PrefixSweep))
	if err != nil {
		return at, err
	}
	say := func(c eventlog.Command, of func(stray, sweep.Stray) sweep.Payload) (eventlog.Result, error) {
		return a.sweeps.Execute(ctx, subject, c, func(*sweep.State, time.Time) ([]events.Record, error) {
			payloads := make([]sweep.Payload, len(condemned))
			for i, s := range condemned {
				payloads[i] = of(s, sweep.Stray(nameOf(s.Kept)))
			}
			return sweep.Records(payloads...)
		})
	}
	_, err = say(eventlog.Command{ID: req.CommandID, Actor: req.Actor, Trace: req.Trace}, func(s stray, name sweep.Stray) sweep.Payload {
		return sweep.Requested{
			Stray: name, Why: s.why, Session: s.Session, Generation: s.Generation,
			Runtime: strings.TrimPrefix(s.Runtime, tenant+"."), Revision: s.Revision, Epoch: s.Epoch,
		}
	})
	if err != nil {
		return at, err
	}
	remove()
	after := eventlog.Command{ID: events.RandomID(events.PrefixCommand), Actor: system, Cause: req.CommandID, Trace: req.Trace}
	return say(after, func(_ stray, name sweep.Stray) sweep.Payload {
		if detail, failed := failures[verbs.StrayName(name)]; failed {
			return sweep.Failed{Stray: name, Detail: detail}
		}
		return sweep.Removed{Stray: name}
	})
}

func nameOf(k driver.Kept) verbs.StrayName {
	return verbs.StrayName{Kind: string(k.Kind), Namespace: k.Namespace, Name: k.Name, UID: k.UID}
}

// strays lists what exists of a tenant, and then asks the log of each: what the log comes
// to want meanwhile is none.
func (a *App) strays(ctx context.Context, tenant string) ([]stray, error) {
	kept, err := a.kept(ctx)
	if err != nil {
		return nil, problem.Wrap(api.CodeNotReady, "What exists can't be listed now. Ask again.", err)
	}
	var out []stray
	for _, k := range kept {
		if k.Tenant != tenant {
			continue
		}
		why, err := a.why(ctx, k)
		if err != nil {
			return nil, err
		}
		if why != "" {
			out = append(out, stray{k, why})
		}
	}
	slices.SortStableFunc(out, func(a, b stray) int { return a.Compare(b.Kept) })
	return out, nil
}

// why is why the log has no use for something; "" where it has.
func (a *App) why(ctx context.Context, k driver.Kept) (string, error) {
	if k.Session == "" {
		known, err := a.knowsRevision(ctx, k)
		if known || err != nil {
			return "", err
		}
		return verbs.StrayUnknownRuntime, nil
	}
	s, err := a.logged(ctx, k.Tenant, k.Session)
	switch {
	case err != nil:
		return "", err
	case k.Kind == driver.KindSandbox:
		return s.stray(a.cfg.Epoch, k.Epoch, k.Generation, k.SandboxUID), nil
	case s.known:
		return "", nil // a session's volume is its own for as long as there is one
	case k.Epoch != "" && k.Epoch != a.cfg.Epoch:
		return verbs.StrayOtherEpoch, nil
	}
	return verbs.StrayUnknownSession, nil
}

// knowsRevision says whether a pool or template is of a revision in the log.
func (a *App) knowsRevision(ctx context.Context, k driver.Kept) (known bool, _ error) {
	subject, err := events.SubjectOf(events.AggregateRuntime, k.Tenant, strings.TrimPrefix(k.Runtime, k.Tenant+"."))
	if err != nil {
		return false, nil //nolint:nilerr // it can be no runtime's name
	}
	err = a.runtimes.Read(ctx, subject, func(s eventlog.Snapshot[*runtime.State]) error {
		_, known = s.State.Revision(k.Revision)
		return nil
	})
	return known, err
}

// kept is all that the driver has.
func (a *App) kept(ctx context.Context) ([]driver.Kept, error) {
	if k, ok := a.driver.(driver.Keeper); ok {
		return k.Kept(ctx)
	}
	found, err := a.driver.List(ctx)
	kept := make([]driver.Kept, len(found))
	for i, f := range found {
		kept[i] = driver.Kept{
			Kind: driver.KindSandbox, Name: f.SandboxUID, UID: f.SandboxUID, Ref: f.Ref, SandboxUID: f.SandboxUID,
			Intent: f.Intent, Epoch: f.Epoch, Since: f.Since,
		}
	}
	return kept, err
}

// discard removes one stray. A driver that has nothing but sandboxes releases it, by the
// newest intent of what is there: a claim that came meanwhile is newer. The workspace
// goes along, unless the log knows the session and only this sandbox isn't its own.
func (a *App) discard(ctx context.Context, s stray, all []stray) error {
	if k, ok := a.driver.(driver.Keeper); ok {
		return k.Discard(ctx, s.Kept)
	}
	known, err := a.logged(ctx, s.Tenant, s.Session)
	if err != nil {
		return err
	}
	intent := s.Intent
	for _, other := range all {
		if other.Key() == s.Key() {
			intent = max(intent, other.Intent)
		}
	}
	return a.driver.Release(ctx, s.Ref, intent, known.known)
}
