package host

import (
	"context"
	"errors"
	"maps"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
	"github.com/holdfast-io/holdfast/services/workload/internal/hostapi"
)

// Granter is the driver's: it has any replica of the workload service redeem and
// renew. What an incarnation has redeemed is remembered here, where its life ends
// with this process: it redeems nothing else, and renews by presenting the same.
type Granter struct {
	nc   *nats.Conn
	name string

	mu    sync.Mutex
	binds map[string]string // by Pod UID
	// full is how many there may be before those of the dead are dropped.
	full int
	// driver says who lives; nil keeps all.
	driver driver.Driver
}

var _ driver.Granter = (*Granter)(nil)

// fullAt is the fewest binds at which it is worth looking for those of the dead.
const fullAt = 64

// Errors of the Granter.
var (
	errAnotherBind = errors.New("this sandbox was bound before, to another session")
	errNotBound    = errors.New("this sandbox was never bound")
)

// NewGranter makes the Granter of the host of that name.
func NewGranter(nc *nats.Conn, name string) *Granter {
	return &Granter{nc: nc, name: name, binds: map[string]string{}, full: fullAt}
}

// Watch has the Granter drop what was redeemed by incarnations that run no more. d
// is the driver that was made with it.
func (g *Granter) Watch(d driver.Driver) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.driver = d
}

// Redeem implements driver.Granter.
func (g *Granter) Redeem(ctx context.Context, podUID, bind string) (sandboxapi.Grant, error) {
	first, err := g.admit(ctx, podUID, bind)
	if err != nil {
		return sandboxapi.Grant{}, err
	}
	grant, err := g.ask(ctx, hostapi.VerbRedeem, podUID, bind)
	if err != nil && first { // nothing was granted for it, so it binds nobody
		g.mu.Lock()
		delete(g.binds, podUID)
		g.mu.Unlock()
	}
	return grant, err
}

// admit notes an incarnation's bind; first says that it had none. Another than the
// noted one is refused.
func (g *Granter) admit(ctx context.Context, podUID, bind string) (first bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if was, ok := g.binds[podUID]; ok {
		if was != bind {
			return false, errAnotherBind
		}
		return false, nil
	}
	if len(g.binds) >= g.full {
		if err := g.drop(ctx); err != nil {
			return false, err
		}
	}
	g.binds[podUID] = bind
	return true, nil
}

// drop forgets the binds of incarnations that don't run. The caller holds mu.
func (g *Granter) drop(ctx context.Context) error {
	if g.driver == nil {
		return nil
	}
	found, err := g.driver.List(ctx)
	if err != nil {
		return err
	}
	alive := make(map[string]bool, len(found))
	for _, f := range found {
		alive[f.PodUID] = f.State == driver.StateRunning
	}
	maps.DeleteFunc(g.binds, func(podUID, _ string) bool { return !alive[podUID] })
	g.full = max(fullAt, 2*len(g.binds))
	return nil
}

// Renew implements driver.Granter.
func (g *Granter) Renew(ctx context.Context, podUID string) (sandboxapi.Grant, error) {
	g.mu.Lock()
	bind, ok := g.binds[podUID]
	g.mu.Unlock()
	if !ok {
		return sandboxapi.Grant{}, errNotBound
	}
	return g.ask(ctx, hostapi.VerbRenew, podUID, bind)
}

func (g *Granter) ask(ctx context.Context, verb hostapi.Verb, podUID, bind string) (sandboxapi.Grant, error) {
	subject, err := hostapi.AskSubject(g.name, verb)
	if err != nil {
		return sandboxapi.Grant{}, err
	}
	return hostapi.Call[sandboxapi.Grant](ctx, g.nc, subject, hostapi.Redemption{PodUID: podUID, Bind: bind})
}
