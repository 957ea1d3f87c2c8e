package local

import (
	"fmt"
	"os"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// takeUID returns a uid for a sandbox: one that nothing else has, or the
// driver's own when it isn't root or doesn't isolate.
func (d *Driver) takeUID() (int, error) {
	if os.Getuid() != 0 || d.plain() {
		return os.Getuid(), nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for uid := d.cfg.UIDBase; uid < d.cfg.UIDBase+d.cfg.UIDCount; uid++ {
		if !d.uids[uid] {
			d.uids[uid] = true
			return uid, nil
		}
	}
	return 0, fmt.Errorf("%w: all %d uids are taken by sandboxes and volumes", driver.ErrStart, d.cfg.UIDCount)
}

// freeUID gives a uid back once no sandbox and no volume has it.
func (d *Driver) freeUID(uid int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.uids, uid)
}

// ourUID says whether a uid is one that sandboxes get here.
func (d *Driver) ourUID(uid int) bool {
	if d.plain() {
		return uid == os.Getuid()
	}
	return uid >= d.cfg.UIDBase && uid < d.cfg.UIDBase+d.cfg.UIDCount
}
