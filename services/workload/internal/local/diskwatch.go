package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// What a sandbox writes to the host's disk is its workspace. Where the file system
// has project quotas the kernel bounds it (see quotas). Elsewhere it is watched:
//
//	every DiskInterval  one statfs: has the disk filled since a sandbox was measured
//	                    by as much as that sandbox had left?   ── no ──▶ it can't be beyond
//	                                                           ── yes ─▶ measure it
//	every measureEvery  measure it anyway: others may have freed what it took
//
// so that measuring costs nothing while nobody writes, and follows at once where
// somebody does. A walk rests twenty times as long as it took unless the disk
// fills, and four times as long at any rate. In the window between, a sandbox
// takes what the disk can write in DiskInterval and the time of a walk; the
// reserve is there for that, and for what no walk can see (a file that is
// unlinked and only mapped).

const (
	// measureEvery is the longest time between two measurements of a sandbox.
	measureEvery = 5 * time.Second
	// restFactor and busyFactor are how many times the length of a walk lies between
	// two of them, on a quiet disk and on one that fills.
	restFactor, busyFactor = 20, 4
	// defaultReserve is that of a disk of at least 20 times as much.
	defaultReserve = 1 << 30
)

// diskAccount is what watchDisk knows of an incarnation. Only its goroutine
// touches it, but for limit, which is set before the process starts.
type diskAccount struct {
	// limit is what the workspace may take.
	limit diskUse
	// use is what it took when it was measured last, in a walk of length took.
	use  diskUse
	at   time.Time
	took time.Duration
	// full is what of the whole disk was in use then.
	full diskUse
	// wrote is what the processes had written when the reserve was last in danger.
	wrote   int64
	sampled bool
}

// due says whether a sandbox has to be measured: full is the whole disk's use.
func (a *diskAccount) due(now time.Time, full diskUse) bool {
	since := now.Sub(a.at)
	left := diskUse{a.limit.bytes - a.use.bytes, a.limit.files - a.use.files}
	grown := diskUse{full.bytes - a.full.bytes, full.files - a.full.files}
	if grown.beyond(left) {
		return since >= busyFactor*a.took
	}
	return since >= max(measureEvery, restFactor*a.took)
}

// reserve is what has to stay free of a disk of the given size.
func (c Config) reserve(size int64) int64 {
	switch {
	case c.ReserveBytes < 0:
		return 0
	case c.ReserveBytes > 0:
		return c.ReserveBytes
	}
	return min(defaultReserve, size/20)
}

// disk is the state of the disk that the driver's data is on.
type disk struct {
	used diskUse
	// free is what an unprivileged user can still take, in bytes.
	free, reserve int64
}

// statDisk looks at the disk; it costs one system call.
func (d *Driver) statDisk() (disk, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(d.paths.root, &st); err != nil {
		return disk{}, fmt.Errorf("disk of %s: %w", d.paths.root, err)
	}
	unit := int64(st.Bsize) //nolint:unconvert // another width on other machines
	return disk{
		used: diskUse{int64(st.Blocks-st.Bfree) * unit, int64(st.Files - st.Ffree)},
		free: int64(st.Bavail) * unit, reserve: d.cfg.reserve(int64(st.Blocks) * unit),
	}, nil
}

// admitToDisk refuses to start anything on a disk that is down to its reserve.
func (d *Driver) admitToDisk() error {
	now, err := d.statDisk()
	if err != nil {
		return err
	}
	if now.free < now.reserve {
		return fmt.Errorf("%w: the disk of %s has %d MiB left, %d MiB of it are its reserve; free some",
			driver.ErrStart, d.cfg.DataDir, now.free>>20, now.reserve>>20)
	}
	return nil
}

// watchDisk looks at the disk until the driver is closed.
func (d *Driver) watchDisk() {
	tick := time.NewTicker(d.cfg.DiskInterval)
	defer tick.Stop()
	failing := false
	for {
		select {
		case <-d.ctx.Done():
			return
		case now := <-tick.C:
			err := d.lookAtDisk(now)
			if err != nil && !failing && d.ctx.Err() == nil {
				d.cfg.Log.Error("can't watch the disk", "err", err)
			}
			failing = err != nil
		}
	}
}

// lookAtDisk is one look of watchDisk.
func (d *Driver) lookAtDisk(now time.Time) error {
	at, err := d.statDisk()
	if err != nil {
		return err
	}
	running := d.runningSandboxes()
	var errs []error
	if d.quotas == nil {
		errs = append(errs, d.enforceLimits(running, now, at))
	}
	if at.free < 2*at.reserve {
		errs = append(errs, d.defendReserve(running, at))
	}
	return errors.Join(errs...)
}

// incarnation is a running process with a copy of its record.
type incarnation struct {
	record
	*process
}

// runningSandboxes lists the incarnations that run, in the order in which they
// have the least left of their limit.
func (d *Driver) runningSandboxes() []incarnation {
	d.mu.Lock()
	var all []incarnation
	for _, sb := range d.sandboxes {
		if sb.proc != nil {
			all = append(all, incarnation{sb.record, sb.proc})
		}
	}
	for _, sb := range d.warm {
		if sb.proc != nil {
			all = append(all, incarnation{sb.record, sb.proc})
		}
	}
	d.mu.Unlock()
	all = slices.DeleteFunc(all, func(i incarnation) bool { return i.verdict.Load() != nil })
	slices.SortFunc(all, func(a, b incarnation) int {
		return cmp.Compare(a.disk.limit.bytes-a.disk.use.bytes, b.disk.limit.bytes-b.disk.use.bytes)
	})
	return all
}

// enforceLimits measures what is due and ends what is beyond its limit.
func (d *Driver) enforceLimits(running []incarnation, now time.Time, at disk) error {
	var processes children
	var errs []error
	for _, in := range running {
		if !in.disk.due(now, at.used) {
			continue
		}
		if processes == nil {
			var err error
			if processes, err = listChildren(); err != nil {
				return err
			}
		}
		use, err := d.measure(in, processes, at)
		tooDeep := errors.Is(err, errTooDeep)
		switch {
		case errors.Is(err, os.ErrNotExist): // being moved or removed
		case err != nil && !tooDeep:
			errs = append(errs, err)
		case tooDeep || use.beyond(in.disk.limit):
			errs = append(errs, d.outgrown(in, use, tooDeep))
		}
	}
	return errors.Join(errs...)
}

// measure measures a sandbox and keeps what it found.
func (d *Driver) measure(in incarnation, processes children, at disk) (diskUse, error) {
	dir := d.paths.workspace(in.record)
	begin := time.Now()
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return diskUse{}, fmt.Errorf("measure %s: %w", dir, err)
	}
	use, err := measureTree(d.ctx, dir, in.disk.limit)
	use.bytes += measureUnlinked(processes.family(in.id.PID), st.Dev)
	in.disk.use, in.disk.at, in.disk.took, in.disk.full = use, begin, time.Since(begin), at.used
	return use, err
}

// outgrown ends a sandbox that is beyond its limit, and notes on its volume that
// the next incarnation finds it so.
func (d *Driver) outgrown(in incarnation, use diskUse, tooDeep bool) error {
	in.log.Warn("a sandbox outgrew its disk limit and is ended", "session", in.Session, "bytes", use.bytes, "files", use.files,
		"limit_bytes", in.disk.limit.bytes, "limit_files", in.disk.limit.files, "too_deep", tooDeep)
	return errors.Join(in.condemn(driver.CauseDiskLimit), d.noteOutgrown(in.record))
}

// defendReserve ends the sandbox that takes the most while the disk is down to
// its reserve, one at a look. Before, it only notes what each has written, so that
// one that wrote much long ago isn't ended for what another does.
func (d *Driver) defendReserve(running []incarnation, at disk) error {
	processes, err := listChildren()
	if err != nil {
		return err
	}
	var worst incarnation
	var most int64
	for _, in := range running {
		before, wrote := in.disk.use.bytes, written(processes.family(in.id.PID))
		took := wrote - in.disk.wrote
		known := in.disk.sampled
		in.disk.wrote, in.disk.sampled = wrote, true
		if !known || at.free >= at.reserve {
			continue
		}
		// Room that was allocated without being written shows in the tree alone.
		if use, err := d.measure(in, processes, at); err == nil {
			took = max(took, use.bytes-before)
		}
		if took > most {
			worst, most = in, took
		}
	}
	if worst.process == nil {
		return nil
	}
	worst.log.Warn("the disk is down to its reserve; the sandbox that wrote the most is ended", "session", worst.Session,
		"bytes", most, "free_bytes", at.free, "reserve_bytes", at.reserve)
	return worst.condemn(driver.CauseDiskReserve)
}

// limitDisk bounds a new incarnation's workspace and returns what it may take.
func (d *Driver) limitDisk(ctx context.Context, r record, limits driver.Limits) (diskUse, error) {
	limit, err := d.diskLimit(ctx, r, limits)
	if err != nil {
		return limit, err
	}
	return limit, d.quotas.limit(d.paths.workspace(r), r.UID, limit)
}

// diskLimit is what a new incarnation's workspace may take: the runtime's size, or
// as much as it takes already where an earlier incarnation was ended for it, so
// that somebody can get in and tidy up.
func (d *Driver) diskLimit(ctx context.Context, r record, limits driver.Limits) (diskUse, error) {
	limit := diskUse{limits.DiskBytes, d.cfg.WorkspaceFiles}
	if !r.HasVolume || r.State == stateWarm {
		return limit, nil
	}
	note := d.paths.outgrown(r.Key())
	if there, err := exists(note); err != nil || !there {
		return limit, err
	}
	const all = 1 << 62
	use, err := measureTree(ctx, d.paths.workspace(r), diskUse{all, all})
	if err != nil && !errors.Is(err, errTooDeep) {
		return limit, err
	}
	if !use.beyond(limit) {
		return limit, os.Remove(note)
	}
	return diskUse{max(limit.bytes, use.bytes), max(limit.files, use.files)}, nil
}

// noteOutgrown leaves a note beside the volume that it was beyond its limit.
func (d *Driver) noteOutgrown(r record) error {
	if !r.HasVolume || r.State == stateWarm {
		return nil
	}
	path := d.paths.outgrown(r.Key())
	if !dirExists(filepath.Dir(path)) {
		return nil
	}
	return replaceFile(path, nil)
}
