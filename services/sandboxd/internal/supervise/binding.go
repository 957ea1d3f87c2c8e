package supervise

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
)

var errBoundToAnother = errors.New("the sandbox is bound already")

// renewAt is the part of a token's life after which a new one is asked for;
// renewRetry the pause after a refusal, in which the old one still serves.
const (
	renewAt    = 0.7
	renewRetry = 5 * time.Second
)

// binding is the sandbox's tie to its session.
type binding struct {
	binder Binder
	log    *slog.Logger
	ctx    context.Context // of the sandbox's life
	cancel context.CancelFunc
	asking sync.WaitGroup

	mu      sync.Mutex
	bind    string // being redeemed, or redeemed
	grant   *sandboxapi.Grant
	failure error         // the answer to the last redeem that failed
	settled chan struct{} // closed when the open redeem is answered; nil without one
}

func newBinding(binder Binder, log *slog.Logger) *binding {
	b := &binding{binder: binder, log: log}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// Grant is the redeemed bind, or nil.
func (b *binding) Grant() *sandboxapi.Grant {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.grant
}

// Bind redeems a bind, once: the same bind again gets the same answer, also
// when the first asker has gone in the meantime. It fails with errBoundToAnother,
// what the binder fails with, or the context's cause.
func (b *binding) Bind(ctx context.Context, bind string) error {
	for asked := false; ; {
		b.mu.Lock()
		switch {
		case b.grant != nil:
			defer b.mu.Unlock()
			if b.bind != bind {
				return errBoundToAnother
			}
			return nil
		case asked && b.settled == nil:
			defer b.mu.Unlock()
			return b.failure
		case b.ctx.Err() != nil:
			defer b.mu.Unlock()
			return b.ctx.Err()
		case b.settled == nil:
			b.bind, b.settled = bind, make(chan struct{})
			b.asking.Go(func() { b.redeem(bind) })
		}
		// A different bind waits here too, and is then refused or has its turn.
		asked = b.bind == bind
		settled := b.settled
		b.mu.Unlock()
		select {
		case <-settled:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// redeem asks the binder, and renews what it grants until the sandbox ends.
func (b *binding) redeem(bind string) {
	grant, err := b.binder.Redeem(b.ctx, bind)
	b.mu.Lock()
	b.grant, b.failure = grant, err
	if err != nil {
		b.grant = nil
	}
	close(b.settled)
	b.settled = nil
	b.mu.Unlock()
	if err == nil {
		b.renew(bind, grant)
	}
}

// renew keeps the token fresh.
func (b *binding) renew(bind string, grant *sandboxapi.Grant) {
	timer := time.NewTimer(untilRenewal(grant))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-b.ctx.Done():
			return
		}
		fresh, err := b.binder.Renew(b.ctx, bind)
		if err == nil && (fresh.Session != grant.Session || fresh.Generation != grant.Generation || fresh.PodUID != grant.PodUID) {
			err = fmt.Errorf("%w: the renewed token is for another session", ErrRefused)
		}
		if err != nil {
			// The token serves until it expires; what it is refused for then says so.
			b.log.Warn("token not renewed", "err", err)
			timer.Reset(renewRetry)
			continue
		}
		b.mu.Lock()
		b.grant = fresh
		b.mu.Unlock()
		timer.Reset(untilRenewal(fresh))
	}
}

func untilRenewal(g *sandboxapi.Grant) time.Duration {
	life := time.Until(time.Unix(g.ExpiresUnix, 0))
	return max(time.Duration(float64(life)*renewAt), time.Second)
}

// Close stops the renewals. It may be called again.
func (b *binding) Close() {
	b.mu.Lock()
	b.cancel()
	b.mu.Unlock()
	b.asking.Wait()
}
