package app_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
	"github.com/holdfast-io/holdfast/services/workload/internal/remote"
)

// scripted is a driver whose faults a test writes. It keeps the contract's rules:
// older intents are refused, one generation runs at a time.
type scripted struct {
	granter remote.Granter
	events  chan driver.Event

	mu     sync.Mutex
	boxes  map[driver.Ref]*sandbox
	intent uint64
	pods   int
	pools  map[string]int
	calls  []string
	// faults are the errors of a method's next calls, hooks run in each of its calls
	// before it answers.
	faults map[string][]error
	hooks  map[string]func()
	// slow makes Ready wait for as long as it may.
	slow bool
	// relayed makes it one behind a relay.
	relayed bool
	// named is the name of the next incarnations; empty counts them.
	named string
}

type sandbox struct {
	uid     string // "box" where it is empty
	pod     string
	running bool
	bound   string // the token that it was granted
	signed  string // the bind
	epoch   string
}

func newScripted() *scripted {
	return &scripted{
		events: make(chan driver.Event, 8), boxes: map[driver.Ref]*sandbox{}, pools: map[string]int{},
		faults: map[string][]error{}, hooks: map[string]func(){},
	}
}

var _ driver.Driver = (*scripted)(nil)

// enter notes a call, runs its hook and gives its fault.
func (d *scripted) enter(method string) error {
	d.mu.Lock()
	d.calls = append(d.calls, method)
	hook := d.hooks[method]
	var fault error
	if f := d.faults[method]; len(f) > 0 {
		fault, d.faults[method] = f[0], f[1:]
	}
	d.mu.Unlock()
	if hook != nil {
		hook()
	}
	return fault
}

// fail makes the next n calls of a method fail.
func (d *scripted) fail(method string, n int, err error) {
	for range n {
		d.faults[method] = append(d.faults[method], err)
	}
}

func (d *scripted) admit(ref driver.Ref, intent uint64) error {
	if intent < d.intent {
		return &driver.OlderIntentError{Ref: ref, Intent: intent, Recorded: d.intent}
	}
	d.intent = intent
	return nil
}

func (d *scripted) Claim(_ context.Context, c driver.Claim) (driver.Sandbox, error) {
	if err := d.enter("Claim"); err != nil {
		return driver.Sandbox{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.admit(c.Ref, c.Intent); err != nil {
		return driver.Sandbox{}, err
	}
	for ref, b := range d.boxes {
		if ref.Session == c.Session && ref.Generation != c.Generation && b.running {
			return driver.Sandbox{}, driver.ErrBusy
		}
	}
	return d.start(c), nil
}

func (d *scripted) start(c driver.Claim) driver.Sandbox {
	b := d.boxes[c.Ref]
	if b == nil {
		b = &sandbox{epoch: c.Epoch}
		d.boxes[c.Ref] = b
	}
	if !b.running {
		d.pods++
		b.pod, b.running, b.bound = cmp.Or(d.named, fmt.Sprintf("pod-%d", d.pods)), true, ""
	}
	return driver.Sandbox{Ref: c.Ref, SandboxUID: "box", PodUID: b.pod, Path: driver.PathCold, Isolation: "none"}
}

func (d *scripted) Resume(_ context.Context, c driver.Claim) (driver.Sandbox, error) {
	if err := d.enter("Resume"); err != nil {
		return driver.Sandbox{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.admit(c.Ref, c.Intent); err != nil {
		return driver.Sandbox{}, err
	}
	if d.boxes[c.Ref] == nil {
		return driver.Sandbox{}, driver.ErrNotFound
	}
	return d.start(c), nil
}

func (d *scripted) Suspend(_ context.Context, ref driver.Ref, intent uint64) error {
	if err := d.enter("Suspend"); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.admit(ref, intent); err != nil {
		return err
	}
	if d.boxes[ref] == nil {
		return driver.ErrNotFound
	}
	d.boxes[ref].running = false
	return nil
}

func (d *scripted) Release(_ context.Context, ref driver.Ref, intent uint64, keep bool) error {
	method := "Release"
	if keep {
		method = "Clear"
	}
	if err := d.enter(method); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.admit(ref, intent); err != nil {
		return err
	}
	delete(d.boxes, ref)
	return nil
}

func (d *scripted) running(ref driver.Ref) (*sandbox, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch b := d.boxes[ref]; {
	case b == nil:
		return nil, driver.ErrNotFound
	case !b.running:
		return nil, driver.ErrNotRunning
	default:
		return b, nil
	}
}

func (d *scripted) Locate(_ context.Context, ref driver.Ref) (driver.Endpoint, error) {
	if err := d.enter("Locate"); err != nil {
		return driver.Endpoint{}, err
	}
	b, err := d.running(ref)
	if err != nil {
		return driver.Endpoint{}, err
	}
	return driver.Endpoint{URL: "unix:/" + b.pod, PodUID: b.pod, Relayed: d.relayed}, nil
}

func (d *scripted) Bind(ctx context.Context, ref driver.Ref, bind string) (sandboxapi.Health, error) {
	if err := d.enter("Bind"); err != nil {
		return sandboxapi.Health{}, err
	}
	b, err := d.running(ref)
	if err != nil {
		return sandboxapi.Health{}, err
	}
	grant, err := d.granter.Redeem(ctx, b.pod, bind)
	if err != nil {
		return sandboxapi.Health{}, errors.Join(driver.ErrBindRefused, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	b.bound, b.signed = grant.Token, bind
	return sandboxapi.Health{Bound: true, Entrypoint: sandboxapi.EntrypointStarting}, nil
}

func (d *scripted) Ready(ctx context.Context, ref driver.Ref, _ sandboxapi.Health) (sandboxapi.Health, error) {
	if err := d.enter("Ready"); err != nil {
		return sandboxapi.Health{}, err
	}
	if d.slow {
		<-ctx.Done()
		return sandboxapi.Health{}, ctx.Err()
	}
	_, err := d.running(ref)
	return sandboxapi.Health{}, err
}

func (d *scripted) List(context.Context) ([]driver.Found, error) {
	if err := d.enter("List"); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var found []driver.Found
	for ref, b := range d.boxes {
		state := driver.StateLost
		if b.running {
			state = driver.StateRunning
		}
		found = append(found, driver.Found{Ref: ref, SandboxUID: cmp.Or(b.uid, "box"), PodUID: b.pod, Intent: d.intent, Epoch: b.epoch, State: state})
	}
	return found, nil
}

func (d *scripted) Events() <-chan driver.Event { return d.events }

func (d *scripted) EnsurePool(_ context.Context, runtime driver.RuntimeSpec, size int) error {
	if err := d.enter("EnsurePool"); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pools[runtime.Name] = size
	return nil
}

// pool is the size of a warm pool.
func (d *scripted) pool(runtime string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pools[runtime]
}

func (d *scripted) Close() error { return nil }

// die ends the sandbox that runs, and gives the event that a driver tells of it.
func (d *scripted) die() driver.Event {
	d.mu.Lock()
	defer d.mu.Unlock()
	for ref, b := range d.boxes {
		if b.running {
			b.running = false
			return driver.Event{Ref: ref, SandboxUID: "box", PodUID: b.pod, Cause: "killed"}
		}
	}
	return driver.Event{}
}

// left counts the sandboxes that exist, and those that run.
func (d *scripted) left() (exist, run int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range d.boxes {
		exist++
		if b.running {
			run++
		}
	}
	return exist, run
}
