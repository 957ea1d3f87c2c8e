package projections

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// progress is how far a projector is, and what stands in its way.
type progress struct {
	mu    sync.Mutex
	seq   uint64
	err   error
	moved chan struct{} // closed and replaced when seq grows
}

var errStarting = errors.New("the projector is starting")

func newProgress() *progress { return &progress{err: errStarting, moved: make(chan struct{})} }

// Position is the sequence of the last message that is in the read models, as far
// as this projector knows.
func (p *progress) Position() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seq
}

// Ready gives nil while projecting works, here or, standing by, elsewhere; else
// what stands in the way. A *CheckpointError needs an operator.
func (p *progress) Ready() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// WaitFor waits until the read models have the message at seq. Where ctx ends
// first it gives ErrBehind.
func (p *progress) WaitFor(ctx context.Context, seq uint64) error {
	for {
		p.mu.Lock()
		at, moved := p.seq, p.moved
		p.mu.Unlock()
		if at >= seq {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("%w: at %d, not yet at %d: %w", ErrBehind, at, seq, ctx.Err())
		}
	}
}

func (p *progress) set(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

func (p *progress) reached(seq uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if seq != p.seq {
		p.seq = seq
		close(p.moved)
		p.moved = make(chan struct{})
	}
}
