// Package workload is the workload service: it gives sessions their sandboxes,
// through a driver, binds them, sees them lost, puts them away and takes them
// back; and it keeps the runtimes. It appends workload.* and runtime.* and
// nothing else.
//
// Sandboxes are Pods of a cluster ([Kubernetes]), or belong to a host, a process of its
// own ([RunHost]), which the service reaches over NATS. So any number of replicas of the
// service share them, and a sandbox survives all of them.
//
//	wanted and none ─▶ claim-requested ─▶ driver.Claim ─▶ claimed ─▶ bind, entrypoint answers ─▶ ready
//	suspend-requested ─▶ driver.Suspend ─▶ suspended ─▶ (wanted) driver.Resume, bind ─▶ resumed
//	ending ─▶ driver.Release ─▶ released          it ended by itself ─▶ lost
//
// Every effect carries the session's n that wants it; a driver refuses an older
// one. A sweep compares what exists with the log both ways, at the start and every
// half minute.
package workload

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/services/internal/serving"
	"github.com/holdfast-io/holdfast/services/workload/internal/app"
	"github.com/holdfast-io/holdfast/services/workload/internal/decider"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
	"github.com/holdfast-io/holdfast/services/workload/internal/recipe"
	"github.com/holdfast-io/holdfast/services/workload/internal/remote"
)

// DefaultHost is the name of a host that is given none.
const DefaultHost = "local"

// Config is what the service needs.
type Config struct {
	serving.Config
	// Key signs binds and sandboxes' tokens; the gateway has its public half.
	Key ed25519.PrivateKey
	// Runtimes lists the runtimes whose warm pools are to be kept.
	Runtimes app.Runtimes
	// Host names the host that runs the sandboxes; empty is DefaultHost.
	Host string
	// Kubernetes is for sandboxes that are Pods of a cluster; nil where a host runs them.
	Kubernetes *Kubernetes
}

// Validate names what is missing.
func (c Config) Validate() error {
	if len(c.Key) != ed25519.PrivateKeySize || c.Runtimes == nil {
		return errors.New("the workload service needs Key and Runtimes")
	}
	if c.Kubernetes != nil {
		if err := c.Kubernetes.validate(); err != nil {
			return err
		}
	}
	return c.Config.Validate()
}

// Run serves until ctx ends; sandboxes go on.
func Run(ctx context.Context, cfg Config) (err error) {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("workload service: %w", err)
	}
	a, d, err := cfg.open(ctx)
	if err != nil {
		return fmt.Errorf("workload service: %w", err)
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	a.UseDriver(d)
	return serving.Run(ctx, cfg.Config, serving.Parts{
		Service: events.ServiceWorkload, Handlers: a.Handlers(), Interested: decider.Interested, Settle: a.Settle, Due: a.Due,
		Workers: cfg.workers(), Requeue: a.UseRequeue, Background: func(ctx context.Context) error { return a.Watch(ctx, cfg.Runtimes) },
	})
}

// clusterWorkers are those that settle sessions of a cluster: they wait for it most of
// the time, up to a second each, and a start that is quick isn't to wait behind them.
const clusterWorkers = 128

func (c Config) workers() int {
	if c.Kubernetes == nil {
		return 0
	}
	return clusterWorkers
}

// open makes the App and its driver: for a cluster, or for a host.
func (c Config) open(ctx context.Context) (*app.App, driver.Driver, error) {
	of := app.Config{Log: c.Log, Epoch: c.Epoch, Copy: c.Copy, Key: c.Key, Logger: c.Logger, Now: c.Now}
	if c.Kubernetes == nil {
		a := app.New(of)
		d, err := remote.New(remote.Config{NC: c.NC, Host: cmp.Or(c.Host, DefaultHost), Granter: a, Logger: c.Logger})
		return a, d, err
	}
	reviewer, err := c.Kubernetes.reviewer()
	if err != nil {
		return nil, nil, err
	}
	public, _ := c.Key.Public().(ed25519.PublicKey)
	pods := c.Kubernetes.pods(public)
	of.Reviewer, of.Agents, of.Rules = reviewer, c.Kubernetes.AgentsURL, recipe.Rules{Pods: pods}
	d, err := c.Kubernetes.open(ctx, *pods, c.Logger)
	return app.New(of), d, err
}
