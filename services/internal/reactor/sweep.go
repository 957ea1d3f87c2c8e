package reactor

import (
	"context"
	"time"
)

// retryParked has what is parked attempted again, every RetryParkedEvery: trouble that
// is over should need nobody.
func (r *Reactor) retryParked(ctx context.Context) {
	tick := time.NewTicker(r.cfg.RetryParkedEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, key := range r.parking.try() {
			r.queue.add(key, nil)
		}
		r.observe()
	}
}

// sweep enqueues what is not settled, at once and then every SweepEvery.
func (r *Reactor) sweep(ctx context.Context) {
	if r.cfg.Unsettled == nil || !r.parking.known(ctx) {
		return
	}
	tick := time.NewTicker(r.cfg.SweepEvery)
	defer tick.Stop()
	failed := false
	for {
		keys, err := r.cfg.Unsettled(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failed:
			failed = true
			r.log.Warn("sweep can't read what is not settled", "error", err)
		case err == nil && failed:
			failed = false
			r.log.Info("sweep works again")
		}
		for _, key := range keys {
			r.Enqueue(key)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
