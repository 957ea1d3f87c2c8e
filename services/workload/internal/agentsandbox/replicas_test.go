package agentsandbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver/drivertest"
)

// replicas are drivers of several processes, of which some end.
type replicas struct {
	*bench
	drivers []*Driver
}

// all has every replica do the same at once for every session, and gives what the first
// that could got, by session. One whose driver is closed on the way may fail, others not.
func (r *replicas) all(sessions []driver.Claim, closing *Driver, do func(context.Context, *Driver, driver.Claim) (string, error)) map[string]string {
	r.t.Helper()
	var (
		mu    sync.Mutex
		got   = map[string]string{}
		acts  sync.WaitGroup
		begun = make(chan struct{})
		once  sync.Once
	)
	for _, d := range r.drivers {
		for _, c := range sessions {
			acts.Go(func() {
				once.Do(func() { close(begun) })
				answer, err := do(r.within(), d, c)
				mu.Lock()
				defer mu.Unlock()
				switch other, ok := got[c.Session]; {
				case err != nil && d == closing:
				case err != nil:
					r.t.Errorf("session %s: %v", c.Session, err)
				case ok && other != answer:
					r.t.Errorf("session %s: one replica says %s, another %s", c.Session, other, answer)
				default:
					got[c.Session] = answer
				}
			})
		}
	}
	if closing != nil {
		<-begun
		must(r.t, closing.Close())
	}
	acts.Wait()
	return got
}

// Three replicas that do everything at once, one of which ends meanwhile and is followed
// by another, do each thing once.
func TestReplicasDoEachThingOnce(t *testing.T) {
	t.Parallel()
	b := set(t)
	r := &replicas{b, []*Driver{b.Driver, b.another(), b.another()}}
	var sessions []driver.Claim
	for i := range 4 {
		c := b.claim(fmt.Sprintf("s-%d", i))
		c.Runtime.HasVolume = i%2 == 0
		if !c.Runtime.HasVolume {
			c.Runtime.Revision = 2
		}
		sessions = append(sessions, c)
	}
	must(t, b.EnsurePool(t.Context(), sessions[0].Runtime, 1)) // of two that want one

	pods := r.all(sessions, r.drivers[2], func(ctx context.Context, d *Driver, c driver.Claim) (string, error) {
		box, err := d.Claim(ctx, c)
		return box.PodUID, err
	})
	r.drivers[2] = b.another()
	r.one(sessions, driver.StateRunning, pods)

	for i := range sessions {
		sessions[i].Intent = 6
	}
	r.all(sessions, r.drivers[1], func(ctx context.Context, d *Driver, c driver.Claim) (string, error) {
		return "", d.Suspend(ctx, c.Ref, c.Intent)
	})
	r.drivers[1] = b.another()
	r.one(sessions, driver.StateSuspended, nil)

	for i := range sessions {
		sessions[i].Intent = 7
	}
	again := r.all(sessions, r.drivers[2], func(ctx context.Context, d *Driver, c driver.Claim) (string, error) {
		box, err := d.Resume(ctx, c)
		return box.PodUID, err
	})
	r.drivers[2] = b.another()
	r.one(sessions, driver.StateRunning, again)
	for session, pod := range again {
		if pod == pods[session] {
			t.Errorf("session %s has the Pod that it had before", session)
		}
	}
	// What comes late of before is refused by all.
	r.all(sessions, nil, func(ctx context.Context, d *Driver, c driver.Claim) (string, error) {
		if err := d.Suspend(ctx, c.Ref, 6); !errors.Is(err, driver.ErrOlderIntent) {
			return "", fmt.Errorf("a late suspend: %w", err)
		}
		return "", nil
	})
	r.one(sessions, driver.StateRunning, again)

	for i := range sessions {
		sessions[i].Intent = 8
	}
	r.all(sessions, r.drivers[1], func(ctx context.Context, d *Driver, c driver.Claim) (string, error) {
		return "", d.Release(ctx, c.Ref, c.Intent, false)
	})
	drivertest.Eventually(t, "nothing is left", func() bool { return len(b.kinds()) == 0 })
}

// one holds every replica to one sandbox a session, in a state and of a Pod.
func (r *replicas) one(sessions []driver.Claim, state driver.State, pods map[string]string) {
	r.t.Helper()
	for _, d := range r.drivers {
		drivertest.Eventually(r.t, "a replica sees one sandbox of each session, "+string(state), func() bool {
			found, err := d.List(r.t.Context())
			must(r.t, err)
			for _, f := range found {
				if f.State != state || pods != nil && f.PodUID != pods[f.Session] {
					return false
				}
			}
			return len(found) == len(sessions)
		})
	}
}
