package drive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
)

var (
	// ErrRunOver refuses events of a run that isn't open, or isn't any more.
	ErrRunOver = errors.New("the run is not open")
	// ErrGap refuses a batch that leaves events out.
	ErrGap = errors.New("events are missing")
	// ErrBroke says that an event broke the protocol, and with it its run.
	ErrBroke = errors.New("the run failed")
)

// Push is the adapter push: the agent fetches the input of a run, and sends its events
// in batches. It numbers them from 1 in a run, so that a batch which is sent again
// changes nothing; the numbers that readers see are the spool's. All fields of the
// config are required. It is safe for concurrent use.
//
//	agent ── Input ──▶ (waits) ──▶ input ── Events k=1.. ──▶ … ──▶ the terminal event
//	          ▲                     again and again while the run is open          │
//	          └────────────────────────────────────────────────────────────────────┘
type Push struct {
	cfg PushConfig

	mu      sync.Mutex
	open    *delivery     // the run that is being done
	last    *delivery     // the one before, for batches that are sent again
	waiting int           // who asks for an input at this moment
	changed chan struct{} // closed and replaced when any of the above changes
}

// PushConfig configures a [Push].
type PushConfig struct {
	// WaitReady waits for an agent that lives. ReadyWait bounds that, and how long the
	// agent may take to fetch a run's input.
	WaitReady func(context.Context) (Target, error)
	ReadyWait time.Duration
	// CancelGrace is left to the agent after it could hear of a cancel, to tell
	// Holdfast how the calls ended that it had started.
	CancelGrace time.Duration
}

// delivery is one run on its way.
type delivery struct {
	turn    *Turn
	fetched bool
	taken   uint64 // events of the agent's
	over    bool   // nothing more is taken
}

// NewPush makes a Push.
func NewPush(cfg PushConfig) *Push { return &Push{cfg: cfg, changed: make(chan struct{})} }

// Converse implements [Agent].
func (p *Push) Converse(ctx context.Context, t *Turn) error {
	target, err := waitReady(ctx, p.cfg.WaitReady, p.cfg.ReadyWait)
	if err != nil {
		return err
	}
	d := &delivery{turn: t}
	p.set(func() { p.open = d })
	err = p.follow(ctx, d, target)
	p.set(func() { p.open, p.last, d.over = nil, d, true })
	if err != nil && errors.Is(context.Cause(ctx), errCancelled) {
		pause(p.cfg.CancelGrace, target.Done)
	}
	return err
}

// follow waits for a delivery's end, or for a reason to give it up.
func (p *Push) follow(ctx context.Context, d *delivery, target Target) error {
	late := time.NewTimer(p.cfg.ReadyWait)
	defer late.Stop()
	for {
		over, fetched, changed := p.look(d)
		if over {
			return nil // the turn knows how
		}
		var tooLate <-chan time.Time
		if !fetched {
			tooLate = late.C
		}
		select {
		case <-changed:
		case <-tooLate:
			return faultf(codeNotReady, "the agent didn't fetch the input within %s", p.cfg.ReadyWait)
		case <-target.Done:
			return died(target)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (p *Push) look(d *delivery) (over, fetched bool, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return d.over, d.fetched, p.changed
}

// Input waits for the open run's input; nil when ctx ends first. The same input is
// given again for as long as its run is open.
func (p *Push) Input(ctx context.Context) json.RawMessage {
	p.set(func() { p.waiting++ })
	defer p.set(func() { p.waiting-- })
	for {
		p.mu.Lock()
		d, changed := p.open, p.changed
		if d != nil && !d.over {
			d.fetched = true
			p.broadcast()
			p.mu.Unlock()
			return d.turn.Input
		}
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// AwaitAgent waits until an agent asks for an input: that is how one which serves
// nothing says that it is ready. False means that ctx ended first.
func (p *Push) AwaitAgent(ctx context.Context) bool {
	for {
		p.mu.Lock()
		waiting, changed := p.waiting, p.changed
		p.mu.Unlock()
		if waiting > 0 {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// Events takes the agent's events from number k on, and gives the number of the last
// one that was taken. Those that were taken before are skipped. It fails with
// [ErrRunOver], [ErrGap] or [ErrBroke]; events before the one that failed are taken.
func (p *Push) Events(run string, k uint64, events []json.RawMessage) (last uint64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.open
	if d == nil || d.turn.ID != run {
		d = p.last
	}
	if d == nil || d.turn.ID != run {
		return 0, fmt.Errorf("%w: %.64q", ErrRunOver, run)
	}
	if k == 0 || k > d.taken+1 {
		return d.taken, fmt.Errorf("%w: event %d comes after event %d", ErrGap, k, d.taken)
	}
	fresh := events[min(uint64(len(events)), d.taken+1-k):]
	if len(fresh) == 0 {
		return d.taken, nil
	}
	if d.over {
		return d.taken, fmt.Errorf("%w: %q has ended or was cancelled", ErrRunOver, run)
	}
	defer p.broadcast()
	for _, e := range fresh {
		d.over, err = d.turn.Say(e)
		if errors.Is(err, errOver) {
			return d.taken, fmt.Errorf("%w: %q has ended or was cancelled", ErrRunOver, run)
		}
		if err != nil {
			d.over = true
			return d.taken, fmt.Errorf("%w: %w", ErrBroke, err)
		}
		d.taken++
		if d.over {
			break // what comes after the terminal event has no meaning
		}
	}
	return d.taken, nil
}

// Await waits as long as a run is open and wanted; it says whether it still is when
// ctx ends. A cancelled run isn't.
func (p *Push) Await(ctx context.Context, run string) (open bool) {
	for {
		p.mu.Lock()
		open, changed := p.open != nil && p.open.turn.ID == run && !p.open.over, p.changed
		p.mu.Unlock()
		if !open {
			return false
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return true
		}
	}
}

func (p *Push) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.broadcast()
}

func (p *Push) broadcast() {
	close(p.changed)
	p.changed = make(chan struct{})
}
