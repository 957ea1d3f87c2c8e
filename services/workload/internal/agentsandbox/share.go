package agentsandbox

import (
	"time"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
	"github.com/holdfast-io/holdfast/services/workload/internal/roster"
)

// Lease is how replicas know of each other, and so who of them takes care of what: see
// package roster.
type Lease struct {
	// Namespace is where their leases are, Group what they share.
	Namespace, Group string
	// Identity is this replica's, and no other's.
	Identity string
	// For is after how long without a sign of life a replica is taken for gone; 0 means
	// roster.DefaultFor.
	For time.Duration
}

// Mine implements driver.Shared: without a lease there is one replica, which takes care of
// everything.
func (d *Driver) Mine(key string) bool { return d.roster == nil || d.roster.Mine(key) }

// share begins to take part, until Close. When more falls to this replica it begins anew:
// what happened while nobody took care of it is to be found.
func (d *Driver) share() error {
	l := d.cfg.Lease
	if l == nil {
		return nil
	}
	r, err := roster.New(roster.Config{
		Leases: d.kube.CoordinationV1().Leases(l.Namespace), Group: l.Group, Identity: l.Identity, For: l.For, Log: d.cfg.Log,
		Changed: func() { d.events.Put(driver.Event{Began: true}) },
	})
	if err != nil {
		return err
	}
	d.roster = r
	d.tasks.Go(func() { r.Run(d.ctx) })
	return nil
}
