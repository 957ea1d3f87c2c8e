package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Config of an embedded server.
type Config struct {
	// Dir is where JetStream keeps its files; only this server may use it.
	Dir string
	// SyncAlways has each append on the disk before it is acknowledged, which is
	// what a log that is to survive a power cut needs. Tests do without.
	SyncAlways bool
	// Port on 127.0.0.1 for other processes: 0 opens none and only Connect gets in,
	// -1 takes any free one (Addr says which).
	Port int
	// Passwords of the users, for other processes; who has none here gets a random one.
	Passwords map[User]string
	// Logger is needed.
	Logger *slog.Logger
	// OnDenied is called with each permission violation of a connection that Connect
	// made, and the user's name. May be nil.
	OnDenied func(User, error)
}

// Broker is a running server, which may be another one later: see mender.
type Broker struct {
	cfg       Config
	passwords map[User]string
	mender    *mender

	// server is nil while none could be started again.
	server atomic.Pointer[server.Server]
	// addr is where the first server listens, and each one after it; nil where none does.
	addr *net.TCPAddr
}

// startTimeout is how long the server may take to be ready: it reads every stream's
// index first.
const startTimeout = 30 * time.Second

// Start starts a server and returns when it is ready.
func Start(cfg Config) (*Broker, error) {
	switch {
	case cfg.Dir == "":
		return nil, errors.New("broker: no Dir")
	case cfg.Logger == nil:
		return nil, errors.New("broker: no Logger")
	case cfg.Port < -1 || cfg.Port > 65535:
		return nil, fmt.Errorf("broker: port %d", cfg.Port)
	}
	b := &Broker{cfg: cfg, passwords: map[User]string{}}
	for _, u := range Users() {
		b.passwords[u] = cfg.Passwords[u]
		if b.passwords[u] == "" {
			b.passwords[u] = rand.Text()
		}
	}
	if err := b.serve(cfg.Port); err != nil {
		return nil, err
	}
	b.addr, _ = b.server.Load().Addr().(*net.TCPAddr)
	b.mender = startMending(b)
	return b, nil
}

// serve starts a server on a port; on an error none runs.
func (b *Broker) serve(port int) error {
	users := make([]*server.User, 0, len(b.passwords))
	for u, password := range b.passwords {
		users = append(users, &server.User{Username: string(u), Password: password, Permissions: permissions(u)})
	}
	s, err := server.NewServer(&server.Options{
		ServerName: "holdfast", Host: "127.0.0.1", Port: port, DontListen: port == 0,
		JetStream: true, StoreDir: b.cfg.Dir, SyncAlways: b.cfg.SyncAlways,
		Users: users, NoSigs: true,
	})
	if err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	s.SetLoggerV2(serverLog{b.cfg.Logger.With("part", "nats-server")}, false, false, false)
	s.Start()
	if !s.ReadyForConnections(startTimeout) {
		stop(s)
		return fmt.Errorf("broker: nats-server on %s was not ready in %s; its log says why", b.cfg.Dir, startTimeout)
	}
	if !s.JetStreamEnabled() {
		stop(s)
		return fmt.Errorf("broker: JetStream can't use %s; the server's log says why", b.cfg.Dir)
	}
	b.server.Store(s)
	return nil
}

func stop(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}

// errNoServer says that none runs now.
var errNoServer = errors.New("the embedded nats-server does not run now")

// InProcessConn implements nats.InProcessConnProvider: connections find the server
// that runs now each time that they are made again.
func (b *Broker) InProcessConn() (net.Conn, error) {
	s := b.server.Load()
	if s == nil {
		return nil, errNoServer
	}
	return s.InProcessConn()
}

// Connect connects inside the process, as a user. The caller closes the connection.
func (b *Broker) Connect(ctx context.Context, u User) (*nats.Conn, error) {
	c := Client{User: u, Password: b.passwords[u], Logger: b.cfg.Logger}
	if b.cfg.OnDenied != nil {
		c.OnDenied = func(err error) { b.cfg.OnDenied(u, err) }
	}
	return c.connect(ctx, nats.InProcessServer(b))
}

// URL is where other processes connect, or "" where Port is 0.
func (b *Broker) URL() string {
	if b.cfg.Port == 0 || b.addr == nil {
		return ""
	}
	return "nats://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(b.addr.Port))
}

// Password is the password of a user, for a process that connects by URL.
func (b *Broker) Password(u User) string { return b.passwords[u] }

// Stop stops the server and waits until its files are closed. It can be called
// again. Connections that are still open start to reconnect, in vain: close them
// first.
func (b *Broker) Stop() {
	b.mender.end()
	if s := b.server.Load(); s != nil {
		stop(s)
	}
}

// serverLog hands the server's lines to slog. What it calls a notice is its own
// start and stop, which nobody needs who didn't ask.
type serverLog struct{ log *slog.Logger }

// Noticef implements server.Logger.
func (l serverLog) Noticef(format string, args ...any) { l.line(slog.LevelDebug, format, args) }

// Warnf implements server.Logger. That passwords are in plain text is nothing to
// warn of: they are random, of this process, and never written down. Nor is that an
// index is made anew after a kill: the messages themselves are what counts.
func (l serverLog) Warnf(format string, args ...any) {
	level := slog.LevelWarn
	if strings.HasPrefix(format, "Plaintext passwords") || strings.Contains(format, "Recovering stream state") {
		level = slog.LevelDebug
	}
	l.line(level, format, args)
}

// Fatalf implements server.Logger.
func (l serverLog) Fatalf(format string, args ...any) { l.line(slog.LevelError, format, args) }

// Errorf implements server.Logger.
func (l serverLog) Errorf(format string, args ...any) { l.line(slog.LevelError, format, args) }

// Debugf implements server.Logger.
func (l serverLog) Debugf(format string, args ...any) { l.line(slog.LevelDebug, format, args) }

// Tracef implements server.Logger.
func (l serverLog) Tracef(format string, args ...any) { l.line(slog.LevelDebug, format, args) }

func (l serverLog) line(level slog.Level, format string, args []any) {
	if l.log.Enabled(context.Background(), level) {
		l.log.Log(context.Background(), level, "nats-server says", "text", fmt.Sprintf(format, args...))
	}
}
