package natstest

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// Cluster is three servers that replicate to each other.
type Cluster struct {
	Servers []*server.Server
}

// StartCluster starts three clustered servers until the test ends, and waits for
// their meta leader.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	const size = 3
	routes, ports := make([]*url.URL, size), make([]int, size)
	for i := range ports {
		ports[i] = freePort(t)
		routes[i] = &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", ports[i])}
	}
	c := &Cluster{}
	for i := range size {
		c.Servers = append(c.Servers, start(t, &server.Options{
			ServerName: fmt.Sprintf("n%d", i+1), Host: "127.0.0.1", Port: -1,
			JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
			Cluster: server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: ports[i]},
			Routes:  routes,
		}))
	}
	Eventually(t, "the cluster has a meta leader that knows all three", func() bool {
		for _, s := range c.Servers {
			if s.JetStreamIsLeader() {
				return len(s.JetStreamClusterPeers()) == size
			}
		}
		return false
	})
	return c
}

// URL lists all servers, for a client that goes on with another when one dies.
func (c *Cluster) URL() string {
	urls := make([]string, len(c.Servers))
	for i, s := range c.Servers {
		urls[i] = s.ClientURL()
	}
	return strings.Join(urls, ",")
}

// KillLeader stops the server that leads a stream, and names it.
func (c *Cluster) KillLeader(t testing.TB, stream string) string {
	t.Helper()
	var leader *server.Server
	Eventually(t, "stream "+stream+" has a leader", func() bool {
		for _, s := range c.Servers {
			if s.Running() && s.JetStreamIsStreamLeader(server.DEFAULT_GLOBAL_ACCOUNT, stream) {
				leader = s
				return true
			}
		}
		return false
	})
	leader.Shutdown()
	leader.WaitForShutdown()
	return leader.Name()
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("free port: %v", err)
	}
	defer func() { _ = l.Close() }()
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("free port: a listener on TCP has address %v", l.Addr())
	}
	return addr.Port
}
