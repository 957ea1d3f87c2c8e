package remote_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/broker/brokertest"
	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/internal/sandboxtoken"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver/drivertest"
	"github.com/holdfast-io/holdfast/services/workload/internal/host"
	"github.com/holdfast-io/holdfast/services/workload/internal/local"
	"github.com/holdfast-io/holdfast/services/workload/internal/remote"
)

var (
	quiet = slog.New(slog.DiscardHandler)
	key   = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
)

const name = "h-1"

// stateless is drivertest's granter as the workload service is one: it remembers
// nothing, and whoever asks brings the bind.
type stateless struct{}

func (stateless) Redeem(ctx context.Context, podUID, bind string) (sandboxapi.Grant, error) {
	return (&drivertest.Granter{}).Redeem(ctx, podUID, bind)
}

func (stateless) Renew(ctx context.Context, podUID, bind string) (sandboxapi.Grant, error) {
	return (&drivertest.Granter{}).Redeem(ctx, podUID, bind)
}

// replica is a remote driver under test.
type replica struct{ *remote.Driver }

// Access implements drivertest.Accessor, as the workload service mints it.
func (replica) Access(ref driver.Ref, podUID string) string {
	token, _, err := sandboxtoken.MintAccess(key, sandboxtoken.Claims{
		Tenant: ref.Tenant, Session: ref.Session, Generation: ref.Generation, PodUID: podUID,
	}, time.Now())
	if err != nil {
		panic(err) // of constants
	}
	return token
}

// installation is a NATS with a host on it.
type installation struct {
	t    testing.TB
	nats *brokertest.Server
	dir  string
	// driver is the host's own.
	driver driver.Driver
	stop   func()
}

func install(t testing.TB) *installation {
	t.Helper()
	in := &installation{t: t, nats: brokertest.Start(t), dir: t.TempDir()}
	t.Cleanup(func() { in.stop() })
	in.startHost()
	return in
}

// startHost starts a host on the data; in.stop ends it.
func (in *installation) startHost() {
	in.t.Helper()
	nc, err := in.nats.Connect(in.t.Context(), broker.UserHost)
	if err != nil {
		in.t.Fatal(err)
	}
	granter := host.NewGranter(nc, name)
	d, err := local.New(in.t.Context(), local.Config{
		DataDir: in.dir, SandboxdPath: filepath.Join(built, "sandboxd"), AgentSocket: filepath.Join(in.dir, "agent", "agent.sock"),
		SharePaths: []string{built}, Granter: granter, Isolation: "none", StopGrace: 500 * time.Millisecond, Log: quiet,
	})
	if err != nil {
		in.t.Fatal(err)
	}
	granter.Watch(d)
	in.driver = d
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		in.t.Fatal(err)
	}
	public, _ := key.Public().(ed25519.PublicKey)
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- host.Run(ctx, host.Config{
			NC: nc, Name: name, Driver: d, Listener: l, URL: "http://" + l.Addr().String(), Key: public, Logger: quiet,
			Ready: func() { close(ready) },
		})
	}()
	<-ready
	in.stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-done, d.Close()); err != nil {
			in.t.Errorf("host: %v", err)
		}
		nc.Close()
	})
}

// replica makes one more driver of the workload service.
func (in *installation) replica() replica {
	in.t.Helper()
	d, err := remote.New(remote.Config{NC: in.nats.NC(broker.UserWorkload), Host: name, Granter: stateless{}, Logger: quiet})
	if err != nil {
		in.t.Fatal(err)
	}
	in.t.Cleanup(func() {
		if err := d.Close(); err != nil {
			in.t.Error(err)
		}
	})
	return replica{d}
}

func runtime() driver.RuntimeSpec {
	return driver.RuntimeSpec{
		Name: "probe", Revision: 1, Kind: "agent", Adapter: "none", HasVolume: true,
		Argv: []string{filepath.Join(built, "probeagent")}, Port: 8000, ReadyPath: "/health", WorkspacePath: "/workspace",
	}
}

func claimOf(session string, intent uint64) driver.Claim {
	return driver.Claim{Ref: driver.Ref{Tenant: "default", Session: session, Generation: 1}, Intent: intent, Epoch: "e-1", Runtime: runtime()}
}

// A remote driver is a driver like any other: over NATS, with the sandboxes behind
// a relay.
func TestConformance(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) drivertest.Subject {
		t.Helper()
		spec := runtime()
		spec.HasVolume = false
		return drivertest.Subject{Driver: install(t).replica(), Runtime: spec, Isolation: "none"}
	})
}

// A replica that claimed, bound and is gone leaves sandboxes that the other uses,
// suspends and resumes as its own.
func TestReplicasShareAHost(t *testing.T) {
	in := install(t)
	one, other := in.replica(), in.replica()
	c := claimOf("s-1", 5)
	made := drivertest.Start(t, one, c)
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := one.Locate(t.Context(), c.Ref); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("a closed one: %v", err)
	}
	if said, code := drivertest.Shell(t, other, c.Ref, "echo kept > file; cat file"); said != "kept" || code != 0 {
		t.Errorf("said %q, exit %d", said, code)
	}
	if _, err := other.Bind(t.Context(), c.Ref, drivertest.BindOf(c.Ref)); err != nil {
		t.Errorf("bound again by the other: %v", err)
	}
	if err := other.Suspend(t.Context(), c.Ref, 6); err != nil {
		t.Fatal(err)
	}
	c.Intent = 7
	if again := drivertest.Restart(t, other, c); again.SandboxUID != made.SandboxUID || again.PodUID == made.PodUID {
		t.Errorf("resumed %+v of %+v", again, made)
	}
	if said, _ := drivertest.Shell(t, other, c.Ref, "cat file"); said != "kept" {
		t.Errorf("said %q", said)
	}
}

// Without its host nothing is known of a sandbox, and nothing is said but that; the
// host that comes back says what was lost.
func TestHostGoesAndComes(t *testing.T) {
	in := install(t)
	d := in.replica()
	c := claimOf("s-1", 5)
	drivertest.Start(t, d, c)
	drain(d)
	in.stop()
	if _, err := d.Locate(t.Context(), c.Ref); !errors.Is(err, driver.ErrUnreachable) {
		t.Errorf("locate: %v", err)
	}
	if _, err := d.Claim(t.Context(), c); !errors.Is(err, driver.ErrUnreachable) {
		t.Errorf("claim: %v", err)
	}
	in.startHost()
	for began := false; !began; { // what it lost is in its list
		select {
		case e := <-d.Events():
			began = e.Began
		case <-time.After(30 * time.Second):
			t.Fatal("not told that it began")
		}
	}
	found, err := d.List(t.Context())
	if err != nil || len(found) != 1 || found[0].State != driver.StateLost {
		t.Errorf("found %+v, %v", found, err)
	}
	if _, err := d.Locate(t.Context(), c.Ref); !errors.Is(err, driver.ErrNotRunning) {
		t.Errorf("locate: %v", err)
	}
}

// drain takes what has been told so far.
func drain(d replica) {
	for {
		select {
		case <-d.Events():
		default:
			return
		}
	}
}

// Two hosts of one name would both answer, each for sandboxes of its own.
func TestNameIsTaken(t *testing.T) {
	in := install(t)
	nc := in.nats.NC(broker.UserHost)
	if err := host.CheckName(t.Context(), nc, name); !errors.Is(err, driver.ErrInUse) {
		t.Errorf("%v", err)
	}
	if err := host.CheckName(t.Context(), nc, "h-2"); err != nil {
		t.Errorf("another name: %v", err)
	}
	if err := host.CheckName(t.Context(), nc, "h.2"); err == nil {
		t.Error("a name that is no token")
	}
}
