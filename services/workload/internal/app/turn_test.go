package app_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/events/session"
	given "github.com/holdfast-io/holdfast/services/internal/decidertest"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// unhurried is a driver whose starts and ends take long, and go on when nobody waits.
type unhurried struct {
	*scripted

	// looks are how many calls of a method only wait.
	looks map[string]int
}

// Explain implements driver.Explainer: of what is there, going or not.
func (c *unhurried) Explain(_ context.Context, ref driver.Ref) *driver.StartError {
	if c.boxes[ref] == nil {
		return nil
	}
	return &driver.StartError{Cause: driver.CauseSlow}
}

// wait waits for as long as the caller does, if it is to.
func (c *unhurried) wait(ctx context.Context, method string) error {
	if c.looks[method] == 0 {
		return nil
	}
	c.looks[method]--
	<-ctx.Done()
	return ctx.Err()
}

func (c *unhurried) Claim(ctx context.Context, claim driver.Claim) (driver.Sandbox, error) {
	if err := c.wait(ctx, "Claim"); err != nil {
		return driver.Sandbox{}, err
	}
	return c.scripted.Claim(ctx, claim)
}

func (c *unhurried) Resume(ctx context.Context, claim driver.Claim) (driver.Sandbox, error) {
	if err := c.wait(ctx, "Resume"); err != nil {
		return driver.Sandbox{}, err
	}
	return c.scripted.Resume(ctx, claim)
}

func (c *unhurried) Suspend(ctx context.Context, ref driver.Ref, intent uint64) error {
	if err := c.wait(ctx, "Suspend"); err != nil {
		return err
	}
	return c.scripted.Suspend(ctx, ref, intent)
}

func (c *unhurried) Release(ctx context.Context, ref driver.Ref, intent uint64, keep bool) error {
	if err := c.wait(ctx, "Release"); err != nil {
		return err
	}
	return c.scripted.Release(ctx, ref, intent, keep)
}

// A sandbox that is slow to start or to end keeps nobody who waits behind it: after a
// while others have their turn, and then it is looked at again.
func TestOthersHaveTheirTurn(t *testing.T) {
	t.Parallel()
	for method, c := range map[string]struct {
		given func(w *world)
		want  session.WorkloadStatus
	}{
		"Claim":   {func(*world) {}, session.WorkloadReady},
		"Resume":  {resume, session.WorkloadReady},
		"Suspend": {suspend, session.WorkloadSuspended},
		"Release": {func(w *world) { w.settle(); w.append(session.Terminated{}) }, session.WorkloadReleased},
	} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				c.given(w)
				w.app.UseDriver(&unhurried{w.driver, map[string]int{method: 3}})
				begun, before := time.Now(), w.state().Workload.Status
				for look := range 3 {
					w.queue.now, w.queue.later = nil, nil
					if err := w.app.Settle(t.Context(), key); err != nil {
						t.Fatalf("a failure: %v", err)
					}
					if len(w.queue.now) != 1 || w.queue.now[0] != key || len(w.queue.later) > 0 {
						t.Fatalf("look %d: named again %v, %v", look, w.queue.now, w.queue.later)
					}
				}
				if took := time.Since(begun); took > 5*time.Second {
					t.Errorf("three looks took %s", took)
				}
				if s := w.state().Workload.Status; s != before && method != "Claim" {
					t.Errorf("it is %s before that is done", s)
				}
				w.settle()
				if s := w.state().Workload.Status; s != c.want {
					t.Errorf("it is %s", s)
				}
			})
		})
	}
}

// Neither does the sweep wait for what is slow to go: losses are heard of meanwhile.
func TestSweepIsNotHeldUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.settle()
		w.append(session.Terminated{})
		w.settle()
		w.driver.boxes[ref] = &sandbox{pod: "pod-1", running: true, epoch: epoch} // a crash left it after its release
		w.app.UseDriver(&unhurried{w.driver, map[string]int{"Release": 1 << 20}})
		begun := time.Now()
		w.watch(driver.Event{Ref: driver.Ref{Tenant: given.Tenant, Session: "s-bbbbbbbbbbbbbbbbbbbb", Generation: 1}, PodUID: "pod-8", Cause: "x"})
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("an event waited %s", took)
		}
	})
}

// upholder is a driver under whose sandboxes something may be removed.
type upholder struct {
	*scripted

	upheld []driver.Claim
	err    error
}

// Uphold implements driver.Upholder.
func (u *upholder) Uphold(_ context.Context, c driver.Claim) error {
	u.upheld = append(u.upheld, c)
	return u.err
}

// Whenever a sandbox that is ready is looked at, what it stands on is seen to; that this
// fails is no loss of it.
func TestWhatIsReadyIsUpheld(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.settle()
	d := &upholder{scripted: w.driver, err: context.DeadlineExceeded}
	w.app.UseDriver(d)
	w.settle()
	if len(d.upheld) != 1 || d.upheld[0].Ref != ref || d.upheld[0].Runtime.Name != "default.shell" {
		t.Errorf("upheld %+v", d.upheld)
	}
	if s := w.state().Workload.Status; s != session.WorkloadReady {
		t.Errorf("it is %s", s)
	}
}

// tardy is a driver whose create reaches the cluster after its session's end.
type tardy struct {
	*unhurried
	end func()
}

func (c *tardy) Claim(ctx context.Context, claim driver.Claim) (driver.Sandbox, error) {
	c.end()
	c.intent = claim.Intent // what the release left is known to another replica alone
	box, err := c.scripted.Claim(ctx, claim)
	return box, errors.Join(err, c.wait(ctx, "Claim"))
}

// A create reaches the cluster when another replica has carried out the session's release
// already, which found nothing: what it made is removed, whether it was waited for or not.
func TestLateCreateIsUndone(t *testing.T) {
	t.Parallel()
	for name, looks := range map[string]map[string]int{
		"waited for": {}, "not waited for": {"Claim": 1}, "slow to go": {"Release": 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				d := &tardy{&unhurried{w.driver, looks}, sync.OnceFunc(func() {
					w.append(session.Terminated{})
					w.append(session.Released{Generation: 1})
				})}
				w.app.UseDriver(d)
				w.settle()
				if exist, _ := w.driver.left(); exist != 0 || w.state().Workload.Status != session.WorkloadReleased || !slices.Contains(w.driver.calls, "Claim") {
					t.Errorf("%d sandboxes are left, it is %s after %v", exist, w.state().Workload.Status, w.driver.calls)
				}
			})
		})
	}
}
