package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// watch waits for an incarnation's end and deals with one that nobody asked for.
func (d *Driver) watch(sb *sandbox, p *process) {
	select {
	case <-p.exited:
	case <-d.ctx.Done():
		return // Close ends it
	}
	r, current := d.peek(sb)
	if current != p {
		return
	}
	var err error
	if r.State == stateWarm {
		d.cfg.Log.Warn("a warm sandbox ended", "sandbox", r.SandboxUID, "cause", p.cause)
		err = d.removeWarm(sb)
		d.wakePools()
	} else {
		err = d.lose(sb, p)
	}
	if err != nil && d.ctx.Err() == nil {
		d.cfg.Log.Error("can't clean up after a sandbox", "sandbox", r.SandboxUID, "err", err)
	}
}

// lose records that a session's sandbox ended by itself, and tells.
func (d *Driver) lose(sb *sandbox, p *process) error {
	own, _ := d.peek(sb)
	unlock, err := d.locks.Lock(d.ctx, own.Key())
	if err != nil {
		return err
	}
	defer unlock()
	// What was under way may have wanted this end, or may have started another.
	if _, current := d.peek(sb); current != p {
		return nil
	}
	return d.recordLoss(sb, p)
}

// recordLoss makes a sandbox whose process p ended a lost one, and tells. The
// caller holds the session's lock.
func (d *Driver) recordLoss(sb *sandbox, p *process) error {
	r, _ := d.peek(sb)
	err := errors.Join(p.cleanUp(), d.update(sb, nil, func(r *record) { r.State, r.Cause = driver.StateLost, p.cause }))
	d.events.Put(driver.Event{Ref: r.Ref, SandboxUID: r.SandboxUID, PodUID: r.PodUID, Cause: p.cause})
	return err
}

// crashCause is why sandboxes of a driver that didn't close are lost.
const crashCause = "the driver ended"

// recover takes over what an earlier driver left, and returns what was lost.
// Nothing runs afterwards.
func (d *Driver) recover() ([]driver.Event, error) {
	entries, err := os.ReadDir(d.paths.sandboxes())
	if err != nil {
		return nil, err
	}
	var lost []driver.Event
	for _, e := range entries {
		r, err := d.paths.load(e.Name())
		if err == nil {
			err = d.endLeftover(&r)
		} else if errors.Is(err, os.ErrNotExist) {
			err = nil // the crash came before its first record
		}
		if err != nil {
			return nil, err
		}
		if r.SandboxUID == "" || r.State == stateWarm {
			if err := removeTree(d.paths.sandbox(e.Name())); err != nil {
				return nil, fmt.Errorf("remove a leftover: %w", err)
			}
			continue
		}
		if r.State == driver.StateRunning {
			r.State, r.Cause = driver.StateLost, crashCause
			lost = append(lost, driver.Event{Ref: r.Ref, SandboxUID: r.SandboxUID, PodUID: r.PodUID, Cause: crashCause})
			if err := d.paths.save(r); err != nil {
				return nil, err
			}
		}
		d.sandboxes[r.Ref] = &sandbox{record: r, path: driver.PathCold}
		d.uids[r.UID] = true
	}
	if err := d.removeSockets(); err != nil {
		return nil, err
	}
	return lost, d.recoverSessions()
}

// endLeftover ends what still runs of a record and removes what it left.
func (d *Driver) endLeftover(r *record) error {
	if r.Process != nil {
		killed, err := killIdentified(*r.Process, d.boot)
		if err != nil {
			return fmt.Errorf("end a leftover: %w", err)
		}
		more, err := killSession(*r.Process, d.boot)
		if err != nil {
			return fmt.Errorf("end a leftover: %w", err)
		}
		if killed || more > 0 {
			d.cfg.Log.Warn("ended a leftover sandbox", "sandbox", r.SandboxUID, "pod", r.PodUID)
		}
	}
	if err := removeGroups(r.Cgroups); err != nil {
		return fmt.Errorf("remove a leftover: %w", err)
	}
	r.Process, r.Cgroups, r.Socket = nil, nil, ""
	if r.State == stateWarm {
		return nil
	}
	if err := removeTree(d.paths.spool(r.SandboxUID)); err != nil {
		return fmt.Errorf("remove a leftover: %w", err)
	}
	// A crash in the middle of an adoption: finish it.
	own := d.paths.ownWorkspace(r.SandboxUID)
	if moved, err := exists(own); err != nil || !moved || !r.HasVolume {
		return err
	}
	return moveIntoPlace(own, d.paths.workspace(*r))
}

// removeSockets removes every endpoint: nobody serves them.
func (d *Driver) removeSockets() error {
	sockets, err := filepath.Glob(filepath.Join(d.runDir, "*.sock"))
	if err != nil {
		return err
	}
	for _, s := range sockets {
		if err := os.Remove(s); err != nil {
			return fmt.Errorf("remove a leftover: %w", err)
		}
	}
	return nil
}

// intentAge is how long the intent of a session without sandbox and volume is
// kept. A command that was delayed for longer finds its session ended.
const intentAge = 7 * 24 * time.Hour

// recoverSessions finds the uids of volumes and forgets what is too old.
func (d *Driver) recoverSessions() error {
	dirs, err := filepath.Glob(filepath.Join(d.paths.sessions(), "*", "*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		key := driver.SessionKey{Tenant: filepath.Base(filepath.Dir(dir)), Session: filepath.Base(dir)}
		owner, err := ownerOf(d.paths.volume(key))
		if err == nil {
			d.uids[owner] = true
			continue
		}
		if !errors.Is(err, os.ErrNotExist) {
			return err
		}
		info, err := os.Stat(d.paths.intent(key))
		if err == nil && time.Since(info.ModTime()) < intentAge {
			continue
		}
		if err := removeTree(dir); err != nil {
			return fmt.Errorf("forget session %s: %w", key.Session, err)
		}
	}
	return nil
}
