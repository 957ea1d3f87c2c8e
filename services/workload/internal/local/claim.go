package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// Claim makes the sandbox of c.Ref or finds it again.
func (d *Driver) Claim(ctx context.Context, c driver.Claim) (driver.Sandbox, error) {
	return d.ensure(ctx, c, true)
}

// Resume starts a suspended sandbox again.
func (d *Driver) Resume(ctx context.Context, c driver.Claim) (driver.Sandbox, error) {
	return d.ensure(ctx, c, false)
}

// ensure makes c's sandbox run: found, adopted, started again or made.
func (d *Driver) ensure(ctx context.Context, c driver.Claim, create bool) (driver.Sandbox, error) {
	if err := c.Validate(); err != nil {
		return driver.Sandbox{}, err
	}
	unlock, err := d.locks.Lock(ctx, c.Key())
	if err != nil {
		return driver.Sandbox{}, err
	}
	defer unlock()
	sb, others, err := d.admit(c.Ref, c.Intent)
	if err != nil {
		return driver.Sandbox{}, err
	}
	if sb == nil && !create {
		return driver.Sandbox{}, fmt.Errorf("session %s, generation %d: %w", c.Session, c.Generation, driver.ErrNotFound)
	}
	if err := d.supersede(others, c.Ref); err != nil {
		return driver.Sandbox{}, err
	}
	if sb == nil {
		return d.create(ctx, c)
	}
	running, err := d.running(sb)
	if err != nil {
		return driver.Sandbox{}, err
	}
	if running {
		return d.found(sb, c)
	}
	return d.restart(ctx, sb, c)
}

// running says whether a sandbox runs. One that has just ended is recorded as
// lost first. The caller holds the session's lock.
func (d *Driver) running(sb *sandbox) (bool, error) {
	_, p := d.peek(sb)
	if p == nil {
		return false, nil
	}
	select {
	case <-p.exited:
		return false, d.recordLoss(sb, p)
	default:
		return true, nil
	}
}

// admit checks an intent against the newest of the session, and returns the
// sandbox of ref (nil for none) and the session's others. The caller holds the
// session's lock.
func (d *Driver) admit(ref driver.Ref, intent uint64) (sb *sandbox, others []*sandbox, err error) {
	newest, err := d.paths.loadIntent(ref.Key())
	if err != nil {
		return nil, nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for r, s := range d.sandboxes {
		if r.Key() != ref.Key() {
			continue
		}
		newest = max(newest, s.Intent)
		if r == ref {
			sb = s
		} else {
			others = append(others, s)
		}
	}
	if intent < newest {
		return nil, nil, &driver.OlderIntentError{Ref: ref, Intent: intent, Recorded: newest}
	}
	return sb, others, nil
}

// supersede removes what is left of earlier generations; their volume goes on.
func (d *Driver) supersede(others []*sandbox, ref driver.Ref) error {
	for _, sb := range others {
		running, err := d.running(sb)
		if err != nil {
			return err
		}
		if running {
			r, _ := d.peek(sb)
			return fmt.Errorf("%w: generation %d", driver.ErrBusy, r.Generation)
		}
	}
	for _, sb := range others {
		if err := d.remove(sb); err != nil {
			return fmt.Errorf("session %s: remove an earlier generation: %w", ref.Session, err)
		}
	}
	return nil
}

// found returns a running sandbox, under the newer intent.
func (d *Driver) found(sb *sandbox, c driver.Claim) (driver.Sandbox, error) {
	r, p := d.peek(sb)
	if r.Intent != c.Intent {
		if err := d.update(sb, p, func(r *record) { r.Intent, r.Epoch = c.Intent, c.Epoch }); err != nil {
			return driver.Sandbox{}, err
		}
	}
	return d.describe(sb, nil), nil
}

// describe returns a sandbox as its callers see it.
func (d *Driver) describe(sb *sandbox, watch *stopwatch) driver.Sandbox {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := driver.Sandbox{Ref: sb.Ref, SandboxUID: sb.SandboxUID, PodUID: sb.PodUID, Path: sb.path, Isolation: d.cfg.Isolation}
	if watch != nil {
		out.Layers = watch.layers
	}
	return out
}

// create adopts a warm sandbox, or starts a cold one.
func (d *Driver) create(ctx context.Context, c driver.Claim) (driver.Sandbox, error) {
	watch := startWatch()
	volume, err := exists(d.paths.volume(c.Key()))
	if err != nil {
		return driver.Sandbox{}, err
	}
	if !volume || !c.Runtime.HasVolume {
		for sb := d.takeWarm(c); sb != nil; sb = d.takeWarm(c) {
			err := d.adopt(sb)
			if err == nil {
				watch.lap("adopt")
				return d.describe(sb, watch), nil
			}
			d.cfg.Log.Warn("can't adopt a warm sandbox", "session", c.Session, "err", err)
			if err := d.discard(sb); err != nil {
				return driver.Sandbox{}, err
			}
		}
	}
	return d.createCold(ctx, c, watch)
}

// adopt makes a warm sandbox the session's on disk; in memory it is already.
func (d *Driver) adopt(sb *sandbox) error {
	r, p := d.peek(sb)
	select {
	case <-p.exited:
		return errors.New(p.cause)
	default:
	}
	if err := d.paths.save(r); err != nil {
		return err
	}
	if !r.HasVolume {
		return nil
	}
	return moveIntoPlace(d.paths.ownWorkspace(r.SandboxUID), d.paths.workspace(r))
}

// moveIntoPlace renames a warm sandbox's workspace to the session's.
func moveIntoPlace(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return syncDir(filepath.Dir(to))
}

// createCold makes a sandbox from nothing.
func (d *Driver) createCold(ctx context.Context, c driver.Claim, watch *stopwatch) (driver.Sandbox, error) {
	r := record{
		Ref: c.Ref, SandboxUID: newUID(), Intent: c.Intent, Epoch: c.Epoch, State: driver.StateRunning, HasVolume: c.Runtime.HasVolume,
		Since: time.Now().UTC(),
	}
	sb := &sandbox{path: driver.PathCold}
	err := os.Mkdir(d.paths.sandbox(r.SandboxUID), 0o700)
	if err == nil {
		r.UID, err = d.prepareWorkspace(r)
	}
	sb.record = r
	if err == nil {
		watch.lap("workspace")
		err = d.run(ctx, sb, r, c.Runtime, watch)
	}
	if err != nil {
		// The intent was carried out, in that it failed: an older one stays refused.
		return driver.Sandbox{}, errors.Join(err, d.paths.saveIntent(c.Key(), c.Intent), d.remove(sb))
	}
	return d.describe(sb, watch), nil
}

// restart starts a new incarnation of a suspended or lost sandbox. Its record was
// written after its volume, so a volume that isn't there was lost: it isn't made
// again, which would look like a workspace that was kept.
func (d *Driver) restart(ctx context.Context, sb *sandbox, c driver.Claim) (driver.Sandbox, error) {
	watch := startWatch()
	r, _ := d.peek(sb)
	r.Intent, r.Epoch, r.Cause = c.Intent, c.Epoch, ""
	if there, err := exists(d.paths.workspace(r)); err == nil && r.HasVolume && !there {
		return driver.Sandbox{}, fmt.Errorf("session %s: %w", c.Session, driver.ErrWorkspaceGone)
	}
	uid, err := d.prepareWorkspace(r)
	if err != nil {
		return driver.Sandbox{}, fmt.Errorf("%w: workspace: %w", driver.ErrStart, err)
	}
	r.UID = uid
	watch.lap("workspace")
	state := r.State
	r.State = driver.StateRunning
	if err := d.run(ctx, sb, r, c.Runtime, watch); err != nil {
		// It is what it was before, but nothing older may follow.
		return driver.Sandbox{}, errors.Join(err, d.update(sb, nil, func(r *record) { r.Intent, r.State = c.Intent, state }))
	}
	d.mu.Lock()
	sb.path = driver.PathCold
	d.mu.Unlock()
	return d.describe(sb, watch), nil
}

// run starts an incarnation of r and makes it sb's.
func (d *Driver) run(ctx context.Context, sb *sandbox, r record, spec driver.RuntimeSpec, watch *stopwatch) error {
	p, r, err := d.start(ctx, r, spec, watch)
	if err != nil {
		return err
	}
	d.mu.Lock()
	sb.record, sb.proc = r, p
	if r.State == stateWarm {
		d.warm[r.SandboxUID] = sb
	} else {
		d.sandboxes[r.Ref] = sb
	}
	d.mu.Unlock()
	d.tasks.Go(func() { d.watch(sb, p) })
	return nil
}

// prepareWorkspace makes r's workspace, an empty one unless it is a volume that
// exists, and returns the uid that it belongs to.
func (d *Driver) prepareWorkspace(r record) (int, error) {
	dir := d.paths.workspace(r)
	if !r.HasVolume {
		if r.UID != 0 {
			return r.UID, remakeOwned(dir, r.UID)
		}
		return d.withUID(func(uid int) error { return remakeOwned(dir, uid) })
	}
	owner, err := ownerOf(dir)
	if errors.Is(err, os.ErrNotExist) {
		return d.withUID(func(uid int) error {
			// On disk before the record that says that it was there.
			return errors.Join(makeOwned(dir, uid), syncDir(filepath.Dir(dir)))
		})
	}
	if err != nil || os.Getuid() != 0 || d.ourUID(owner) {
		return owner, err
	}
	return d.withUID(func(uid int) error { return reown(dir, uid) })
}

// withUID takes a uid and makes something that belongs to it.
func (d *Driver) withUID(use func(uid int) error) (int, error) {
	uid, err := d.takeUID()
	if err != nil {
		return 0, err
	}
	return uid, use(uid)
}

// Suspend ends the processes and keeps the workspace.
func (d *Driver) Suspend(ctx context.Context, ref driver.Ref, intent uint64) error {
	if err := ref.Validate(); err != nil {
		return err
	}
	unlock, err := d.locks.Lock(ctx, ref.Key())
	if err != nil {
		return err
	}
	defer unlock()
	sb, _, err := d.admit(ref, intent)
	if err != nil {
		return err
	}
	if sb == nil {
		return fmt.Errorf("session %s, generation %d: %w", ref.Session, ref.Generation, driver.ErrNotFound)
	}
	r, p := d.peek(sb)
	if p != nil {
		// Intent first: after a crash in between it is lost, but nothing older follows.
		if err := d.update(sb, p, func(r *record) { r.Intent = intent }); err != nil {
			return err
		}
		if err := p.stop(d.cfg.StopGrace); err != nil {
			return fmt.Errorf("suspend session %s: %w", ref.Session, err)
		}
	}
	if !r.HasVolume {
		if err := removeTree(d.paths.workspace(r)); err != nil {
			return fmt.Errorf("suspend session %s: %w", ref.Session, err)
		}
	}
	return d.update(sb, nil, func(r *record) { r.Intent, r.State, r.Cause = intent, driver.StateSuspended, "" })
}

// Release ends the processes and removes the sandbox.
func (d *Driver) Release(ctx context.Context, ref driver.Ref, intent uint64, keepWorkspace bool) error {
	if err := ref.Validate(); err != nil {
		return err
	}
	key := ref.Key()
	unlock, err := d.locks.Lock(ctx, key)
	if err != nil {
		return err
	}
	defer unlock()
	sb, others, err := d.admit(ref, intent)
	if err != nil {
		return err
	}
	if err := d.paths.saveIntent(key, intent); err != nil {
		return fmt.Errorf("release session %s: %w", ref.Session, err)
	}
	if sb != nil {
		if _, p := d.peek(sb); p != nil {
			if err := p.stop(d.cfg.StopGrace); err != nil {
				return fmt.Errorf("release session %s: %w", ref.Session, err)
			}
		}
	}
	if !keepWorkspace && len(others) == 0 {
		if err := d.removeVolume(key); err != nil {
			return fmt.Errorf("release session %s: %w", ref.Session, err)
		}
	}
	if sb == nil {
		return nil
	}
	return d.remove(sb)
}

// removeVolume removes a session's workspace.
func (d *Driver) removeVolume(key driver.SessionKey) error {
	dir := d.paths.volume(key)
	owner, err := ownerOf(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := removeTree(dir); err != nil {
		return err
	}
	if err := os.Remove(d.paths.outgrown(key)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	d.freeUID(owner)
	return nil
}

// remove forgets a sandbox that doesn't run, on disk and in memory.
func (d *Driver) remove(sb *sandbox) error {
	r, _ := d.peek(sb)
	if err := removeTree(d.paths.sandbox(r.SandboxUID)); err != nil {
		return fmt.Errorf("remove sandbox %s: %w", r.SandboxUID, err)
	}
	d.mu.Lock()
	if d.sandboxes[r.Ref] == sb {
		delete(d.sandboxes, r.Ref)
	}
	delete(d.warm, r.SandboxUID)
	d.mu.Unlock()
	if volume, err := exists(d.paths.workspace(r)); err != nil || !volume {
		d.freeUID(r.UID)
	}
	return nil
}
