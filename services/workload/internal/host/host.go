// Package host is the process that sandboxes belong to, as the workload service and
// the callers of sandboxes see it:
//
//	workload (any replica) ── host.<name>.do.* ──▶ Host ──▶ driver ──▶ sandboxes
//	workload (any replica) ◀── host.<name>.ask.* ── Granter ◀── a sandbox's pipe
//	workload (one replica) ◀── host.<name>.tell.ended ── what ended by itself
//	gateway, runner ── CONNECT, access token ──▶ Relay ──▶ that incarnation's socket
//
// Sandboxes live as long as the host. Replicas of the workload service come and go;
// none of them holds anything that its sandboxes need.
//
// A host trusts what comes as the NATS user "workload", and connections with an
// access token that the workload service signed (package sandboxtoken). It holds the
// public half of that key, so it can make neither token nor bind itself.
package host

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/internal/sandboxtoken"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
	"github.com/holdfast-io/holdfast/services/workload/internal/hostapi"
)

// Config of a Host; all is required but Ready.
type Config struct {
	// NC is a connection as the NATS user "host". It stays the caller's.
	NC *nats.Conn
	// Name is the host's, a token of a subject; no two hosts have the same.
	Name string
	// Driver runs the sandboxes; made with the Granter of the same name.
	Driver driver.Driver
	// Listener takes the relay's connections; Run closes it.
	Listener net.Listener
	// URL is where others reach it: "http://host:port" or "unix:/path".
	URL string
	// Key verifies access tokens: the public half of the workload service's.
	Key    ed25519.PublicKey
	Logger *slog.Logger
	// Ready is called once everything is served; may be nil.
	Ready func()
}

func (c Config) validate() error {
	if c.NC == nil || c.Driver == nil || c.Listener == nil || c.URL == "" || c.Logger == nil || !events.ValidToken(c.Name) {
		return fmt.Errorf("host: %w: NC, Name, Driver, Listener, URL and Logger are required", driver.ErrInvalid)
	}
	return nil
}

// takenWithin is how long another host of the same name has to answer.
const takenWithin = 500 * time.Millisecond

// CheckName is driver.ErrInUse where a host of that name answers already.
func CheckName(ctx context.Context, nc *nats.Conn, name string) error {
	subject, err := hostapi.DoSubject(name, hostapi.VerbHello)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, takenWithin)
	defer cancel()
	if _, err := hostapi.Call[hostapi.None](ctx, nc, subject, hostapi.None{}); err == nil {
		return fmt.Errorf("host %s: %w: another one of that name runs; give this one a name of its own", name, driver.ErrInUse)
	}
	return nil
}

// Run serves until ctx ends. The driver stays the caller's to close.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.validate(); err != nil {
		return err
	}
	verifier, err := sandboxtoken.NewAccessVerifier(cfg.Key, nil)
	if err != nil {
		return fmt.Errorf("host: %w", err)
	}
	do, err := hostapi.AllDo(cfg.Name)
	if err != nil {
		return err
	}
	answers, err := hostapi.Answer(cfg.NC, do, cfg.Name, cfg.handlers(), cfg.Logger)
	if err != nil {
		return fmt.Errorf("host: %w", err)
	}
	r := newRelay(cfg.Driver, verifier, cfg.Logger)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.serve(ctx, cfg.Listener) })
	g.Go(func() error { return cfg.tell(ctx) })
	g.Go(func() error {
		<-ctx.Done()
		return answers.Stop()
	})
	if cfg.Ready != nil {
		cfg.Ready()
	}
	return g.Wait()
}

// tell publishes what the driver says ended, and first that this host began.
func (c Config) tell(ctx context.Context) error {
	subject, err := hostapi.TellSubject(c.Name)
	if err != nil {
		return err
	}
	publish := func(e driver.Event) {
		raw, err := json.Marshal(e)
		if err == nil {
			err = c.NC.Publish(subject, raw)
		}
		if err != nil { // a sweep finds it
			c.Logger.Warn("event not published", "session", e.Session, "err", err)
		}
	}
	publish(driver.Event{Began: true})
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-c.Driver.Events():
			if !ok {
				return driver.ErrClosed
			}
			publish(e)
		}
	}
}

// handlers gives the driver's methods by their verbs.
func (c Config) handlers() map[hostapi.Verb]hostapi.Handler {
	d := c.Driver
	return map[hostapi.Verb]hostapi.Handler{
		hostapi.VerbHello: hostapi.Handle(func(context.Context, hostapi.None) (hostapi.None, error) {
			return hostapi.None{}, nil
		}),
		hostapi.VerbClaim:  hostapi.Handle(d.Claim),
		hostapi.VerbResume: hostapi.Handle(d.Resume),
		hostapi.VerbSuspend: hostapi.Handle(func(ctx context.Context, e hostapi.Effect) (hostapi.None, error) {
			return hostapi.None{}, d.Suspend(ctx, e.Ref, e.Intent)
		}),
		hostapi.VerbRelease: hostapi.Handle(func(ctx context.Context, e hostapi.Effect) (hostapi.None, error) {
			return hostapi.None{}, d.Release(ctx, e.Ref, e.Intent, e.KeepWorkspace)
		}),
		hostapi.VerbLocate: hostapi.Handle(c.locate),
		hostapi.VerbBind: hostapi.Handle(func(ctx context.Context, b hostapi.Bind) (sandboxapi.Health, error) {
			return d.Bind(ctx, b.Ref, b.Bind)
		}),
		hostapi.VerbReady: hostapi.Handle(func(ctx context.Context, ref driver.Ref) (sandboxapi.Health, error) {
			return d.Ready(ctx, ref, sandboxapi.Health{})
		}),
		hostapi.VerbList: hostapi.Handle(c.list),
		hostapi.VerbPool: hostapi.Handle(func(ctx context.Context, p hostapi.Pool) (hostapi.None, error) {
			return hostapi.None{}, d.EnsurePool(ctx, p.Runtime, p.Size)
		}),
	}
}

// locate gives the relay's address: sandboxes' own can't be reached from elsewhere.
func (c Config) locate(ctx context.Context, ref driver.Ref) (driver.Endpoint, error) {
	at, err := c.Driver.Locate(ctx, ref)
	if err != nil {
		return driver.Endpoint{}, err
	}
	return driver.Endpoint{URL: c.URL, PodUID: at.PodUID, Relayed: true}, nil
}

// list gives a page, in the order of the names.
func (c Config) list(ctx context.Context, l hostapi.List) (hostapi.Page, error) {
	found, err := c.Driver.List(ctx)
	if err != nil {
		return hostapi.Page{}, err
	}
	slices.SortFunc(found, func(a, b driver.Found) int { return compare(a.Ref, b.Ref) })
	from, there := slices.BinarySearchFunc(found, l.After, func(f driver.Found, after driver.Ref) int { return compare(f.Ref, after) })
	if there {
		from++
	}
	rest := found[from:]
	n := min(len(rest), hostapi.PageSize)
	return hostapi.Page{Found: rest[:n], More: n < len(rest)}, nil
}

func compare(a, b driver.Ref) int {
	return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Session, b.Session), cmp.Compare(a.Generation, b.Generation))
}
