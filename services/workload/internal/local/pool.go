package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// pool is how many warm sandboxes of a runtime are wanted.
type pool struct {
	spec driver.RuntimeSpec
	size int
}

// EnsurePool keeps size unbound sandboxes of the runtime's revision.
func (d *Driver) EnsurePool(_ context.Context, spec driver.RuntimeSpec, size int) error {
	if err := spec.Validate(); err != nil {
		return err
	}
	if size < 0 {
		return fmt.Errorf("%w: runtime %s: pool of %d", driver.ErrInvalid, spec.Name, size)
	}
	if d.ctx.Err() != nil {
		return driver.ErrClosed
	}
	d.mu.Lock()
	if size == 0 {
		delete(d.pools, spec.Name)
	} else {
		d.pools[spec.Name] = pool{spec, size}
	}
	d.mu.Unlock()
	d.wakePools()
	return nil
}

func (d *Driver) wakePools() {
	select {
	case d.refill <- struct{}{}:
	default:
	}
}

// takeWarm takes a ready sandbox of c's revision out of the pool: from here on
// it is c's in memory. It returns nil if there is none.
func (d *Driver) takeWarm(c driver.Claim) *sandbox {
	d.mu.Lock()
	defer d.mu.Unlock()
	for uid, sb := range d.warm {
		if !sb.ready || sb.spec.Name != c.Runtime.Name || sb.spec.Revision != c.Runtime.Revision {
			continue
		}
		delete(d.warm, uid)
		sb.Ref, sb.Intent, sb.Epoch, sb.State = c.Ref, c.Intent, c.Epoch, driver.StateRunning
		sb.HasVolume, sb.Since = c.Runtime.HasVolume, time.Now().UTC()
		sb.path = driver.PathWarm
		d.sandboxes[c.Ref] = sb
		d.wakePools()
		return sb
	}
	return nil
}

// discard ends and removes a sandbox that couldn't be adopted.
func (d *Driver) discard(sb *sandbox) error {
	_, p := d.peek(sb)
	return errors.Join(p.stop(0), d.remove(sb))
}

// keepPools fills and trims the pools until the driver is closed, one sandbox
// at a time: what is claimed comes first.
func (d *Driver) keepPools() {
	delays := backoff.NewExponentialBackOff()
	delays.InitialInterval, delays.MaxInterval = time.Second, time.Minute
	retry := time.NewTimer(0)
	retry.Stop()
	defer retry.Stop()
	for {
		select {
		case <-d.ctx.Done():
			return
		case <-d.refill:
		case <-retry.C:
		}
		for d.ctx.Err() == nil {
			worked, err := d.poolStep()
			if err != nil && d.ctx.Err() == nil {
				d.cfg.Log.Warn("can't keep the pool of warm sandboxes", "err", err)
				retry.Reset(delays.NextBackOff())
				break
			}
			if !worked {
				break
			}
			delays.Reset()
		}
	}
}

// poolStep removes or starts one warm sandbox, or says that there is no need.
func (d *Driver) poolStep() (worked bool, err error) {
	if sb := d.superfluous(); sb != nil {
		return true, d.removeWarm(sb)
	}
	spec, ok := d.missing()
	if !ok {
		return false, nil
	}
	return true, d.startWarm(spec)
}

// superfluous returns a warm sandbox that no pool wants.
func (d *Driver) superfluous() *sandbox {
	d.mu.Lock()
	defer d.mu.Unlock()
	count := map[string]int{}
	for _, sb := range d.warm {
		p, ok := d.pools[sb.spec.Name]
		if count[sb.spec.Name]++; !ok || p.spec.Revision != sb.spec.Revision || count[sb.spec.Name] > p.size {
			return sb
		}
	}
	return nil
}

// missing returns a runtime whose pool isn't full.
func (d *Driver) missing() (driver.RuntimeSpec, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	count := map[string]int{}
	for _, sb := range d.warm {
		count[sb.spec.Name]++
	}
	for name, p := range d.pools {
		if count[name] < p.size {
			return p.spec, true
		}
	}
	return driver.RuntimeSpec{}, false
}

// warmTimeout is how long the entrypoint of a warm sandbox may take to answer.
const warmTimeout = time.Minute

// startWarm starts a sandbox that belongs to nobody and waits until it is ready.
func (d *Driver) startWarm(spec driver.RuntimeSpec) error {
	ctx, cancel := context.WithTimeout(d.ctx, warmTimeout)
	defer cancel()
	r := record{SandboxUID: newUID(), State: stateWarm}
	var err error
	if r.UID, err = d.takeUID(); err != nil {
		return err
	}
	sb := &sandbox{record: r, spec: spec}
	if err = os.Mkdir(d.paths.sandbox(r.SandboxUID), 0o700); err == nil {
		err = makeOwned(d.paths.workspace(r), r.UID)
	}
	if err == nil {
		err = d.run(ctx, sb, r, spec, startWatch())
	}
	if err != nil {
		return errors.Join(fmt.Errorf("start a warm sandbox of %s: %w", spec.Name, err), d.remove(sb))
	}
	r, _ = d.peek(sb)
	if _, err := driver.Ready(ctx, "unix:"+r.Socket, sandboxapi.Health{}); err != nil {
		return errors.Join(fmt.Errorf("start a warm sandbox of %s: %w", spec.Name, err), d.removeWarm(sb))
	}
	d.mu.Lock()
	sb.ready = true
	d.mu.Unlock()
	return nil
}

// removeWarm ends and removes a warm sandbox, unless it was taken meanwhile.
func (d *Driver) removeWarm(sb *sandbox) error {
	d.mu.Lock()
	_, ours := d.warm[sb.SandboxUID]
	delete(d.warm, sb.SandboxUID)
	p := sb.proc
	d.mu.Unlock()
	if !ours {
		return nil
	}
	return errors.Join(p.stop(0), d.remove(sb))
}

// WarmReady counts the ready warm sandboxes of a runtime's revision.
func (d *Driver) WarmReady(runtime string, revision uint64) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, sb := range d.warm {
		if sb.ready && sb.spec.Name == runtime && sb.spec.Revision == revision {
			n++
		}
	}
	return n
}
