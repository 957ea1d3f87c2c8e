package kube_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/services/e2e/harness"
	"github.com/holdfast-io/holdfast/services/holdfast/operate"
	"github.com/holdfast-io/holdfast/services/holdfast/parts"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/clusterfile"
	"github.com/holdfast-io/holdfast/services/internal/postgres"
	"github.com/holdfast-io/holdfast/services/workload"
)

// start installs Holdfast and runs every service in this process until the test ends,
// and then looks at what is left.
func start(t testing.TB) *installation {
	t.Helper()
	in := prepare(t)
	in.run("projector", "session", "policy", "workload", "runner", "gateway")
	in.begun()
	return in
}

// startToKill is start with the workload service in processes of its own, so many.
func startToKill(t testing.TB, replicas int, env ...string) (in *installation, workloads []*harness.Child) {
	t.Helper()
	in = prepare(t)
	in.run("projector", "session", "policy", "runner", "gateway")
	for range replicas {
		workloads = append(workloads, in.spawn(env...))
	}
	in.begun()
	return in, workloads
}

// begun waits until every part works, and has what is left looked at before it stops.
func (in *installation) begun() {
	in.t.Helper()
	in.awaitReady()
	in.policies()
	in.t.Cleanup(in.close)
}

// run runs services in this process until the test ends.
func (in *installation) run(services ...string) {
	in.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	pool, err := parts.OpenPool(ctx, in.dsn)
	in.must(err)
	key := in.key()
	public, _ := key.Public().(ed25519.PublicKey)
	people, agents := in.listen("127.0.0.1"), in.listen(in.cluster.HostIP())
	in.url, in.agentsURL = "http://"+people.Addr().String(), "http://"+agents.Addr().String()
	env := parts.Env{
		Connect: in.nats.Connect, Pool: pool, Key: key,
		Logger:     slog.New(slog.NewTextHandler(in.t.Output(), &slog.HandlerOptions{Level: level()})),
		Kubernetes: &workload.Kubernetes{Rest: in.access, Cluster: in.told, AgentsURL: in.agentsURL, Replica: "in-process"},
		Gateway:    parts.Gateway{Listener: people, Agents: agents, TokensFile: in.tokensFile(), Key: public},
	}
	var wg sync.WaitGroup
	all := env.All()
	for _, name := range services {
		wg.Go(func() {
			if err := all[name](ctx); err != nil && !errors.Is(err, context.Canceled) {
				in.t.Errorf("%s: %v", name, err)
			}
		})
	}
	in.t.Cleanup(func() {
		cancel()
		wg.Wait()
		pool.Close()
	})
}

// killable is the binary with its failpoints, built once.
var killable = sync.OnceValues(func() (string, error) {
	return harness.Build("github.com/holdfast-io/holdfast/services/holdfast", "failpoint")
})

// spawn starts a replica of the workload service as a process, with nothing but what the
// chart gives to its Pod.
func (in *installation) spawn(env ...string) *harness.Child {
	in.t.Helper()
	binary, err := killable()
	in.must(err)
	told, err := yaml.Marshal(in.told)
	in.must(err)
	clusterFile := filepath.Join(in.dir, "cluster.yaml")
	in.must(os.WriteFile(clusterFile, told, 0o600))
	child := harness.SpawnBuild(in.t, binary, append([]string{
		broker.EnvURL + "=" + in.nats.URL(), broker.PasswordVariable(broker.UserWorkload) + "=" + in.nats.Password(broker.UserWorkload),
		postgres.EnvURL + "=" + in.dsn, operate.EnvKeyFile + "=" + in.keyFile(),
		clusterfile.EnvFile + "=" + clusterFile, "KUBECONFIG=" + in.kubeconfig(),
	}, env...), "serve", "workload", "--agents-url", in.agentsURL)
	in.t.Cleanup(func() {
		if in.t.Failed() {
			in.t.Logf("workload said: %s", child.Said())
		}
	})
	return child
}

// kubeconfig is a file with the workload service's access.
func (in *installation) kubeconfig() string {
	in.t.Helper()
	const name = "test"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: in.access.Host, CertificateAuthorityData: in.access.CAData}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: in.access.BearerToken}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	path := filepath.Join(in.dir, "kubeconfig")
	in.must(clientcmd.WriteToFile(*config, path))
	return path
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
