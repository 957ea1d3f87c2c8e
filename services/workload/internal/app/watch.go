package app

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/reactor"
	"github.com/holdfast-io/holdfast/services/internal/serving"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// sweepEvery is how often what exists is compared with the log.
const sweepEvery = 30 * time.Second

// Runtimes lists the runtimes whose pools are to be kept.
type Runtimes interface {
	RuntimeNames(ctx context.Context) ([]RuntimeName, error)
}

// RuntimeName names a runtime of a tenant.
type RuntimeName struct{ Tenant, Name string }

// Watch takes the driver's word that sandboxes ended, sweeps what exists against
// the log, and keeps the pools; until ctx ends.
func (a *App) Watch(ctx context.Context, requeue serving.Requeue, runtimes Runtimes) error {
	a.sweep(ctx, requeue)
	pools := a.pools(ctx, runtimes)
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-a.driver.Events():
			if !ok {
				return driver.ErrClosed
			}
			a.ended(ctx, e, requeue)
		case <-tick.C:
			a.sweep(ctx, requeue)
			if !pools {
				pools = a.pools(ctx, runtimes)
			}
		}
	}
}

// ended appends that an incarnation is gone. Where that fails the reactor finds it
// by Verify.
func (a *App) ended(ctx context.Context, e driver.Event, requeue serving.Requeue) {
	a.forget(e.PodUID)
	if err := a.lost(ctx, e.Ref, e.PodUID, e.Cause); err != nil {
		a.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "loss not recorded, trying again",
			slog.String("session", e.Session), slog.Any("error", err))
		requeue.Enqueue(reactor.Key{Tenant: e.Tenant, Session: e.Session})
	}
}

// sweep compares what exists with the log. It removes only what a release of this
// epoch names; what the log doesn't know it reports.
func (a *App) sweep(ctx context.Context, requeue serving.Requeue) {
	found, err := a.driver.List(ctx)
	if err != nil {
		a.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "sandboxes not listed", slog.Any("error", err))
		return
	}
	for _, f := range found {
		if err := a.compare(ctx, f, requeue); err != nil {
			a.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "sandbox not compared with the log",
				slog.String("session", f.Session), slog.Any("error", err))
		}
	}
}

func (a *App) compare(ctx context.Context, f driver.Found, requeue serving.Requeue) error {
	report := func(why string) {
		a.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "sandbox left alone", slog.String("why", why),
			slog.String("tenant", f.Tenant), slog.String("session", f.Session), slog.Uint64("generation", f.Generation))
	}
	if f.Epoch != a.cfg.Epoch {
		report("it belongs to another epoch of the log")
		return nil
	}
	subject, err := events.SessionSubject(f.Tenant, f.Session)
	if err != nil {
		return err
	}
	var (
		known, released bool
		intent          uint64
	)
	err = a.sessions.Read(ctx, subject, func(s eventlog.Snapshot[*session.State]) error {
		w := s.State.Workload
		known, intent = s.Exists() && w.Generation >= f.Generation, s.State.IntentN
		released = w.Generation == f.Generation && w.Status == session.WorkloadReleased
		return nil
	})
	switch {
	case err != nil:
		return err
	case !known:
		report("the log does not know it")
		return nil
	case released:
		return a.driver.Release(ctx, f.Ref, intent, false)
	}
	requeue.Enqueue(reactor.Key{Tenant: f.Tenant, Session: f.Session})
	return nil
}

// pools fills the pools of all runtimes; false where they couldn't be read.
func (a *App) pools(ctx context.Context, runtimes Runtimes) bool {
	names, err := runtimes.RuntimeNames(ctx)
	if err == nil {
		for _, n := range names {
			if err = a.Pool(ctx, n.Tenant, n.Name); err != nil {
				err = fmt.Errorf("pool of %s: %w", n.Name, err)
				break
			}
		}
	}
	if err != nil {
		a.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "warm pools not filled, trying again", slog.Any("error", err))
		return false
	}
	return true
}
