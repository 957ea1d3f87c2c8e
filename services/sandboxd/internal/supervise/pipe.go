package supervise

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
)

// sender is the control channel's way out.
type sender interface {
	Send(sandboxapi.Control) error
}

// pipe is the [Binder] of a sandbox whose parent redeems for it. The parent knows who is
// at the other end, and answers one question after the other, so that answers need no
// correlation.
type pipe struct {
	podUID   string
	control  sender
	upstream *Upstream
	answers  chan answer // holds one
}

// answer is the parent's to a redeem or a renewal.
type answer struct {
	grant *sandboxapi.Grant
	err   error
}

func newPipe(podUID string, control sender, upstream *Upstream) *pipe {
	return &pipe{podUID: podUID, control: control, upstream: upstream, answers: make(chan answer, 1)}
}

// Redeem implements [Binder].
func (p *pipe) Redeem(ctx context.Context, bind string) (*sandboxapi.Grant, error) {
	return p.ask(ctx, sandboxapi.Control{Type: sandboxapi.ControlRedeem, Bind: bind})
}

// Renew implements [Binder]. The parent remembers the bind.
func (p *pipe) Renew(ctx context.Context, _ string) (*sandboxapi.Grant, error) {
	return p.ask(ctx, sandboxapi.Control{Type: sandboxapi.ControlRenew})
}

// Upstream implements [Binder].
func (p *pipe) Upstream() *Upstream { return p.upstream }

func (p *pipe) ask(ctx context.Context, question sandboxapi.Control) (*sandboxapi.Grant, error) {
	select {
	case <-p.answers: // to nothing that was asked
	default:
	}
	if err := p.control.Send(question); err != nil {
		return nil, err
	}
	select {
	case a := <-p.answers:
		if a.err == nil && a.grant.PodUID != p.podUID {
			return nil, fmt.Errorf("%w: the grant is for another sandbox", ErrRefused)
		}
		return a.grant, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Granted takes the parent's answer to a redeem or a renewal.
func (p *pipe) Granted(g *sandboxapi.Grant) { p.hear(answer{grant: g}) }

// Refused takes the parent's refusal of a redeem or a renewal.
func (p *pipe) Refused(reason string) {
	p.hear(answer{err: fmt.Errorf("%w: %w", ErrRefused, errors.New(reason))})
}

// hear keeps an answer for who asked; one too many is nobody's.
func (p *pipe) hear(a answer) {
	select {
	case p.answers <- a:
	default:
	}
}
