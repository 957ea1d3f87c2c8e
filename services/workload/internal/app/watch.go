package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/holdfast-io/holdfast/projections"
	"github.com/holdfast-io/holdfast/services/internal/reactor"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// sweepEvery is how often what exists is compared with the log.
const sweepEvery = 30 * time.Second

// Runtimes lists the runtimes whose pools are to be kept.
type Runtimes interface {
	RuntimeNames(ctx context.Context) ([]projections.RuntimeName, error)
}

// Watch takes the driver's word that sandboxes ended, sweeps what exists against
// the log, and keeps the pools; until ctx ends.
func (a *App) Watch(ctx context.Context, runtimes Runtimes) error {
	a.sweep(ctx)
	a.pools(ctx, runtimes)
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
			switch {
			case e.Draining, e.Stays:
				a.placed(ctx, e)
				continue
			case !e.Began:
				a.ended(ctx, e)
				continue
			}
			a.sweep(ctx)
			a.pools(ctx, runtimes)
		case <-tick.C:
			a.sweep(ctx)
			// Those that this replica filled, and those that another did, may not be
			// there any more, where the host began anew.
			a.pools(ctx, runtimes)
		}
	}
}

// levelOf is how loud a failure is: that the host is away it says itself, and its
// return is what everything waits for.
func levelOf(err error) slog.Level {
	if errors.Is(err, driver.ErrUnreachable) {
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// ended appends that an incarnation is gone. The session is settled in any case:
// the reactor finds what couldn't be appended by Verify, and claims again what was
// lost on its way.
func (a *App) ended(ctx context.Context, e driver.Event) {
	w, err := a.look(ctx, e.Tenant, e.Session)
	if err == nil {
		err = a.lost(ctx, e.Ref, e.PodUID, e.Cause, a.keeps(ctx, w))
	}
	if err != nil {
		a.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "loss not recorded, trying again",
			slog.String("session", e.Session), slog.Any("error", err))
	}
	a.requeue.Enqueue(reactor.Key{Tenant: e.Tenant, Session: e.Session})
}

// placed appends that a sandbox has to leave its place, or hasn't any more; the session
// service puts away what has to once nobody uses it. What can't be appended now is a loss
// later, or is found when the grace for leaving is over.
func (a *App) placed(ctx context.Context, e driver.Event) {
	var err error
	if e.Stays {
		err = a.stayed(ctx, e.Ref, e.PodUID)
	} else {
		err = a.draining(ctx, e.Ref, e.PodUID, e.Cause)
	}
	if err != nil {
		a.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "whether a sandbox has to leave its place not recorded",
			slog.String("session", e.Session), slog.Any("error", err))
	}
}

// pools fills the pools of the runtimes that are this replica's to take care of. What
// can't be filled now is tried again with the next sweep.
func (a *App) pools(ctx context.Context, runtimes Runtimes) {
	names, err := runtimes.RuntimeNames(ctx)
	if err != nil {
		a.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "runtimes not listed for their pools, trying again", slog.Any("error", err))
	}
	for _, n := range names {
		if a.mine(driverName(n.Tenant, n.Name)) {
			a.fill(ctx, n)
		}
	}
}

// fillWithin is how long a host has to take a pool's size, which it only notes.
const fillWithin = 2 * time.Second

// fill makes the pool of one runtime as it is wanted. A pool is an optimisation:
// that it can't be filled refuses nothing, and holds nobody up who has applied the
// runtime.
func (a *App) fill(ctx context.Context, n projections.RuntimeName) {
	ctx, cancel := context.WithTimeout(ctx, fillWithin)
	defer cancel()
	if err := a.pool(ctx, n.Tenant, n.Name); err != nil {
		a.cfg.Logger.LogAttrs(ctx, levelOf(err), "warm pool not filled, trying again",
			slog.String("runtime", n.Name), slog.Any("error", err))
	}
}
