package reactor

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff is the wait after a number of failures before this one: doubling from
// minBackoff to maxBackoff, less up to half, so that keys that failed together
// don't come back together.
func backoff(before int) time.Duration {
	d := maxBackoff
	if before < 7 { // 50 ms << 7 is over 5 s
		d = min(minBackoff<<before, maxBackoff)
	}
	return d - time.Duration(rand.Int64N(int64(d/2))) //nolint:gosec // jitter
}

// pause waits; false when ctx ended meanwhile.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
