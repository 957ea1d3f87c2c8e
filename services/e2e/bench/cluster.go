package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/services/internal/install"
)

// clusterSize is how many servers and replicas there are in production.
const clusterSize = 3

// startCluster starts three servers that replicate to each other, each syncing every
// append, and gives a connection to them with the streams installed.
func (g *ground) startCluster(ctx context.Context) (c connection, err error) {
	routes, ports := make([]*url.URL, clusterSize), make([]int, clusterSize)
	for i := range ports {
		if ports[i], err = freePort(ctx); err != nil {
			return c, err
		}
		routes[i] = &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", ports[i])}
	}
	servers := make([]string, len(ports))
	for i, port := range ports {
		dir, err := g.lab.folder("node")
		if err != nil {
			return c, err
		}
		s, err := server.NewServer(&server.Options{
			ServerName: fmt.Sprintf("n%d", i), Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: dir, SyncAlways: true,
			NoLog: true, NoSigs: true, Cluster: server.ClusterOpts{Name: "bench", Host: "127.0.0.1", Port: port}, Routes: routes,
		})
		if err != nil {
			return c, err
		}
		s.Start()
		g.onClose(func() error { s.Shutdown(); s.WaitForShutdown(); return nil })
		if !s.ReadyForConnections(time.Minute) {
			return c, errors.New("a server of the cluster does not start")
		}
		servers[i] = s.ClientURL()
	}
	nc, err := nats.Connect(strings.Join(servers, ","))
	if err != nil {
		return c, err
	}
	g.onClose(func() error { nc.Close(); return nil })
	if c, err = onConnection(nc); err != nil {
		return c, err
	}
	err = eventually(ctx, func() error { // first the cluster elects its leader
		once, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		genesis, err := install.RunWith(once, c.js, install.Options{Replicas: clusterSize})
		g.epoch = genesis.Epoch
		return err
	})
	if err != nil {
		return c, err
	}
	return c, c.applyRuntime(ctx)
}

func freePort(ctx context.Context) (int, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	port := l.Addr().(*net.TCPAddr).Port //nolint:errcheck,forcetypeassert // of a TCP listener
	return port, l.Close()
}

// measureCluster compares one writer's latency on three replicas.
func measureCluster(ctx context.Context, l *lab) (f finding, err error) {
	g := &ground{lab: l}
	defer func() { err = errors.Join(err, g.close()) }()
	conn, err := g.startCluster(ctx)
	if err != nil {
		return f, err
	}
	c := conn.commander(g.epoch, "cluster")
	pairs, count := l.size(100, 3), l.size(7, 2)
	sends, err := c.sends(ctx, newTwin(conn.js), count, pairs)
	if err != nil {
		return f, err
	}
	return finding{
		title:    "Command → appended event, in process, on three replicas",
		baseline: "a synchronous compare-and-set publish of the same bytes into the same stream",
		samples:  fmt.Sprintf("%d rounds of %d pairs; three servers on this machine's one disk", count, pairs),
		figures: []figure{
			latency("send a message", sends, 0.5, aim{atMost: 1.3}),
			latency("send a message", sends, 0.99, aim{atMost: 1.3}),
		},
		notes: []string{"Both sides wait for a quorum, each of whose servers syncs the append to the disk; here all three share the processors and the disk."},
	}, nil
}
