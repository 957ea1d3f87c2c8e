package processes_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
	"github.com/holdfast-io/holdfast/events/eventlog/natslog"
	"github.com/holdfast-io/holdfast/events/invariants"
	"github.com/holdfast-io/holdfast/events/output"
	"github.com/holdfast-io/holdfast/events/output/natsoutput"
	"github.com/holdfast-io/holdfast/migrations/pgtest"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/keyfile"
	"github.com/holdfast-io/holdfast/services/internal/tokenfile"
)

func TestMain(m *testing.M) { harness.Main(m) }

// installation is a NATS, a Postgres and the services on them.
type installation struct {
	t      *testing.T
	dir    string
	broker *broker.Broker
	dsn    string
	// addrs are where the gateways answer, agents where they hear agents; agents is
	// empty where a gateway and the host share a socket.
	addrs, agents []string
	// running are the services by name; a second replica's has "-2".
	running map[string]*harness.Child
}

// install makes one and starts every service, in so many replicas but the host. With
// one of each the gateway listens on the socket that sandboxes see; with more the
// host passes on what agents ask, by TCP.
func install(t *testing.T, replicas int) *installation {
	t.Helper()
	dir, err := os.MkdirTemp("", "hf-") // short: sockets are in it
	if err != nil {
		t.Fatal(err)
	}
	in := &installation{t: t, dir: dir, dsn: pgtest.New(t), running: map[string]*harness.Child{}}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if in.broker, err = broker.Start(broker.Config{Dir: filepath.Join(dir, "nats"), Port: -1, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(in.broker.Stop)
	in.files()
	if got := in.run(broker.UserInstaller, "install", "--key-file", in.key()); !strings.Contains(got, "installed: log ") {
		t.Fatalf("install says %q", got)
	}
	if first, again := in.run(broker.UserInstaller, "install", "--key-file", in.key()), in.run(broker.UserInstaller, "install", "--key-file", in.key()); first != again {
		t.Errorf("install again: %q, then %q", first, again)
	}
	for range replicas {
		in.addrs = append(in.addrs, freeAddr(t))
		if replicas > 1 {
			in.agents = append(in.agents, freeAddr(t))
		}
	}
	in.serve("host")
	for i := range replicas {
		for _, service := range deciding {
			in.serve(replica(service, i))
		}
		in.serve(replica("gateway", i))
	}
	for i := range replicas {
		in.awaitReady(i)
	}
	in.cli("policy", "apply", "-f", "../../holdfast/dev/policy.yaml")
	in.cli("runtime", "apply", "-f", in.runtime())
	return in
}

// runtime is dev's shell with a shorter idle time: a gateway that is killed while
// somebody calls into a sandbox leaves the session in use for up to half of it, in which
// nothing can suspend it. A walk waits for that: see patience.
func (in *installation) runtime() string {
	in.t.Helper()
	raw, err := os.ReadFile("../../holdfast/dev/shell.yaml")
	if err != nil {
		in.t.Fatal(err)
	}
	short := bytes.Replace(raw, []byte("idle: 15m"), []byte("idle: 3m"), 1)
	if bytes.Equal(short, raw) {
		in.t.Fatal("the runtime says nothing of an idle time of 15 minutes")
	}
	path := filepath.Join(in.dir, "shell.yaml")
	if err := os.WriteFile(path, short, 0o600); err != nil {
		in.t.Fatal(err)
	}
	return path
}

// deciding are the services but the gateway and the host.
var deciding = []string{"projector", "session", "policy", "workload", "runner"}

// replica names one of a service: "session", "session-2".
func replica(service string, i int) string {
	if i == 0 {
		return service
	}
	return fmt.Sprintf("%s-%d", service, i+1)
}

// freeAddr is an address that nobody listens on.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// awaitReady waits until a gateway finds that every part works.
func (in *installation) awaitReady(gateway int) {
	in.t.Helper()
	c, err := apiclient.New(apiclient.Config{URL: in.urlOf(gateway)})
	if err != nil {
		in.t.Fatal(err)
	}
	harness.Eventually(in.t, "every part works", func() bool {
		r, err := c.ReadyzWithResponse(harness.Context(in.t))
		return err == nil && r.StatusCode() == http.StatusOK
	})
}

// files writes what an operator provides: people's tokens.
func (in *installation) files() {
	in.t.Helper()
	var people []tokenfile.Entry
	for name, roles := range map[string][]api.Role{
		"admin": {api.RoleAdmin, api.RoleApprover, api.RoleDeveloper, api.RoleAuditor, api.RoleOperator}, "alice": {api.RoleDeveloper}, "bob": {api.RoleApprover},
	} {
		people = append(people, tokenfile.Entry{Name: name, Token: tokenfile.NewToken(), Roles: roles, Tenants: []string{harness.Tenant}})
	}
	if err := tokenfile.Write(in.tokens(), people); err != nil {
		in.t.Fatal(err)
	}
}

func (in *installation) key() string    { return filepath.Join(in.dir, "sandbox.pem") }
func (in *installation) tokens() string { return filepath.Join(in.dir, "tokens.yaml") }
func (in *installation) url() string    { return in.urlOf(0) }

func (in *installation) urlOf(gateway int) string { return "http://" + in.addrs[gateway] }

// keyOf is the private key for the workload service, and its public half for others.
func (in *installation) keyOf(user broker.User) string {
	if user == broker.UserWorkload {
		return in.key()
	}
	return in.key() + keyfile.PublicSuffix
}

// site is what the gateways are told that browsers call them.
const site = "https://holdfast.example.com"

// env is what a process of a NATS user is given: no other's password.
func (in *installation) env(user broker.User) []string {
	return []string{
		"HOLDFAST_NATS_URL=" + in.broker.URL(), broker.PasswordVariable(user) + "=" + in.broker.Password(user),
		"HOLDFAST_POSTGRES_URL=" + in.dsn, "HOLDFAST_KEY_FILE=" + in.keyOf(user), "HOLDFAST_TOKENS_FILE=" + in.tokens(),
		"HOLDFAST_ORIGINS=" + site,
	}
}

// serve starts a replica of a service.
func (in *installation) serve(name string) {
	in.t.Helper()
	service, second, _ := strings.Cut(name, "-")
	i := 0
	if second != "" {
		i = 1
	}
	socket := filepath.Join(in.dir, "agent", "agent.sock")
	flags := []string{"serve", service}
	switch {
	case service == "host":
		flags = append(flags, "--sandboxes", in.dir, "--isolation", harness.Isolation(), "--listen", "127.0.0.1:0")
		if len(in.agents) == 0 {
			flags = append(flags, "--agent-socket", socket)
		}
		for _, addr := range in.agents {
			flags = append(flags, "--agents-url", "http://"+addr)
		}
	case service == "gateway" && len(in.agents) > 0:
		flags = append(flags, "--addr", in.addrs[i], "--agents-addr", in.agents[i])
	case service == "gateway":
		flags = append(flags, "--addr", in.addrs[i], "--agent-socket", socket)
	}
	c := harness.Spawn(in.t, in.env(broker.User(service)), flags...)
	c.Await("holdfast " + service + " serves")
	in.running[name] = c
}

// run runs a command to its end and gives what it said.
func (in *installation) run(user broker.User, args ...string) string {
	in.t.Helper()
	c := harness.Spawn(in.t, in.env(user), args...)
	if code := c.Wait(); code != 0 {
		in.t.Fatalf("%v: exit %d: %s", args, code, c.Said())
	}
	return c.Stdout()
}

// cli runs a client's command.
func (in *installation) cli(args ...string) string {
	in.t.Helper()
	c := harness.Spawn(in.t, []string{"HOLDFAST_URL=" + in.url()}, append(args, "--data-dir", in.dir)...)
	if code := c.Wait(); code != 0 {
		in.t.Fatalf("%v: exit %d: %s", args, code, c.Said())
	}
	return c.Stdout()
}

// as is the API as somebody.
func (in *installation) as(name string) *apiclient.ClientWithResponses {
	in.t.Helper()
	return in.asAt(name, 0)
}

// asAt is the API of one gateway as somebody.
func (in *installation) asAt(name string, gateway int) *apiclient.ClientWithResponses {
	in.t.Helper()
	c, err := apiclient.New(apiclient.Config{URL: in.urlOf(gateway), Token: in.token(name)})
	if err != nil {
		in.t.Fatal(err)
	}
	return c
}

// token is somebody's bearer token.
func (in *installation) token(name string) string {
	in.t.Helper()
	entries, err := tokenfile.Read(in.tokens())
	if err != nil {
		in.t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name == name {
			return e.Token
		}
	}
	in.t.Fatalf("nobody is called %s", name)
	return ""
}

// close holds the log to the invariants, stops the services as an operator does,
// and looks for what they leave.
func (in *installation) close() {
	in.check()
	for name, c := range in.running {
		if code := c.Interrupt(); code != 0 {
			in.t.Errorf("%s ended with %d: %s", name, code, c.Said())
		}
		if in.t.Failed() {
			in.t.Logf("%s said: %s", name, c.Said())
		}
	}
	harness.Eventually(in.t, "nothing is left", func() bool { return len(harness.ProcessesNaming(in.dir)) == 0 })
}

func (in *installation) check() {
	ctx := harness.Context(in.t)
	nc, err := in.broker.Connect(ctx, broker.UserProjector)
	if err != nil {
		in.t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		in.t.Fatal(err)
	}
	log, err := natslog.New(js, nc, natslog.Options{})
	if err != nil {
		in.t.Fatal(err)
	}
	violations, err := invariants.Check(ctx, log)
	if err != nil {
		in.t.Errorf("check the log: %v", err)
	}
	for _, v := range violations {
		in.t.Errorf("invariant broken: %+v", v)
	}
}

// errEnough ends a tail.
var errEnough = errors.New("read to the end")

// batches reads all of OUTPUT that a run has said.
func (in *installation) batches(run string) []output.Batch {
	in.t.Helper()
	ctx := harness.Context(in.t)
	nc, err := in.broker.Connect(ctx, broker.UserProjector)
	if err != nil {
		in.t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		in.t.Fatal(err)
	}
	out, err := natsoutput.New(js, nc, natsoutput.Options{})
	if err != nil {
		in.t.Fatal(err)
	}
	first, last, err := out.Info(ctx)
	if err != nil {
		in.t.Fatal(err)
	}
	var of []output.Batch
	err = out.Tail(ctx, first, func(m output.Message) error {
		if m.Batch.Run == run {
			of = append(of, m.Batch)
		}
		if m.Seq >= last {
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		in.t.Fatal(err)
	}
	return of
}

// ask has alice's agent want to run a command, and bob approve it; it gives the
// session and the run that goes on.
func (in *installation) ask(ctx context.Context, command string) (session, run string) {
	in.t.Helper()
	prefer := "wait=30"
	r, err := in.as("alice").CreateSessionWithResponse(ctx, &api.CreateSessionParams{Prefer: &prefer}, api.CreateSession{Runtime: "shell", Message: command})
	if err != nil {
		in.t.Fatal(err)
	}
	id := r.JSON201.ID
	frames := harness.Follow(in.t, in.as("alice"), id, harness.OnPrompt(api.CallStatePending))
	a, _ := harness.ApprovalOf(frames[len(frames)-1])
	if _, err := in.as("bob").DecideApprovalWithResponse(ctx, a.ID, nil, api.DecideApproval{Decision: api.AnswerApprove, ArgsHash: a.ArgsHash}); err != nil {
		in.t.Fatal(err)
	}
	harness.Eventually(in.t, "the run goes on", func() bool {
		s, err := in.as("alice").GetSessionWithResponse(ctx, id, nil)
		if err == nil && s.JSON200.Run != a.RunID {
			run = s.JSON200.Run
		}
		return run != ""
	})
	return id, run
}
