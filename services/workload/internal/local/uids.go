package local

import "os"

// takeUID returns a uid for a sandbox: one that nothing else has, or the
// driver's own when it isn't root or doesn't isolate.
func (d *Driver) takeUID() int {
	if os.Getuid() != 0 || d.plain() {
		return os.Getuid()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for uid := d.cfg.UIDBase; uid < d.cfg.UIDBase+d.cfg.UIDCount; uid++ {
		if !d.uids[uid] {
			d.uids[uid] = true
			return uid
		}
	}
	// As many sandboxes as uids: sharing the last is better than running as root.
	return d.cfg.UIDBase + d.cfg.UIDCount - 1
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
