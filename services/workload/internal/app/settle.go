package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/failpoint"
	"github.com/holdfast-io/holdfast/services/internal/reactor"
	"github.com/holdfast-io/holdfast/services/workload/internal/bind"
	"github.com/holdfast-io/holdfast/services/workload/internal/decider"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// patience is how long one wait for an entrypoint lasts before the session is
// looked at again: it may have been ended meanwhile.
const patience = time.Second

// Settle carries out what a session wants, step by step, until nothing is left to
// do. It is the reactor's, one at a time for a session.
func (a *App) Settle(ctx context.Context, key reactor.Key) error {
	for {
		w, err := a.look(ctx, key.Tenant, key.Session)
		if err != nil {
			return err
		}
		if w.action == decider.Nothing {
			return nil
		}
		again, err := a.act(ctx, w)
		switch {
		case errors.Is(err, decider.ErrOvertaken), errors.Is(err, driver.ErrOlderIntent):
			continue // look again: the newest intent decides
		case err != nil:
			return fmt.Errorf("%s: %w", w.action, err)
		case !again:
			return nil
		}
	}
}

// act carries out one action. again says whether to look for a next one.
func (a *App) act(ctx context.Context, w want) (again bool, err error) {
	switch w.action {
	case decider.Request:
		return true, a.step(ctx, w.ref.Tenant, w.ref.Session, "claim", decider.RequestNext)
	case decider.Claim:
		return true, a.claim(ctx, w)
	case decider.Ready:
		return true, a.becomeReady(ctx, w)
	case decider.Resume:
		return true, a.resume(ctx, w)
	case decider.Suspend:
		if err := a.driver.Suspend(ctx, w.ref, w.intent); err != nil {
			return false, err
		}
		failpoint.Hit("workload-put-away")
		return true, a.step(ctx, w.ref.Tenant, w.ref.Session, "suspend", decider.Suspended(w.ref.Generation))
	case decider.Release:
		if err := a.driver.Release(ctx, w.ref, w.intent, false); err != nil {
			return false, err
		}
		return true, a.step(ctx, w.ref.Tenant, w.ref.Session, "release", decider.Released(w.ref.Generation))
	case decider.Verify:
		return false, a.verify(ctx, w)
	case decider.Nothing:
	}
	return false, nil
}

func (a *App) claimOf(ctx context.Context, w want) (driver.Claim, error) {
	spec, err := a.spec(ctx, w.ref.Tenant, w.runtime)
	return driver.Claim{Ref: w.ref, Intent: w.intent, Epoch: a.cfg.Epoch, Runtime: spec}, err
}

func (a *App) claim(ctx context.Context, w want) error {
	c, err := a.claimOf(ctx, w)
	if err != nil {
		return a.failed(ctx, w, err)
	}
	box, err := a.driver.Claim(ctx, c)
	if err != nil {
		return a.failed(ctx, w, err)
	}
	failpoint.Hit("workload-claimed")
	return a.step(ctx, w.ref.Tenant, w.ref.Session, "claim", decider.Claimed(session.Claimed{
		Generation: w.ref.Generation, SandboxUID: box.SandboxUID, PodUID: box.PodUID,
		Path: string(box.Path), Isolation: box.Isolation, LayersMs: layers(box.Layers),
	}))
}

// becomeReady binds the claimed sandbox and waits until its entrypoint answers.
func (a *App) becomeReady(ctx context.Context, w want) error {
	took, health, err := a.prepare(ctx, w, w.podUID)
	if err != nil {
		return a.failed(ctx, w, err)
	}
	if health == nil {
		return nil // not yet: look at the session again
	}
	maps.Copy(took, w.claimed.LayersMs)
	return a.step(ctx, w.ref.Tenant, w.ref.Session, "ready", decider.BecameReady(session.Ready{
		Generation: w.ref.Generation, SandboxUID: w.claimed.SandboxUID, PodUID: w.podUID, Restarts: health.restarts,
		Path: w.claimed.Path, Isolation: w.claimed.Isolation, LayersMs: took,
	}))
}

func (a *App) resume(ctx context.Context, w want) error {
	c, err := a.claimOf(ctx, w)
	if err != nil {
		return a.notResumed(ctx, w, err)
	}
	box, err := a.driver.Resume(ctx, c)
	if err != nil {
		return a.notResumed(ctx, w, err)
	}
	failpoint.Hit("workload-resumed")
	took, health, err := a.prepare(ctx, w, box.PodUID)
	if err != nil {
		return a.notResumed(ctx, w, err)
	}
	if health == nil {
		return nil
	}
	maps.Copy(took, layers(box.Layers))
	return a.step(ctx, w.ref.Tenant, w.ref.Session, "resume", decider.Resumed(session.Resumed{
		Generation: w.ref.Generation, PodUID: box.PodUID, Restarts: health.restarts, Isolation: box.Isolation, LayersMs: took,
	}))
}

// answer is what a sandbox said once its entrypoint answered.
type answer struct{ restarts int }

// prepare binds a sandbox and waits a while for its entrypoint; nil while it
// doesn't answer yet.
func (a *App) prepare(ctx context.Context, w want, podUID string) (took map[string]int64, ready *answer, err error) {
	begin := a.cfg.Now()
	signed, err := bind.Sign(a.cfg.Key, bind.Bind{
		Tenant: w.ref.Tenant, Session: w.ref.Session, Generation: w.ref.Generation, PodUID: podUID,
	}, begin)
	if err != nil {
		return nil, nil, err
	}
	if _, err := a.driver.Bind(ctx, w.ref, signed); err != nil {
		return nil, nil, err
	}
	bound := a.cfg.Now()
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	health, err := a.driver.Ready(wait, w.ref)
	switch {
	case err == nil:
	case wait.Err() != nil && ctx.Err() == nil:
		return nil, nil, nil
	default:
		return nil, nil, err
	}
	return map[string]int64{
		"bind": bound.Sub(begin).Milliseconds(), "entrypoint": a.cfg.Now().Sub(bound).Milliseconds(),
	}, &answer{restarts: health.Restarts}, nil
}

func layers(ls []driver.Layer) map[string]int64 {
	m := map[string]int64{}
	for _, l := range ls {
		m[l.Name] = l.Took.Milliseconds()
	}
	return m
}

// failed appends what can't get better by trying again; the rest is tried again
// until the claim's deadline.
func (a *App) failed(ctx context.Context, w want, err error) error {
	cause, final := causeOf(err)
	if !final && a.cfg.Now().Before(w.claimAt) {
		return err
	}
	if !final {
		cause = decider.CauseTimeout
	}
	a.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "claim failed",
		slog.String("session", w.ref.Session), slog.Uint64("generation", w.ref.Generation), slog.Any("error", err))
	return a.step(ctx, w.ref.Tenant, w.ref.Session, "claim", decider.Failed(session.Failed{
		Generation: w.ref.Generation, Cause: cause, Detail: err.Error(),
	}))
}

// notResumed is failed for a resume: the sandbox is lost, and the runtime's onLoss
// decides what follows.
func (a *App) notResumed(ctx context.Context, w want, err error) error {
	cause, final := causeOf(err)
	if !final && a.cfg.Now().Before(w.claimAt) {
		return err
	}
	if !final {
		cause = decider.CauseTimeout
	}
	return a.step(ctx, w.ref.Tenant, w.ref.Session, "resume", decider.Lost(session.Lost{
		Generation: w.ref.Generation, Cause: cause, WorkspaceKept: true,
	}))
}

// causeOf names an error's cause; final says that trying again doesn't help.
func causeOf(err error) (cause string, final bool) {
	for _, c := range []struct {
		is    error
		cause string
		final bool
	}{
		{driver.ErrEntrypoint, decider.CauseEntrypoint, true},
		{driver.ErrIsolationUnavailable, decider.CauseIsolation, true},
		{driver.ErrInvalid, decider.CauseInvalid, true},
		{driver.ErrStart, decider.CauseStart, false},
		{driver.ErrBindRefused, decider.CauseBind, false},
		{driver.ErrNotRunning, decider.CauseDied, false},
	} {
		if errors.Is(err, c.is) {
			return c.cause, c.final
		}
	}
	return decider.CauseTimeout, false
}

// verify looks whether a sandbox that is ready in the log runs.
func (a *App) verify(ctx context.Context, w want) error {
	at, err := a.driver.Locate(ctx, w.ref)
	switch {
	case err == nil && at.PodUID == w.podUID:
		return nil
	case err == nil:
		err = fmt.Errorf("another incarnation runs: %s", at.PodUID)
	case !errors.Is(err, driver.ErrNotFound) && !errors.Is(err, driver.ErrNotRunning):
		return err
	}
	return a.lost(ctx, w.ref, w.podUID, err.Error())
}

// lost appends that an incarnation is gone. The driver keeps the files of a
// runtime with a volume.
func (a *App) lost(ctx context.Context, ref driver.Ref, podUID, cause string) error {
	kept := false
	if w, err := a.look(ctx, ref.Tenant, ref.Session); err == nil {
		if spec, err := a.spec(ctx, ref.Tenant, w.runtime); err == nil {
			kept = spec.HasVolume
		}
	}
	return a.step(ctx, ref.Tenant, ref.Session, "lost", decider.Lost(session.Lost{
		Generation: ref.Generation, PodUID: podUID, Cause: cause, WorkspaceKept: kept,
	}))
}
