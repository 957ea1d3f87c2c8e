package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/bind"
	"github.com/holdfast-io/holdfast/services/internal/failpoint"
	"github.com/holdfast-io/holdfast/services/internal/reactor"
	"github.com/holdfast-io/holdfast/services/workload/internal/decider"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

const (
	// patience is how long one wait for a cluster or an entrypoint lasts before the
	// session is looked at again: it may have been ended meanwhile, and others wait.
	patience = time.Second
	// retryAfter is how soon a claim or resume that failed is tried again.
	retryAfter = 250 * time.Millisecond
	// hostAgain is how soon a host that doesn't answer is asked again. Nothing is known
	// of what it has, so nothing is decided; its return has everything looked at.
	hostAgain = 2 * time.Second
)

// errLater says that a step is tried again after retryAfter. It is no failure of
// the reactor's, which would park the session before its claim's deadline.
var errLater = errors.New("tried again later")

// errTurn says that a step isn't done, and goes on by itself: those who wait behind it
// have their turn, and then the session is looked at again. However many sandboxes of a
// cluster are slow to start or to end, the others' sessions go on.
var errTurn = errors.New("not done yet")

// Settle carries out what a session wants, step by step, until nothing is left to
// do. It is the reactor's, one at a time for a session.
func (a *App) Settle(ctx context.Context, key reactor.Key) error {
	var refused uint64 // the newest intent that the driver refused as too old
	for {
		w, err := a.look(ctx, key.Tenant, key.Session)
		if err != nil {
			return err
		}
		again, err := a.act(ctx, w)
		switch {
		case errors.Is(err, decider.ErrOvertaken):
			continue
		case errors.Is(err, driver.ErrOlderIntent) && w.intent > refused:
			refused = w.intent // look again: the newest intent decides
			continue
		case errors.Is(err, errLater):
			a.requeue.EnqueueAfter(key, retryAfter)
			return nil
		case errors.Is(err, errTurn):
			a.requeue.Enqueue(key)
			return nil
		case errors.Is(err, driver.ErrUnreachable):
			a.requeue.EnqueueAfter(key, hostAgain)
			return nil
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
		if w.claimed.Status == session.WorkloadLost {
			if err := a.clear(ctx, w); err != nil {
				return false, err
			}
		}
		return true, a.step(ctx, w.ref.Tenant, w.ref.Session, "claim", decider.RequestNext)
	case decider.Claim:
		return true, a.claim(ctx, w)
	case decider.Ready:
		return true, a.becomeReady(ctx, w)
	case decider.Resume:
		return true, a.resume(ctx, w)
	case decider.Suspend:
		a.remind(w)
		err := a.awhile(ctx, func(ctx context.Context) error { return a.driver.Suspend(ctx, w.ref, w.intent) })
		if errors.Is(err, driver.ErrNotFound) {
			return true, a.lost(ctx, w.ref, w.podUID, err.Error(), a.keeps(ctx, w))
		}
		if err != nil {
			return false, err
		}
		failpoint.Hit("workload-put-away")
		return true, a.step(ctx, w.ref.Tenant, w.ref.Session, "suspend", decider.Suspended(w.ref.Generation))
	case decider.Release:
		return true, a.release(ctx, w)
	case decider.Verify:
		return false, a.verify(ctx, w)
	case decider.Clear:
		return false, a.clear(ctx, w)
	case decider.Nothing:
		return false, a.late(ctx, w)
	}
	return false, nil
}

// clear ends what may still run of a lost generation (a resume that came to
// nothing) and removes what it left, but the workspace.
func (a *App) clear(ctx context.Context, w want) error {
	return a.awhile(ctx, func(ctx context.Context) error { return a.letGo(ctx, w, true) })
}

// letGo removes what is left of a session's sandbox. What somebody else has under its name
// isn't, and stays.
func (a *App) letGo(ctx context.Context, w want, keep bool) error {
	err := a.driver.Release(ctx, w.ref, w.intent, keep)
	if errors.Is(err, driver.ErrForeign) {
		a.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "what has the sandbox's name is somebody else's and stays",
			slog.String("session", w.ref.Session), slog.Uint64("generation", w.ref.Generation))
		return nil
	}
	return err
}

// awhile has the driver end something. In a cluster that takes as long as the Pod's grace,
// and where its node is away until that is back: it goes on when nobody waits for it.
func (a *App) awhile(ctx context.Context, end func(context.Context) error) error {
	if _, resumable := a.driver.(driver.Explainer); !resumable {
		return end(ctx)
	}
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := end(wait)
	if err != nil && wait.Err() != nil && ctx.Err() == nil {
		return errTurn
	}
	return err
}

// release removes what is left of an ending session, all but the workspace of one that
// keeps it.
func (a *App) release(ctx context.Context, w want) error {
	end := func(ctx context.Context) error { return a.letGo(ctx, w, w.keep) }
	if err := a.awhile(ctx, end); err != nil {
		return err
	}
	if w.keep && a.keeps(ctx, w) {
		a.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "the workspace of a failed session is kept",
			slog.String("tenant", w.ref.Tenant), slog.String("session", w.ref.Session))
	}
	failpoint.Hit("workload-removed")
	if err := a.step(ctx, w.ref.Tenant, w.ref.Session, "release", decider.Released(w.ref.Generation)); err != nil {
		return err
	}
	a.forsake(ctx, w.ref.Tenant, w.runtime.Name)
	return nil
}

func (a *App) claimOf(ctx context.Context, w want) (driver.Claim, error) {
	spec, err := a.spec(ctx, w.ref.Tenant, w.runtime)
	return driver.Claim{Ref: w.ref, Intent: w.intent, Epoch: a.cfg.Epoch, Runtime: spec, Until: w.until}, err
}

// start has the driver start a sandbox. One in a cluster takes as long as the cluster
// likes: it is waited for a while, and then the session is looked at again, which may
// have been ended meanwhile. again says so.
func (a *App) start(
	ctx context.Context, w want, how func(context.Context, driver.Claim) (driver.Sandbox, error),
) (box driver.Sandbox, again bool, err error) {
	c, err := a.claimOf(ctx, w)
	if err != nil {
		return driver.Sandbox{}, false, err
	}
	if _, resumable := a.driver.(driver.Explainer); !resumable {
		box, err = how(ctx, c)
		return box, false, err
	}
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	box, err = how(wait, c)
	return box, err != nil && wait.Err() != nil && ctx.Err() == nil && a.cfg.Now().Before(w.claimAt), err
}

func (a *App) claim(ctx context.Context, w want) error {
	box, again, err := a.start(ctx, w, a.driver.Claim)
	if again {
		return errTurn
	}
	if err != nil {
		return a.failed(ctx, w, err)
	}
	failpoint.Hit("workload-claimed")
	claimed := session.Claimed{
		Generation: w.ref.Generation, SandboxUID: box.SandboxUID, PodUID: box.PodUID,
		Path: string(box.Path), Isolation: box.Isolation, LayersMs: layers(box.Layers),
	}
	step := func() error {
		return a.step(ctx, w.ref.Tenant, w.ref.Session, "claim", decider.Claimed(claimed))
	}
	if a.cfg.Reviewer == nil || w.action != decider.Claim {
		return step()
	}
	// A Pod's bind goes by the gateway and has its token reviewed: meanwhile its claim is
	// written down, without which it is granted nothing.
	var stepped error
	var writing sync.WaitGroup
	preparing, enough := context.WithCancel(ctx)
	defer enough()
	writing.Go(func() {
		if stepped = step(); stepped != nil {
			enough()
		}
	})
	took, health, err := a.prepare(preparing, w, box.PodUID)
	writing.Wait()
	if stepped != nil || isGone(err) { // where it is gone, the next look claims it again
		return stepped
	}
	w.podUID = box.PodUID
	w.claimed.SandboxUID, w.claimed.Path, w.claimed.Isolation = claimed.SandboxUID, claimed.Path, claimed.Isolation
	w.claimed.LayersMs, w.claimed.Since = claimed.LayersMs, a.cfg.Now()
	return a.prepared(ctx, w, took, health, err)
}

// becomeReady binds the claimed sandbox and waits until its entrypoint answers. One
// that died on its way, with a process of ours for example, is claimed again.
func (a *App) becomeReady(ctx context.Context, w want) error {
	took, health, err := a.prepare(ctx, w, w.podUID)
	return a.prepared(ctx, w, took, health, err)
}

// prepared goes on with a claimed sandbox that was prepared, as prepare says.
func (a *App) prepared(ctx context.Context, w want, took map[string]int64, health *answer, err error) error {
	switch {
	case isGone(err) && a.cfg.Now().Before(w.claimAt):
		return errors.Join(errLater, a.claim(ctx, w))
	case err != nil:
		return a.failed(ctx, w, err)
	}
	if health == nil {
		return errTurn
	}
	// An entrypoint that was waited for in several looks took all of that time.
	took["entrypoint"] = max(took["entrypoint"], a.cfg.Now().Sub(w.claimed.Since).Milliseconds()-took["bind"])
	maps.Copy(took, w.claimed.LayersMs)
	return a.step(ctx, w.ref.Tenant, w.ref.Session, "ready", decider.BecameReady(session.Ready{
		Generation: w.ref.Generation, SandboxUID: w.claimed.SandboxUID, PodUID: w.podUID, Restarts: health.restarts,
		Path: w.claimed.Path, Isolation: w.claimed.Isolation, LayersMs: took,
	}))
}

func (a *App) resume(ctx context.Context, w want) error {
	box, again, err := a.start(ctx, w, a.driver.Resume)
	if again {
		return errTurn
	}
	if err != nil {
		return a.notResumed(ctx, w, err)
	}
	failpoint.Hit("workload-resumed")
	took, health, err := a.prepare(ctx, w, box.PodUID)
	if err != nil {
		return a.notResumed(ctx, w, err)
	}
	if health == nil {
		return errTurn
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
	b := bind.Bind{Tenant: w.ref.Tenant, Session: w.ref.Session, Generation: w.ref.Generation, PodUID: podUID, Agents: a.cfg.Agents}
	if d, ok := a.driver.(driver.Prover); ok {
		if b.Process, err = d.Process(ctx, w.ref); err != nil {
			return nil, nil, err
		}
	}
	signed, err := bind.Sign(a.cfg.Key, b, w.claimAt)
	if err != nil {
		return nil, nil, err
	}
	health, err := a.driver.Bind(ctx, w.ref, signed)
	if err != nil {
		return nil, nil, err
	}
	bound := a.cfg.Now()
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	health, err = a.driver.Ready(wait, w.ref, health)
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
	cause, err := a.verdict(ctx, w, err)
	if cause == "" {
		return err
	}
	a.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "claim failed",
		slog.String("session", w.ref.Session), slog.Uint64("generation", w.ref.Generation), slog.Any("error", err))
	return a.step(ctx, w.ref.Tenant, w.ref.Session, "claim", decider.Failed(session.Failed{
		Generation: w.ref.Generation, Cause: cause, Detail: a.detail(ctx, w, err),
	}, a.survives(ctx, w, err)))
}

// notResumed is failed for a resume: the sandbox is lost, and the runtime's onLoss
// decides what follows.
func (a *App) notResumed(ctx context.Context, w want, err error) error {
	cause, err := a.verdict(ctx, w, err)
	if cause == "" {
		return err
	}
	return a.lost(ctx, w.ref, "", cause, a.survives(ctx, w, err))
}

// verdict gives the cause for which a claim or resume has come to nothing; none
// while it is tried again, then with the error that says so.
func (a *App) verdict(ctx context.Context, w want, err error) (cause string, _ error) {
	cause, final := causeOf(err)
	switch {
	case final:
		return cause, err
	case errors.Is(err, driver.ErrOlderIntent), ctx.Err() != nil:
		return "", err
	case !a.cfg.Now().Before(w.claimAt):
		if t, ok := errors.AsType[*driver.StartError](err); ok && t.Cause != driver.CauseSlow {
			return t.Cause, err
		}
		return decider.CauseTimeout, err
	case errors.Is(err, driver.ErrUnreachable):
		return "", err // asked again as everything else of that host
	}
	a.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "sandbox not ready, trying again",
		slog.String("session", w.ref.Session), slog.Uint64("generation", w.ref.Generation), slog.Any("error", err))
	return "", errLater
}

// isGone says that a sandbox isn't there any more.
func isGone(err error) bool {
	return errors.Is(err, driver.ErrNotFound) || errors.Is(err, driver.ErrNotRunning)
}

// causeOf names an error's cause; final says that trying again doesn't help.
func causeOf(err error) (cause string, final bool) {
	if t, ok := errors.AsType[*driver.StartError](err); ok {
		return t.Cause, t.Final
	}
	for _, c := range []struct {
		is    error
		cause string
		final bool
	}{
		{driver.ErrEntrypoint, decider.CauseEntrypoint, true},
		{driver.ErrIsolationUnavailable, decider.CauseIsolation, true},
		{driver.ErrInvalid, decider.CauseInvalid, true},
		{driver.ErrNotFound, decider.CauseDied, true}, // only a resume meets it
		{driver.ErrWorkspaceGone, decider.CauseWorkspace, true},
		{driver.ErrForeign, decider.CauseForeign, true},
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
	at, err := a.whereIs(ctx, w)
	switch {
	case err == nil && at.PodUID == w.podUID:
		a.uphold(ctx, w)
		return a.leaving(ctx, w)
	case err == nil:
		err = fmt.Errorf("another incarnation runs: %s", at.PodUID)
	case !isGone(err):
		return err
	}
	a.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "sandbox is gone", slog.String("session", w.ref.Session), slog.Any("error", err))
	return a.lost(ctx, w.ref, w.podUID, decider.CauseDied, a.keeps(ctx, w))
}

// uphold makes again what somebody removed from under a sandbox that is ready.
func (a *App) uphold(ctx context.Context, w want) {
	d, ok := a.driver.(driver.Upholder)
	if !ok {
		return
	}
	c, err := a.claimOf(ctx, w)
	if err == nil {
		err = d.Uphold(ctx, c)
	}
	if err != nil {
		a.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "what a sandbox stands on isn't there, trying again",
			slog.String("session", w.ref.Session), slog.Any("error", err))
	}
}

// leaving sees whether a sandbox that is ready has to leave its place: it may have been
// told before the session was, when nobody could put it away.
func (a *App) leaving(ctx context.Context, w want) error {
	d, ok := a.driver.(driver.Leaver)
	if !ok {
		return nil
	}
	cause := d.Leaving(w.ref)
	if cause == "" {
		return nil
	}
	return a.draining(ctx, w.ref, w.podUID, cause)
}

// draining appends that a sandbox has to leave its place.
func (a *App) draining(ctx context.Context, ref driver.Ref, podUID, cause string) error {
	return a.step(ctx, ref.Tenant, ref.Session, "draining", decider.Draining(session.Draining{
		Generation: ref.Generation, PodUID: podUID, Cause: cause,
	}))
}

// overstayed gives up a sandbox that has to leave its place and is still in use, unless it
// may stay by now, which may not have been told.
func (a *App) overstayed(ctx context.Context, w want) error {
	d, ok := a.driver.(driver.Leaver)
	if !ok {
		return nil
	}
	switch at, err := a.whereIs(ctx, w); {
	case isGone(err), err == nil && at.PodUID != w.podUID:
		a.requeue.Enqueue(reactor.Key{Tenant: w.ref.Tenant, Session: w.ref.Session}) // a loss, and told as one
		return nil
	case err != nil:
		return err // it isn't known whether it may stay
	}
	cause := d.Leaving(w.ref)
	if cause == "" {
		return a.stayed(ctx, w.ref, w.podUID)
	}
	return a.step(ctx, w.ref.Tenant, w.ref.Session, "deadline:drain", decider.Overstayed(session.Lost{
		Generation: w.ref.Generation, PodUID: w.podUID, Cause: cause, WorkspaceKept: a.keeps(ctx, w),
	}))
}

// stayed appends that a sandbox needn't leave its place any more.
func (a *App) stayed(ctx context.Context, ref driver.Ref, podUID string) error {
	return a.step(ctx, ref.Tenant, ref.Session, "stayed", decider.Stayed(session.Stayed{Generation: ref.Generation, PodUID: podUID}))
}

// whereIs locates a sandbox that is ready in the log.
func (a *App) whereIs(ctx context.Context, w want) (driver.Endpoint, error) {
	a.remind(w)
	return a.driver.Locate(ctx, w.ref)
}

// remind tells the driver which sandbox the log has: whoever it was handed to may have died
// before that was written down.
func (a *App) remind(w want) {
	if d, ok := a.driver.(driver.Reminded); ok {
		d.Remind(w.ref, w.claimed.SandboxUID, w.podUID)
	}
}

// lost appends that an incarnation is gone; kept says whether its files are still
// there.
func (a *App) lost(ctx context.Context, ref driver.Ref, podUID, cause string, kept bool) error {
	return a.step(ctx, ref.Tenant, ref.Session, "lost", decider.Lost(session.Lost{
		Generation: ref.Generation, PodUID: podUID, Cause: cause, WorkspaceKept: kept,
	}))
}

// keeps says whether the session's workspace outlives its sandbox, as the driver does
// for a runtime with a volume; where the runtime can't be read, nothing is promised.
func (a *App) keeps(ctx context.Context, w want) bool {
	spec, err := a.spec(ctx, w.ref.Tenant, w.runtime)
	return err == nil && spec.HasVolume
}

// survives is keeps after a claim or resume that came to nothing for err.
func (a *App) survives(ctx context.Context, w want, err error) bool {
	return !errors.Is(err, driver.ErrWorkspaceGone) && a.keeps(ctx, w)
}
