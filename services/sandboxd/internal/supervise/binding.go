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

var (
	errBoundToAnother = errors.New("the sandbox is bound already")
	errRefused        = errors.New("the bind was refused")
)

// sender is the control channel's way out.
type sender interface {
	Send(sandboxapi.Control) error
}

// renewAt is the part of a token's life after which a new one is asked for;
// renewRetry the pause after a refusal, in which the old one still serves.
const (
	renewAt    = 0.7
	renewRetry = 5 * time.Second
)

// binding is the sandbox's tie to its session. At most one question to the
// parent is open at a time, so that answers need no correlation.
type binding struct {
	podUID  string
	control sender
	log     *slog.Logger

	mu      sync.Mutex
	bind    string // being redeemed, or redeemed
	grant   *sandboxapi.Grant
	refusal string        // the answer to the last redeem that failed
	settled chan struct{} // closed when the open redeem is answered; nil without one
	renew   *time.Timer
	closed  bool
}

func newBinding(podUID string, control sender, log *slog.Logger) *binding {
	return &binding{podUID: podUID, control: control, log: log}
}

// Grant is the redeemed bind, or nil.
func (b *binding) Grant() *sandboxapi.Grant {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.grant
}

// Bind redeems a bind, once: the same bind again gets the same answer, also
// when the first asker has gone in the meantime. It fails with errBoundToAnother,
// errRefused or the context's cause.
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
			return fmt.Errorf("%w: %s", errRefused, b.refusal)
		case b.settled == nil:
			if err := b.control.Send(sandboxapi.Control{Type: sandboxapi.ControlRedeem, Bind: bind}); err != nil {
				defer b.mu.Unlock()
				return err
			}
			b.bind, b.settled = bind, make(chan struct{})
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

// Granted takes the parent's answer to a redeem or a renewal.
func (b *binding) Granted(g *sandboxapi.Grant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if reason := b.mismatch(g); reason != "" {
		b.refuse(reason)
		return
	}
	b.grant = g
	b.settle()
	life := time.Until(time.Unix(g.ExpiresUnix, 0))
	b.schedule(time.Duration(float64(life) * renewAt))
}

// mismatch says why a grant isn't for this sandbox.
func (b *binding) mismatch(g *sandboxapi.Grant) string {
	switch {
	case g.PodUID != b.podUID:
		return "the grant is for another sandbox"
	case b.grant != nil && (g.Session != b.grant.Session || g.Generation != b.grant.Generation):
		return "the renewed token is for another session"
	}
	return ""
}

// Refused takes the parent's refusal of a redeem or a renewal.
func (b *binding) Refused(reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuse(reason)
}

func (b *binding) refuse(reason string) {
	if b.grant == nil {
		b.refusal = reason
		b.settle()
		return
	}
	// The token serves until it expires; what it is refused for then says so.
	b.log.Warn("token not renewed", "reason", reason)
	b.schedule(renewRetry)
}

func (b *binding) settle() {
	if b.settled != nil {
		close(b.settled)
		b.settled = nil
	}
}

func (b *binding) schedule(in time.Duration) {
	if b.closed {
		return
	}
	if b.renew != nil {
		b.renew.Stop()
	}
	b.renew = time.AfterFunc(max(in, time.Second), func() {
		if err := b.control.Send(sandboxapi.Control{Type: sandboxapi.ControlRenew}); err != nil {
			// The channel is at its end, and with it the sandbox.
			b.log.Warn("renewal not asked for", "err", err)
		}
	})
}

// Close stops the renewals.
func (b *binding) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.renew != nil {
		b.renew.Stop()
	}
}
