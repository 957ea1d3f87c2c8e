package projections

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/holdfast-io/holdfast/events"
)

// refusedError says that Postgres refused a row of a batch that ends at upTo.
type refusedError struct {
	upTo uint64
	err  error
}

func (e *refusedError) Error() string { return fmt.Sprintf("batch up to %d: %v", e.upTo, e.err) }
func (e *refusedError) Unwrap() error { return e.err }

// aheadBytes bounds the data of the messages that are read and not folded yet: there may
// be thousands, and each may have megabytes. A batch is what of it comes without a pause.
const aheadBytes = 64 << 20

// weight is a message's part of that.
func weight(m events.Message) int64 {
	var n int64
	for _, r := range m.Envelope.Events {
		n += int64(len(r.Data))
	}
	return min(n, aheadBytes)
}

// pipeline projects from where w is until something fails, in three stages: the
// tail, folding, and writing. The next batch is folded while one is written.
func (p *Projector) pipeline(ctx context.Context, w *writer) error {
	from := w.at.seq + 1
	messages := make(chan events.Message, p.cfg.BatchSize)
	batches := make(chan *rendered, 1)
	var f flight
	ahead := semaphore.NewWeighted(aheadBytes)
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return tail(gctx, messages, func(handle func(events.Message) error) error {
			return p.cfg.Log.Tail(gctx, from, func(m events.Message) error {
				if err := ahead.Acquire(gctx, weight(m)); err != nil {
					return err
				}
				return handle(m)
			})
		})
	})
	g.Go(func() error { return p.watch(gctx) })
	g.Go(func() error {
		for {
			ms, err := collect(gctx, messages, p.cfg.BatchSize, p.cfg.BatchWait, p.cfg.BatchIdle)
			if err != nil {
				return err
			}
			// In this order: what leaves the flight in between is committed then.
			uncommitted := f.now()
			faulted, err := faultedOf(gctx, p.cfg.Pool, ms)
			if err != nil {
				return err
			}
			maps.Copy(faulted, uncommitted)
			r, err := w.prepare(gctx, ms, faulted, nil)
			if err != nil {
				return err
			}
			for _, m := range ms {
				ahead.Release(weight(m))
			}
			f.add(r)
			select {
			case batches <- r:
			case <-gctx.Done():
				return gctx.Err()
			}
		}
	})
	g.Go(func() error {
		for {
			select {
			case r := <-batches:
				if err := w.write(gctx, r); err != nil {
					if dataError(err) {
						return &refusedError{upTo: r.last.seq, err: err}
					}
					return err
				}
				f.remove(r)
			case <-gctx.Done():
				return gctx.Err()
			}
		}
	})
	return g.Wait()
}

// flight holds the faults of batches that aren't committed yet.
type flight struct {
	mu     sync.Mutex
	faults map[string]bool
}

func (f *flight) now() map[string]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.faults)
}

func (f *flight) add(r *rendered) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.faults == nil {
		f.faults = map[string]bool{}
	}
	for subject := range r.faults {
		f.faults[subject] = true
	}
}

func (f *flight) remove(r *rendered) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for subject := range r.faults {
		delete(f.faults, subject)
	}
}

// carefully projects one message at a time up to a sequence.
func (p *Projector) carefully(ctx context.Context, w *writer, upTo uint64) error {
	err := p.cfg.Log.Tail(ctx, w.at.seq+1, func(m events.Message) error {
		if err := w.project(ctx, []events.Message{m}); err != nil {
			return err
		}
		if m.Seq >= upTo {
			return errReached
		}
		return nil
	})
	if errors.Is(err, errReached) {
		return nil
	}
	return err
}
