package app

import (
	"context"
	"errors"
	"log/slog"
	"maps"
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
	// In the order in which nothing is in the way of another.
	condemned := slices.DeleteFunc(slices.Clone(strays), func(s stray) bool { return !slices.Contains(body.Items, nameOf(s.Kept)) })
	var (
		at       eventlog.Result
		outcomes map[verbs.StrayName]verbs.StrayOutcome
	)
	if len(condemned) > 0 {
		subject, err := events.SubjectOf(events.AggregateSweep, tenant, events.RandomID(events.PrefixSweep))
		if err != nil {
			return command.Reply{}, err
		}
		if err := a.recordRequest(ctx, subject, req, condemned); err != nil {
			return command.Reply{}, err
		}
		outcomes = a.discardAll(ctx, condemned, strays)
		if at, err = a.recordOutcomes(ctx, subject, req, condemned, outcomes); err != nil {
			return command.Reply{}, err
		}
	}
	result := verbs.SweepRemoveResult{Items: make([]verbs.StrayOutcome, len(body.Items))}
	for i, name := range body.Items {
		var ok bool
		if result.Items[i], ok = outcomes[name]; !ok {
			result.Items[i] = verbs.StrayOutcome{StrayName: name, Outcome: verbs.StrayGone}
		}
	}
	return command.Result(at.N, at.Seq, false, result)
}

// recordRequest appends what somebody wants removed. A command that is sent again is
// another attempt, with a subject of its own.
func (a *App) recordRequest(ctx context.Context, subject string, req command.Request, condemned []stray) error {
	payloads := make([]sweep.Payload, len(condemned))
	for i, s := range condemned {
		payloads[i] = sweep.Requested{
			Stray: sweep.Stray(nameOf(s.Kept)), Why: s.why, Session: s.Session, Generation: s.Generation,
			Runtime: strings.TrimPrefix(s.Runtime, s.Tenant+"."), Revision: s.Revision, Epoch: s.Epoch,
		}
	}
	_, err := a.sweeps.Execute(ctx, subject, eventlog.Command{ID: req.CommandID, Actor: req.Actor, Trace: req.Trace}, say(payloads))
	return err
}

// recordWithin is how long the log has to take what came of a removal, also where nobody
// waits for the answer any more.
const recordWithin = 10 * time.Second

// recordOutcomes appends what came of each.
func (a *App) recordOutcomes(
	ctx context.Context, subject string, req command.Request, condemned []stray, outcomes map[verbs.StrayName]verbs.StrayOutcome,
) (eventlog.Result, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordWithin)
	defer cancel()
	payloads := make([]sweep.Payload, len(condemned))
	for i, s := range condemned {
		o := outcomes[nameOf(s.Kept)]
		payloads[i] = sweep.Removed{Stray: sweep.Stray(o.StrayName)}
		if o.Outcome == verbs.StrayFailed {
			payloads[i] = sweep.Failed{Stray: sweep.Stray(o.StrayName), Detail: o.Detail}
		}
	}
	at, err := a.sweeps.Execute(ctx, subject, eventlog.Command{
		ID: events.RandomID(events.PrefixCommand), Actor: system, Cause: req.CommandID, Trace: req.Trace,
	}, say(payloads))
	if err != nil { // nothing else would tell any more
		a.cfg.Logger.LogAttrs(ctx, slog.LevelError, "what came of strays that were to be removed is not in the audit log",
			slog.String("subject", subject), slog.Any("outcomes", slices.Collect(maps.Values(outcomes))), slog.Any("error", err))
	}
	return at, err
}

// say decides on payloads, whatever was said before.
func say(payloads []sweep.Payload) eventlog.Decide[*sweep.State] {
	return func(*sweep.State, time.Time) ([]events.Record, error) { return sweep.Records(payloads...) }
}

// discardAll removes strays, and says what came of each.
func (a *App) discardAll(ctx context.Context, condemned, all []stray) map[verbs.StrayName]verbs.StrayOutcome {
	outcomes := make(map[verbs.StrayName]verbs.StrayOutcome, len(condemned))
	for _, s := range condemned {
		o := verbs.StrayOutcome{StrayName: nameOf(s.Kept), Outcome: verbs.StrayRemoved}
		switch err := a.discard(ctx, s, all); {
		case errors.Is(err, driver.ErrNotFound):
			o.Outcome = verbs.StrayGone
		case err != nil:
			o.Outcome, o.Detail = verbs.StrayFailed, err.Error()
		}
		outcomes[o.StrayName] = o
	}
	return outcomes
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
