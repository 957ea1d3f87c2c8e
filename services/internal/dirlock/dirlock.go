// Package dirlock keeps a second process off a data directory, by a lock on a file
// in it that ends with its holder, however that ends.
package dirlock

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrHeld says that another process keeps the lock.
var ErrHeld = errors.New("the lock is held")

// patience is how long a lock is tried for: a process that was just killed, or a
// child of ours between fork and exec, may hold it for a moment more.
const patience = time.Second

// Lock locks an open file; closing it gives the lock back.
func Lock(f *os.File) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); ; <-tick.C {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EWOULDBLOCK):
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		case time.Now().After(end):
			return ErrHeld
		}
	}
}
