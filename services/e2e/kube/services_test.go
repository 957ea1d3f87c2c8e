package kube_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/holdfast-io/holdfast/services/e2e/harness"
	"github.com/holdfast-io/holdfast/services/holdfast/parts"
	"github.com/holdfast-io/holdfast/services/workload"
)

// start installs Holdfast and runs every service in this process until the test ends,
// and then looks at what is left.
func start(t testing.TB) *installation {
	t.Helper()
	in := prepare(t)
	in.url = "http://" + in.run()
	in.awaitReady()
	in.policies()
	t.Cleanup(in.close) // before the services stop
	return in
}

// run runs every service, and gives the gateway's address.
func (in *installation) run() string {
	in.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	pool, err := parts.OpenPool(ctx, in.dsn)
	in.must(err)
	key := in.key()
	public, _ := key.Public().(ed25519.PublicKey)
	people, agents := in.listen("127.0.0.1"), in.listen(in.cluster.HostIP())
	env := parts.Env{
		Connect: in.nats.Connect, Pool: pool, Key: key,
		Logger:     slog.New(slog.NewTextHandler(in.t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})),
		Kubernetes: &workload.Kubernetes{Rest: in.access, Cluster: in.told, AgentsURL: "http://" + agents.Addr().String(), Replica: "in-process"},
		Gateway:    parts.Gateway{Listener: people, Agents: agents, TokensFile: in.tokensFile(), Key: public},
	}
	var wg sync.WaitGroup
	for name, service := range env.All() {
		if name == "host" { // sandboxes are Pods
			continue
		}
		wg.Go(func() {
			if err := service(ctx); err != nil && !errors.Is(err, context.Canceled) {
				in.t.Errorf("%s: %v", name, err)
			}
		})
	}
	in.t.Cleanup(func() {
		cancel()
		wg.Wait()
		pool.Close()
	})
	return people.Addr().String()
}

func (in *installation) listen(ip string) net.Listener {
	in.t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(in.t.Context(), "tcp", net.JoinHostPort(ip, "0"))
	in.must(err)
	return l
}

// awaitReady waits until the gateway finds that every part works.
func (in *installation) awaitReady() {
	in.t.Helper()
	admin := in.Client("admin")
	harness.Eventually(in.t, "every part works", func() bool {
		r, err := admin.ReadyzWithResponse(harness.Context(in.t))
		return err == nil && r.StatusCode() == http.StatusOK
	})
}
