package dev

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/migrations"
	"github.com/holdfast-io/holdfast/services/gateway"
	"github.com/holdfast-io/holdfast/services/holdfast/parts"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/install"
	"github.com/holdfast-io/holdfast/services/internal/keyfile"
	"github.com/holdfast-io/holdfast/services/internal/postgres"
	"github.com/holdfast-io/holdfast/services/workload"
)

// DefaultAddr is where dev serves.
const DefaultAddr = "127.0.0.1:7070"

// Config of a dev.
type Config struct {
	// Addr to serve on, host:port; ":0" for any free port.
	Addr string
	// Origins are what browsers call it; see gateway.Config.
	Origins []string
	// DataDir holds everything; made where it isn't there.
	DataDir string
	// Reset starts with an empty log.
	Reset bool
	// Isolation is "namespaces" (where empty), "gvisor" or "none".
	Isolation string
	// PostgresURL uses a Postgres that runs already; empty starts one.
	PostgresURL string
	// SyncAlways has each append on the disk before it is acknowledged. Only tests
	// do without.
	SyncAlways bool
	// Logger takes what the parts say.
	Logger *slog.Logger
	// Progress is told of each step of the start, when it begins (took is 0) and when
	// it is done; may be nil.
	Progress func(step string, took time.Duration)
	// Version is this build's.
	Version string
}

// Program is a running dev. Stop it; it may be stopped more than once.
type Program struct {
	// URL of the API and the console.
	URL string
	// ConsoleURL signs the admin in, once.
	ConsoleURL string
	// DataDir is absolute.
	DataDir string

	cfg     Config
	cancel  context.CancelFunc
	done    chan struct{}
	running bool // done will be closed
	err     error
	broker  *broker.Broker
	closers []func() error
	once    sync.Once
}

// AddrInUseError says that the address is taken.
type AddrInUseError struct{ Addr string }

// Error names the way out.
func (e *AddrInUseError) Error() string {
	return e.Addr + " is in use: stop what listens there, or name another with --addr (such as 127.0.0.1:0 for any free port)"
}

// Start starts everything and returns when all parts work. What it started ends
// with ctx, or by Stop.
func Start(ctx context.Context, cfg Config) (*Program, error) {
	if cfg.Addr == "" {
		cfg.Addr = DefaultAddr
	}
	if cfg.Progress == nil {
		cfg.Progress = noProgress
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &Program{cfg: cfg, cancel: cancel, done: make(chan struct{})}
	if err := p.start(ctx); err != nil {
		cancel()
		if p.running {
			<-p.done
		}
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func noProgress(string, time.Duration) {}

// step runs one step of the start and tells how long it took.
func (p *Program) step(name string, do func() error) error {
	begin := time.Now()
	p.cfg.Progress(name, 0)
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	p.cfg.Progress(name, time.Since(begin))
	return nil
}

func (p *Program) onClose(f func() error) { p.closers = append(p.closers, f) }

// ground is what the services stand on.
type ground struct {
	dir      *dataDir
	listener net.Listener
	agents   net.Listener
	relay    net.Listener
	sandboxd string
	broker   *broker.Broker
	pool     *pgxpool.Pool
	dsn      string
	tokens   string
}

func (p *Program) start(ctx context.Context) error {
	var g ground
	for _, s := range []struct {
		name string
		do   func() error
	}{
		{"data directory", func() error { return p.openData(&g) }},
		{"listeners", func() error { return p.listen(ctx, &g) }},
		{"sandboxd", func() (err error) {
			g.sandboxd, err = FindSandboxd(ctx, g.dir.in("bin"))
			return err
		}},
		{"NATS JetStream", func() error { return p.startBroker(ctx, &g) }},
		{"Postgres", func() error { return p.startPostgres(ctx, &g) }},
		{"services", func() error { return p.startServices(ctx, g) }},
	} {
		if err := p.step(s.name, s.do); err != nil {
			return err
		}
	}
	return g.dir.writeServer(Server{URL: p.URL, PID: os.Getpid()})
}

func (p *Program) openData(g *ground) (err error) {
	if g.dir, err = openDataDir(p.cfg.DataDir, p.cfg.Reset); err != nil {
		return err
	}
	p.onClose(g.dir.close)
	p.DataDir = g.dir.path
	g.tokens, err = g.dir.tokens()
	return err
}

func (p *Program) listen(ctx context.Context, g *ground) (err error) {
	var lc net.ListenConfig
	g.listener, err = lc.Listen(ctx, "tcp", p.cfg.Addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return &AddrInUseError{Addr: p.cfg.Addr}
	case err != nil:
		return fmt.Errorf("%w; name another address with --addr", err)
	}
	p.onClose(func() error { return ignoreClosed(g.listener.Close()) })
	p.URL = "http://" + g.listener.Addr().String()
	if g.agents, err = ListenForAgents(g.dir.in("agent", AgentSocket)); err != nil {
		return err
	}
	p.onClose(func() error { return ignoreClosed(g.agents.Close()) })
	if g.relay, err = listenUnix(g.dir.in("host", relaySocket), 0o700, 0o600); err != nil {
		return err
	}
	p.onClose(func() error { return ignoreClosed(g.relay.Close()) })
	return os.MkdirAll(g.dir.in("bin"), 0o755)
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (p *Program) startBroker(ctx context.Context, g *ground) (err error) {
	g.broker, err = broker.Start(broker.Config{Dir: g.dir.in("nats"), SyncAlways: p.cfg.SyncAlways, Logger: p.cfg.Logger})
	if err != nil {
		return err
	}
	p.broker = g.broker
	p.onClose(func() error {
		g.broker.Stop()
		return nil
	})
	nc, err := g.broker.Connect(ctx, broker.UserInstaller)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	_, err = install.Run(ctx, js)
	return err
}

func (p *Program) startPostgres(ctx context.Context, g *ground) error {
	g.dsn = p.cfg.PostgresURL
	if g.dsn == "" {
		server, err := postgres.Start(ctx, postgres.Config{Dir: g.dir.in("postgres"), Logger: p.cfg.Logger})
		if err != nil {
			return err
		}
		p.onClose(server.Stop)
		g.dsn = server.DSN()
	}
	if err := migrations.Up(ctx, g.dsn); err != nil {
		return err
	}
	var err error
	g.pool, err = parts.OpenPool(ctx, g.dsn)
	if err != nil {
		return err
	}
	p.onClose(func() error {
		g.pool.Close()
		return nil
	})
	return nil
}

func (p *Program) startServices(ctx context.Context, g ground) error {
	key, err := keyfile.Ensure(g.dir.in("keys", "sandbox.pem"))
	if err != nil {
		return err
	}
	public, ok := key.Public().(ed25519.PublicKey)
	if !ok {
		return keyfile.ErrNoKey
	}
	made, hosting := make(chan *gateway.Gateway, 1), make(chan struct{})
	env := parts.Env{
		Connect: g.broker.Connect, Pool: g.pool, Logger: p.cfg.Logger, Key: key, Metrics: parts.NewMetrics(p.cfg.Version), LogDir: g.dir.in("nats"),
		Host: parts.Host{
			Local: workload.Local{
				DataDir: g.dir.path, SandboxdPath: g.sandboxd, AgentSocket: g.dir.in("agent", AgentSocket),
				Isolation: p.cfg.Isolation,
			},
			Listener: g.relay, URL: "unix:" + g.dir.in("host", relaySocket), Key: public,
			Ready: func() { close(hosting) },
		},
		Gateway: parts.Gateway{
			Listener: g.listener, Agents: g.agents, Origins: p.cfg.Origins, TokensFile: g.tokens, Key: public,
			Made: func(gw *gateway.Gateway) { made <- gw },
		},
	}
	group, running := errgroup.WithContext(ctx)
	for name, run := range env.All() {
		group.Go(func() error {
			if name == "workload" { // what it wants at the start finds the host there
				select {
				case <-hosting:
				case <-running.Done():
				}
			}
			if err := run(running); err != nil && running.Err() == nil {
				return fmt.Errorf("%s stopped: %w", name, err)
			}
			return nil
		})
	}
	p.running = true
	go func() {
		p.err = group.Wait()
		close(p.done)
		p.cancel()
	}()
	select {
	case gw := <-made:
		return p.settle(ctx, g, gw)
	case <-p.done:
		return p.err
	}
}
