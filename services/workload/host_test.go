package workload_test

import (
	"errors"
	"log/slog"
	"net"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/workload"
)

// An address that leads nowhere is said at the start, not at the first call.
func TestHostConfig(t *testing.T) {
	t.Parallel()
	good := func() workload.HostConfig {
		return workload.HostConfig{NC: new(nats.Conn), Listener: new(net.TCPListener), URL: "http://host:7072", Logger: slog.New(slog.DiscardHandler)}
	}
	if err := good().Validate(); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		change   func(*workload.HostConfig)
		endpoint bool
	}{
		"no NATS":               {func(c *workload.HostConfig) { c.NC = nil }, false},
		"no listener":           {func(c *workload.HostConfig) { c.Listener = nil }, false},
		"a socket of nobody":    {func(c *workload.HostConfig) { c.Agents = new(net.UnixListener) }, false},
		"gateways for nobody":   {func(c *workload.HostConfig) { c.Gateways = []string{"http://gateway:7071"} }, false},
		"no address":            {func(c *workload.HostConfig) { c.URL = "" }, true},
		"an address of no port": {func(c *workload.HostConfig) { c.URL = "http://host" }, true},
		"a gateway by name": {func(c *workload.HostConfig) {
			c.Agents, c.Gateways = new(net.UnixListener), []string{"http://one:7071", "gateway:7071"}
		}, true},
	} {
		cfg := good()
		tc.change(&cfg)
		if err := cfg.Validate(); err == nil || errors.Is(err, sandboxapi.ErrEndpoint) != tc.endpoint {
			t.Errorf("%s: %v", name, err)
		}
	}
}
