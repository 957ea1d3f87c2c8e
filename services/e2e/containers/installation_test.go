//go:build containers

package containers_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/testcontainers/testcontainers-go"
	tcnetwork "github.com/testcontainers/testcontainers-go/network"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog/natslog"
	"github.com/holdfast-io/holdfast/events/invariants"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/keyfile"
	"github.com/holdfast-io/holdfast/services/internal/tokenfile"
)

// root is the repository, seen from this package.
const root = "../../.."

// replicas is how many of each service there are.
const replicas = 2

// natsServers are the cluster's.
var natsServers = []string{"nats-1", "nats-2", "nats-3"}

// installation is all that runs.
type installation struct {
	t       testing.TB
	docker  *testcontainers.DockerClient
	network *testcontainers.DockerNetwork
	// images are those of docker-compose.yml, by service.
	images map[string]string
	// passwords are those on NATS.
	passwords map[string]string
	postgres  string
	people    []tokenfile.Entry
	// private and public are the halves of the key for sandboxes.
	private, public string

	mu    sync.Mutex
	nodes map[string]*node
}

// install makes an installation with runtime shell and policy default.
func install(t *testing.T) *installation {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*harness.Patience)
	defer cancel()
	in := &installation{t: t, docker: needDocker(ctx, t), nodes: map[string]*node{}, passwords: map[string]string{}, postgres: rand.Text()}
	in.provide()
	var err error
	if in.network, err = tcnetwork.New(ctx); err != nil {
		t.Fatalf("network: %v", err)
	}
	t.Cleanup(in.remove)
	for _, step := range []func(context.Context) error{in.stores, in.prepare, in.services} {
		if err := step(ctx); err != nil {
			t.Fatal(err)
		}
	}
	in.ready(t)
	for _, apply := range [][]string{{"policy", "apply", "-f", "/etc/holdfast/policy.yaml"}, {"runtime", "apply", "-f", "/etc/holdfast/shell.yaml"}} {
		args := append([]string{"holdfast", "--url", "http://127.0.0.1:7070", "--token", in.token("admin")}, apply...)
		if code, out, err := in.nodes["gateway-1"].c.Exec(ctx, args); err != nil || code != 0 {
			t.Fatalf("%v: exit %d, %v: %v", apply, code, err, out)
		}
	}
	return in
}

// needDocker gives the daemon, or ends the test: skipped, or failed where
// HOLDFAST_REQUIRE_DOCKER says that there is to be one.
func needDocker(ctx context.Context, t *testing.T) *testcontainers.DockerClient {
	t.Helper()
	docker, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err == nil {
		_, err = docker.Ping(ctx, client.PingOptions{})
	}
	if err == nil {
		if _, err = docker.ImageInspect(ctx, ourImage()); err != nil {
			err = fmt.Errorf("the image %s: %w: make images", ourImage(), err)
		}
	}
	switch {
	case err == nil:
		t.Cleanup(func() {
			if err := docker.Close(); err != nil {
				t.Error(err)
			}
		})
		return docker
	case os.Getenv("HOLDFAST_REQUIRE_DOCKER") != "":
		t.Fatalf("HOLDFAST_REQUIRE_DOCKER is set, and Docker can't be used: %v", err)
	default:
		t.Skipf("SKIPPED, NOTHING IS TESTED: Docker can't be used: %v", err)
	}
	return nil
}

// ourImage is the image under test.
func ourImage() string {
	if image := os.Getenv("HOLDFAST_IMAGE"); image != "" {
		return image
	}
	return "holdfast:local"
}

// provide makes what an operator brings: images, passwords, people and keys.
func (in *installation) provide() {
	in.t.Helper()
	var compose struct {
		Services map[string]struct {
			Image string `json:"image"`
		} `json:"services"`
	}
	if err := yaml.Unmarshal([]byte(in.read("docker-compose.yml")), &compose); err != nil {
		in.t.Fatal(err)
	}
	in.images = map[string]string{}
	for name, s := range compose.Services {
		in.images[name] = s.Image
	}
	for _, u := range append(broker.Users(), "route") {
		in.passwords[broker.PasswordVariable(u)] = "p" + rand.Text() // a number it must not look like
	}
	for name, roles := range map[string][]api.Role{
		"admin": {api.RoleAdmin}, "alice": {api.RoleDeveloper}, "bob": {api.RoleApprover},
	} {
		in.people = append(in.people, tokenfile.Entry{Name: name, Token: tokenfile.NewToken(), Roles: roles, Tenants: []string{harness.Tenant}})
	}
	key := filepath.Join(in.t.TempDir(), "sandbox.pem")
	if _, err := keyfile.Ensure(key); err != nil {
		in.t.Fatal(err)
	}
	for file, to := range map[string]*string{key: &in.private, key + keyfile.PublicSuffix: &in.public} {
		raw, err := os.ReadFile(file)
		if err != nil {
			in.t.Fatal(err)
		}
		*to = string(raw)
	}
}

// read gives a file of the repository.
func (in *installation) read(path string) string {
	in.t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		in.t.Fatal(err)
	}
	return string(raw)
}

// stores starts NATS and Postgres.
func (in *installation) stores(ctx context.Context) error {
	routes := make([]string, len(natsServers))
	for i, name := range natsServers {
		routes[i] = fmt.Sprintf("%q", "nats://route:"+in.passwords[broker.PasswordVariable("route")]+"@"+name+":6222")
	}
	files := map[string]string{
		"/etc/nats/holdfast.conf":                    in.read("deploy/nats/nats.conf"),
		"/etc/nats/authorization/authorization.conf": broker.Conf(),
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, name := range natsServers {
		g.Go(func() error {
			_, err := in.run(ctx, name, recipe{
				image: in.images[name], cmd: []string{"nats-server", "--config", "/etc/nats/holdfast.conf"}, port: 4222, files: files,
				env: with(in.passwords, map[string]string{
					"HOLDFAST_NATS_NAME": name, "HOLDFAST_NATS_ROUTES": "[" + strings.Join(routes, ", ") + "]",
				}),
			})
			return err
		})
	}
	g.Go(func() error {
		_, err := in.run(ctx, "postgres", recipe{
			image: in.images["postgres"], env: map[string]string{"POSTGRES_USER": "holdfast", "POSTGRES_PASSWORD": in.postgres},
		})
		return err
	})
	return g.Wait()
}

// prepare is `holdfast install`, tried until NATS has a leader and Postgres listens.
func (in *installation) prepare(ctx context.Context) error {
	n, err := in.run(ctx, "install", recipe{
		image: ourImage(), env: in.env(broker.UserInstaller),
		entrypoint: []string{"sh", "-c", "for i in $(seq 30); do holdfast install --replicas 3 && exit 0; sleep 1; done; exit 1"},
	})
	if err != nil {
		return err
	}
	return n.ended(ctx)
}

// env is what a process of a NATS user is given: no other's password.
func (in *installation) env(u broker.User) map[string]string {
	return map[string]string{
		"HOLDFAST_NATS_URL":        "nats://nats-1:4222,nats://nats-2:4222,nats://nats-3:4222",
		"HOLDFAST_POSTGRES_URL":    "postgres://holdfast:" + in.postgres + "@postgres:5432/holdfast?sslmode=disable",
		"HOLDFAST_KEY_FILE":        "/etc/holdfast/sandbox.pem",
		broker.PasswordVariable(u): in.passwords[broker.PasswordVariable(u)],
	}
}

// services starts two replicas of each, and the host.
func (in *installation) services(ctx context.Context) error {
	recipes := map[string]recipe{"host": in.service(broker.UserHost)}
	for i := range replicas {
		for _, user := range []broker.User{broker.UserProjector, broker.UserSession, broker.UserPolicy, broker.UserRunner, broker.UserWorkload, broker.UserGateway} {
			recipes[fmt.Sprintf("%s-%d", user, i+1)] = in.service(user)
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	for name, r := range recipes {
		g.Go(func() error {
			_, err := in.run(ctx, name, r)
			return err
		})
	}
	return g.Wait()
}

// service is how a service is run: with no capability at all.
func (in *installation) service(user broker.User) recipe {
	r := recipe{
		image: ourImage(), cmd: []string{"serve", string(user)}, env: in.env(user),
		files:    map[string]string{"/etc/holdfast/sandbox.pem": in.public},
		confined: func(h *container.HostConfig) { h.CapDrop = []string{"ALL"} },
	}
	switch user {
	default: // as above
	case broker.UserWorkload:
		r.files["/etc/holdfast/sandbox.pem"] = in.private
	case broker.UserGateway:
		r.port = 7070
		// The file must be for the process alone, which what is copied in isn't.
		r.entrypoint = []string{"sh", "-ec", `umask 077; echo "$TOKENS" >/tmp/tokens.yaml; exec holdfast "$@"`, "sh"}
		r.cmd = append(r.cmd, "--addr", "0.0.0.0:7070", "--agents-addr", "0.0.0.0:7071")
		tokens, err := yaml.Marshal(map[string]any{"tokens": in.people})
		if err != nil {
			in.t.Fatal(err)
		}
		r.env["TOKENS"], r.env["HOLDFAST_TOKENS_FILE"] = string(tokens), "/tmp/tokens.yaml"
		r.files["/etc/holdfast/policy.yaml"] = in.read("services/holdfast/dev/policy.yaml")
		r.files["/etc/holdfast/shell.yaml"] = in.read("services/holdfast/dev/shell.yaml")
	case broker.UserHost:
		r.cmd = append(r.cmd, "--sandboxes", "/var/lib/holdfast/sandboxes", "--listen", "0.0.0.0:7072", "--advertise", "http://host:7072",
			"--agents-url", "http://gateway-1:7071,http://gateway-2:7071", "--isolation", harness.Isolation())
		seccomp := in.read("deploy/seccomp-host.json")
		r.confined = func(h *container.HostConfig) {
			h.CapDrop = []string{"ALL"}
			h.SecurityOpt = append(h.SecurityOpt, "seccomp="+seccomp, "apparmor=unconfined")
			// Nothing of /proc hidden: "systempaths=unconfined" on the command line.
			h.MaskedPaths, h.ReadonlyPaths = []string{}, []string{}
		}
	}
	return r
}

// as is the API of a gateway as somebody.
func (in *installation) as(name, gateway string) *apiclient.ClientWithResponses {
	in.t.Helper()
	c, err := apiclient.New(apiclient.Config{URL: "http://" + in.nodes[gateway].addr, Token: in.token(name)})
	if err != nil {
		in.t.Fatal(err)
	}
	return c
}

func (in *installation) token(name string) string {
	for _, p := range in.people {
		if p.Name == name {
			return p.Token
		}
	}
	in.t.Fatalf("nobody is called %s", name)
	return ""
}

// ready waits until both gateways find every part working.
func (in *installation) ready(t *testing.T) {
	t.Helper()
	for _, gateway := range []string{"gateway-1", "gateway-2"} {
		c, last := in.as("admin", gateway), ""
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("%s said last of its parts: %s", gateway, last)
			}
		})
		harness.Eventually(t, gateway+" finds every part working", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), harness.Patience/4)
			defer cancel()
			r, err := c.ReadyzWithResponse(ctx)
			if err == nil {
				last = string(r.Body)
			}
			return err == nil && r.StatusCode() == http.StatusOK
		})
	}
}

// connect connects to NATS as the projector, who may read everything.
func (in *installation) connect(ctx context.Context) (*nats.Conn, jetstream.JetStream) {
	in.t.Helper()
	urls := make([]string, len(natsServers))
	for i, name := range natsServers {
		urls[i] = "nats://" + in.nodes[name].addr
	}
	nc, err := broker.Connect(ctx, broker.Client{
		URL: strings.Join(urls, ","), User: broker.UserProjector,
		Password: in.passwords[broker.PasswordVariable(broker.UserProjector)], Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		in.t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		in.t.Fatal(err)
	}
	return nc, js
}

// leader is the NATS server that leads EVENTS now.
func (in *installation) leader(ctx context.Context) *node {
	in.t.Helper()
	nc, js := in.connect(ctx)
	defer nc.Close()
	s, err := js.Stream(ctx, events.StreamEvents)
	if err != nil {
		in.t.Fatal(err)
	}
	n := in.nodes[s.CachedInfo().Cluster.Leader]
	if n == nil {
		in.t.Fatalf("EVENTS has no leader: %+v", s.CachedInfo().Cluster)
	}
	return n
}

// check holds the whole log to the invariants.
func (in *installation) check(t *testing.T) {
	t.Helper()
	ctx := harness.Context(t)
	nc, js := in.connect(ctx)
	defer nc.Close()
	log, err := natslog.New(js, nc, natslog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	violations, err := invariants.Check(ctx, log)
	if err != nil {
		t.Errorf("check the log: %v", err)
	}
	for _, v := range violations {
		t.Errorf("invariant broken: %+v", v)
	}
}

// remove takes everything away, and shows what was said where the test failed.
func (in *installation) remove() {
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	for name, n := range in.nodes {
		if in.t.Failed() {
			said := n.said(ctx)
			in.t.Logf("%s said:\n%s", name, said[max(0, len(said)-4000):])
		}
	}
	var removing sync.WaitGroup
	for name, n := range in.nodes {
		removing.Go(func() {
			_, err := in.docker.ContainerRemove(ctx, n.c.GetContainerID(), client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
			if err != nil {
				in.t.Errorf("remove %s: %v", name, err)
			}
		})
	}
	removing.Wait()
	if err := in.network.Remove(ctx); err != nil {
		in.t.Errorf("remove the network: %v", err)
	}
}
