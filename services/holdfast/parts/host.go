package parts

import (
	"context"
	"crypto/ed25519"
	"net"

	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/workload"
)

// Host is what only the host of sandboxes needs. See workload.HostConfig for the
// fields.
type Host struct {
	Local    workload.Local
	Listener net.Listener
	URL      string
	Key      ed25519.PublicKey
	Agents   net.Listener
	Gateways []string
	// Ready is told that everything is served; may be nil.
	Ready func()
}

// RunHost runs sandboxes until ctx ends. It needs NATS alone.
func (e Env) RunHost(ctx context.Context) error {
	nc, err := e.Connect(ctx, broker.UserHost)
	if err != nil {
		return err
	}
	defer nc.Close()
	return workload.RunHost(ctx, workload.HostConfig{
		NC: nc, Name: e.HostName, Local: e.Host.Local, Listener: e.Host.Listener, URL: e.Host.URL, Key: e.Host.Key,
		Agents: e.Host.Agents, Gateways: e.Host.Gateways, Ready: e.Host.Ready, Logger: e.Logger.With("service", "host"),
	})
}
