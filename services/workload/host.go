package workload

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/workload/internal/host"
	"github.com/holdfast-io/holdfast/services/workload/internal/local"
)

// HostConfig is what a host needs.
type HostConfig struct {
	// NC is a connection as the NATS user "host".
	NC *nats.Conn
	// Name is the host's: 1 to 63 of a-z, 0-9 and -, and no other host's; empty is
	// DefaultHost.
	Name string
	// Local is how sandboxes run here.
	Local Local
	// Listener takes connections to sandboxes; RunHost closes it.
	Listener net.Listener
	// URL is where the gateway and the runner reach it: "http://host:port", or
	// "unix:/path" on one machine.
	URL string
	// Key verifies who may connect: the public half of the workload service's.
	Key ed25519.PublicKey
	// Agents, if set, is the listener behind Local.AgentSocket, and Gateways where the
	// agents' listeners of gateways are ("http://host:port", "unix:/path"): what agents
	// ask is passed on there. RunHost closes it. Without it a gateway listens on that
	// socket itself.
	Agents   net.Listener
	Gateways []string
	Logger   *slog.Logger
	// Ready is called once everything is served; may be nil.
	Ready func()
}

// Validate says what is missing, or can be no address.
func (c HostConfig) Validate() error {
	if c.NC == nil || c.Logger == nil || c.Listener == nil {
		return errors.New("a host needs NC, Listener and Logger")
	}
	if (c.Agents == nil) != (len(c.Gateways) == 0) {
		return errors.New("a host needs Agents and Gateways, or neither")
	}
	for _, url := range append([]string{c.URL}, c.Gateways...) {
		if _, _, err := sandboxapi.NewTransport(url); err != nil {
			return fmt.Errorf("host: %w", err)
		}
	}
	return nil
}

// Local configures the local driver.
type Local struct {
	// DataDir holds workspaces and what is known of sandboxes.
	DataDir string
	// SandboxdPath is the sandboxd binary.
	SandboxdPath string
	// AgentSocket is a unix socket, where what agents ask is heard.
	AgentSocket string
	// Isolation is "namespaces", "gvisor" or "none".
	Isolation string
	// SharePaths are directories of the host that sandboxes see read-only.
	SharePaths []string
}

// RunHost runs sandboxes for the workload service until ctx ends; they end with it.
func RunHost(ctx context.Context, cfg HostConfig) (err error) {
	if err := cfg.Validate(); err != nil {
		return err
	}
	name := cmp.Or(cfg.Name, DefaultHost)
	if err := host.CheckName(ctx, cfg.NC, name); err != nil {
		return err
	}
	granter := host.NewGranter(cfg.NC, name)
	d, err := local.New(ctx, local.Config{
		DataDir: cfg.Local.DataDir, SandboxdPath: cfg.Local.SandboxdPath, AgentSocket: cfg.Local.AgentSocket,
		Isolation: cfg.Local.Isolation, SharePaths: cfg.Local.SharePaths, Granter: granter, Log: cfg.Logger,
	})
	if err != nil {
		return fmt.Errorf("local driver: %w", err)
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	granter.Watch(d)
	g, ctx := errgroup.WithContext(ctx)
	if cfg.Agents != nil {
		g.Go(func() error { return host.Forward(ctx, cfg.Agents, cfg.Gateways, cfg.Logger) })
	}
	g.Go(func() error {
		return host.Run(ctx, host.Config{
			NC: cfg.NC, Name: name, Driver: d, Listener: cfg.Listener, URL: cfg.URL, Key: cfg.Key, Logger: cfg.Logger, Ready: cfg.Ready,
		})
	})
	return g.Wait()
}

// Report says what a host can do for sandboxes.
type Report = local.Report

// Probe finds out what this host can do by trying it, with the sandboxd binary.
func Probe(ctx context.Context, sandboxd string) Report { return local.Probe(ctx, sandboxd) }
