package processes_test

import (
	"context"
	"errors"
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
	addr   string
	// running are the services by name.
	running map[string]*harness.Child
}

// install makes one and starts every service.
func install(t *testing.T) *installation {
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
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	in.addr = l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "agent", "agent.sock")
	in.serve("projector")
	in.serve("session")
	in.serve("policy")
	in.serve("host", "--sandboxes", dir, "--agent-socket", socket, "--isolation", harness.Isolation(), "--listen", "127.0.0.1:0")
	in.serve("workload")
	in.serve("runner")
	in.serve("gateway", "--addr", in.addr, "--agent-socket", socket)
	harness.Eventually(t, "every part works", func() bool {
		c, err := apiclient.New(apiclient.Config{URL: in.url()})
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.ReadyzWithResponse(harness.Context(t))
		return err == nil && r.StatusCode() == http.StatusOK
	})
	in.cli("policy", "apply", "-f", "../../holdfast/dev/policy.yaml")
	in.cli("runtime", "apply", "-f", "../../holdfast/dev/shell.yaml")
	return in
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
func (in *installation) url() string    { return "http://" + in.addr }

// keyOf is the private key for the workload service, and its public half for others.
func (in *installation) keyOf(user broker.User) string {
	if user == broker.UserWorkload {
		return in.key()
	}
	return in.key() + keyfile.PublicSuffix
}

// env is what a process of a NATS user is given: no other's password.
func (in *installation) env(user broker.User) []string {
	return []string{
		"HOLDFAST_NATS_URL=" + in.broker.URL(), broker.PasswordVariable(user) + "=" + in.broker.Password(user),
		"HOLDFAST_POSTGRES_URL=" + in.dsn, "HOLDFAST_KEY_FILE=" + in.keyOf(user), "HOLDFAST_TOKENS_FILE=" + in.tokens(),
	}
}

// serve starts a service.
func (in *installation) serve(service string, flags ...string) {
	in.t.Helper()
	c := harness.Spawn(in.t, in.env(broker.User(service)), append([]string{"serve", service}, flags...)...)
	c.Await("holdfast " + service + " serves")
	in.running[service] = c
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
	entries, err := tokenfile.Read(in.tokens())
	if err != nil {
		in.t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name == name {
			c, err := apiclient.New(apiclient.Config{URL: in.url(), Token: e.Token})
			if err != nil {
				in.t.Fatal(err)
			}
			return c
		}
	}
	in.t.Fatalf("nobody is called %s", name)
	return nil
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
