package agentsandbox

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// Lease is what replicas contend for; who has it compares all that exists with the log,
// for all of them.
type Lease struct {
	Namespace, Name string
	// Identity is this replica's, and no other's.
	Identity string
}

// Times of a lease: a replica that dies is followed after leaseFor, one that ends at once.
const (
	leaseFor   = 15 * time.Second
	leaseRenew = 10 * time.Second
	leaseRetry = 2 * time.Second
)

// Leads implements driver.Elected: without a lease every replica does.
func (d *Driver) Leads() bool { return d.cfg.Lease == nil || d.leads.Load() }

// contend contends for the lease until Close. Whoever gets it begins anew: what happened
// while nobody had it is to be found.
func (d *Driver) contend() {
	l := d.cfg.Lease
	for d.ctx.Err() == nil {
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name}, Client: d.kube.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: l.Identity},
			},
			LeaseDuration: leaseFor, RenewDeadline: leaseRenew, RetryPeriod: leaseRetry, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) { // beside OnStoppedLeading, which may be sooner
					d.leads.Store(true)
					if ctx.Err() != nil {
						d.leads.Store(false)
						return
					}
					d.events.Put(driver.Event{Began: true})
				},
				OnStoppedLeading: func() { d.leads.Store(false) },
			},
		})
		if err != nil {
			d.cfg.Log.Error("no lease can be contended for: nothing is swept", "err", err)
			return
		}
		elector.Run(d.ctx)
	}
}
