package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/reactor"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
	"github.com/holdfast-io/holdfast/services/workload/internal/decider"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// sweep compares what exists with the log. It removes only what a release of this
// epoch names; what the log doesn't know it reports, and people remove it (see strays). Of
// each session one replica does.
func (a *App) sweep(ctx context.Context) {
	found, err := a.driver.List(ctx)
	if err != nil {
		a.cfg.Logger.LogAttrs(ctx, levelOf(err), "sandboxes not listed", slog.Any("error", err))
		return
	}
	for _, f := range found {
		if !a.mine(f.Session) {
			continue
		}
		if err := a.compare(ctx, f); err != nil {
			a.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "sandbox not compared with the log",
				slog.String("session", f.Session), slog.Any("error", err))
		}
	}
}

// mine says whether this replica takes care of a session, or of a runtime by the driver's
// name of it.
func (a *App) mine(key string) bool {
	d, shared := a.driver.(driver.Shared)
	return !shared || d.Mine(key)
}

// compare brings one sandbox and the log together.
func (a *App) compare(ctx context.Context, f driver.Found) error {
	s, err := a.logged(ctx, f.Tenant, f.Session)
	if err != nil {
		return err
	}
	if why := s.stray(a.cfg.Epoch, f.Epoch, f.Generation, f.SandboxUID); why != "" {
		a.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "sandbox left alone: holdfast sweep shows it", slog.String("why", why),
			slog.String("tenant", f.Tenant), slog.String("session", f.Session), slog.Uint64("generation", f.Generation))
		return nil
	}
	if f.Generation <= s.workload.Generation && s.workload.Status == session.WorkloadReleased {
		err := a.awhile(ctx, func(ctx context.Context) error { return a.driver.Release(ctx, f.Ref, s.intent, s.keep) })
		if errors.Is(err, errTurn) {
			a.requeue.Enqueue(reactor.Key{Tenant: f.Tenant, Session: f.Session})
			return nil
		}
		return err
	}
	a.requeue.Enqueue(reactor.Key{Tenant: f.Tenant, Session: f.Session})
	if b, ok := a.driver.(driver.Backstop); ok {
		return b.Extend(ctx, f.Ref, s.until)
	}
	return nil
}

// late removes what a create left that came to the cluster after the session's release,
// which another replica carried out: no intent of the session's stood there any more that
// could have refused it. What whoever created it doesn't live to see, the sweep does.
func (a *App) late(ctx context.Context, w want) error {
	d, resumable := a.driver.(driver.Explainer)
	if !resumable || w.claimed.Status != session.WorkloadReleased {
		return nil
	}
	a.forsake(ctx, w.ref.Tenant, w.runtime.Name) // whoever appended the release may have died before
	// Also one that is on its way out: the release isn't over before all is gone.
	if d.Explain(ctx, w.ref) == nil {
		return nil
	}
	a.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "a sandbox that came after its session's release is to go",
		slog.String("session", w.ref.Session), slog.Uint64("generation", w.ref.Generation))
	return a.awhile(ctx, func(ctx context.Context) error { return a.letGo(ctx, w, w.keep) })
}

// logged is what the log knows of a session whose sandbox exists.
type logged struct {
	known    bool
	workload session.Workload
	intent   uint64
	keep     bool
	until    time.Time
}

func (a *App) logged(ctx context.Context, tenant, id string) (logged, error) {
	subject, err := events.SessionSubject(tenant, id)
	if err != nil {
		return logged{}, err
	}
	var out logged
	err = a.sessions.Read(ctx, subject, func(s eventlog.Snapshot[*session.State]) error {
		out = logged{
			known: s.Exists(), workload: s.State.Workload, intent: s.State.IntentN,
			keep: decider.KeepsWorkspace(s.State), until: backstop(s.State),
		}
		return nil
	})
	return out, err
}

// stray says why the log of this epoch has no use for a sandbox; "" where it has. One
// that another log wanted is this one's if this one's events name it.
func (s logged) stray(ours, epoch string, generation uint64, sandboxUID string) (why string) {
	known := s.known && s.workload.Generation >= generation
	switch {
	case epoch != ours && (!known || s.workload.SandboxUID != sandboxUID):
		return verbs.StrayOtherEpoch
	case !known:
		return verbs.StrayUnknownSession
	}
	return ""
}
