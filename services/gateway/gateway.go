// Package gateway is the way in: REST, streams and the console for people, calls
// into sandboxes, and on a listener of its own what agents ask. It decides nothing
// and appends nothing: it establishes who calls and whether they may, turns writes
// into commands to the service that decides them, and shows what the log and the
// projections say.
//
//	public listener                              agents' listener
//	  edge: id, headers, log, metrics              edge
//	  Guard: who, origin, tenant, role, shape      Guard: token, fence, flood, shape
//	  ├─ rest    commands, reads, lists            └─ agentside: calls, input, session
//	  ├─ hub     SSE, WebSocket
//	  ├─ agui    AG-UI clients
//	  ├─ invoke  into the sandbox
//	  └─ system, site
//
// Writes, single reads and waiting need NATS alone; lists, history and audit need
// Postgres and are refused while it is down.
package gateway

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/output"
	"github.com/holdfast-io/holdfast/services/gateway/internal/agentside"
	"github.com/holdfast-io/holdfast/services/gateway/internal/auth"
	"github.com/holdfast-io/holdfast/services/gateway/internal/edge"
	"github.com/holdfast-io/holdfast/services/gateway/internal/hub"
	"github.com/holdfast-io/holdfast/services/gateway/internal/invoke"
	"github.com/holdfast-io/holdfast/services/gateway/internal/live"
	"github.com/holdfast-io/holdfast/services/gateway/internal/rest"
	"github.com/holdfast-io/holdfast/services/internal/brake"
	"github.com/holdfast-io/holdfast/services/internal/command"
	"github.com/holdfast-io/holdfast/services/internal/connlimit"
	"github.com/holdfast-io/holdfast/services/internal/sandboxtoken"
)

// Config is what a gateway needs. All fields without a default are required.
type Config struct {
	// NC is a connection as the NATS user "gateway". The caller closes it after Run.
	NC *nats.Conn
	// Log is EVENTS, Epoch its genesis' epoch.
	Log   eventlog.Log
	Epoch string
	// Output is what agents stream.
	Output output.Stream
	// Views is what is read from Postgres; it may be down.
	Views Views
	// TokensFile is the people's tokens (package tokenfile), read again when it changes.
	TokensFile string
	// SandboxKey verifies the tokens of sandboxes and their binds, which the workload
	// service signs.
	SandboxKey ed25519.PublicKey
	// Listener is the public one, AgentListener that of agents: TCP or unix. Run
	// closes them.
	Listener, AgentListener net.Listener
	// Origins are what browsers call this server: scheme, host and port, such as
	// "https://holdfast.example.com". The default is the public listener's own address,
	// where it has one. Who reaches it by way of loopback, whatever the port, needs none.
	Origins []string
	// Storage tells whether the log's brake is set, and the fullest measure of its
	// storage, for readiness; nil says nothing of it.
	Storage func() (braking bool, fullest brake.Usage)
	// Console are the console's files; nil for none.
	Console fs.FS
	// Metrics is where metrics are registered and read from; nil makes one.
	Metrics *prometheus.Registry
	Logger  *slog.Logger
	// Now is the clock for logins and tokens; nil means time.Now.
	Now func() time.Time
}

// Views is what the gateway reads from the projections; projections.Reader is one.
type Views interface {
	rest.History
	hub.Reader
	// Checkpoint tells the log's epoch and the sequence that the views include.
	Checkpoint(ctx context.Context) (epoch string, seq uint64, err error)
	// Fits says whether what they include is what the log has there.
	Fits(ctx context.Context) error
}

// Validate says what is missing.
func (c Config) Validate() error {
	switch {
	case c.NC == nil || c.Log == nil || c.Epoch == "" || c.Output == nil || c.Views == nil || c.Logger == nil:
		return errors.New("gateway: NC, Log, Epoch, Output, Views and Logger are required")
	case c.TokensFile == "":
		return errors.New("gateway: no TokensFile: nobody could call")
	case len(c.SandboxKey) != ed25519.PublicKeySize:
		return errors.New("gateway: no SandboxKey: no agent could call")
	case c.Listener == nil || c.AgentListener == nil:
		return errors.New("gateway: Listener and AgentListener are required")
	}
	return nil
}

// Limits of the servers.
const (
	// maxAgentConns are open at a time from one address. An agent in a Pod can reach the
	// agents' listener without its sandboxd, and is to take no room from others. A host, or
	// a node that hides its Pods' addresses, has the sandboxes of all its sessions behind it.
	maxAgentConns  = 2048
	headerTimeout  = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 64 << 10
	// stopGrace bounds the end of requests that are being served.
	stopGrace = 10 * time.Second
)

// Gateway is a gateway that is made and not yet running.
type Gateway struct {
	cfg    Config
	auth   *auth.Auth
	tokens *auth.Tokens
	live   *live.Live
	invoke *invoke.Invoker
	hub    *hub.Hub
	public http.Handler
	agents http.Handler
}

// New makes a gateway; Run serves. Nothing is listened to before.
func New(cfg Config) (*Gateway, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if len(cfg.Origins) == 0 {
		cfg.Origins = originsOf(cfg.Listener.Addr())
	}
	origins, err := auth.NewOrigins(cfg.Origins)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = prometheus.NewRegistry()
	}
	tokens, err := auth.LoadTokens(cfg.TokensFile)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	verifier, err := sandboxtoken.NewVerifier(cfg.SandboxKey, cfg.Now)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	g := &Gateway{
		cfg: cfg, tokens: tokens,
		auth: auth.New(auth.Config{Tokens: tokens, Origins: origins, Now: cfg.Now}),
	}
	g.live = live.New(live.Config{Log: cfg.Log, Epoch: cfg.Epoch, Copy: cfg.Views})
	problems := edge.Problems{Logger: cfg.Logger}
	commands := &command.Client{NC: cfg.NC}
	g.invoke = invoke.New(invoke.Config{Commands: commands, Live: g.live, Problems: problems, Logger: cfg.Logger})
	operations := rest.New(rest.Config{
		Commands: commands, Live: g.live, History: cfg.Views, Auth: g.auth, Epoch: cfg.Epoch, Problems: problems, Logger: cfg.Logger,
	})
	if g.hub, err = hub.New(hub.Config{
		Log: cfg.Log, Epoch: cfg.Epoch, Output: cfg.Output, Copy: cfg.Views, History: hub.Projected(cfg.Views), Sessions: g.live,
		Commands: operations, Admit: g.auth.Admit, Origins: origins, Fail: problems.Write, Logger: cfg.Logger, Now: cfg.Now,
		Metrics: cfg.Metrics, Seen: func(m events.Message) { g.live.Seen(m); g.invoke.Seen(m) },
	}); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	agents := agentside.New(agentside.Config{
		Commands: commands, Live: g.live, Verifier: verifier, BindKey: cfg.SandboxKey, Problems: problems,
	})
	if g.public, err = g.publicRoutes(problems, operations); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	if g.agents, err = g.agentRoutes(problems, agents); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	return g, nil
}

// Run makes a gateway and serves until ctx ends.
func Run(ctx context.Context, cfg Config) error {
	g, err := New(cfg) //nolint:contextcheck // it starts nothing; what Run starts ends with ctx
	if err != nil {
		return err
	}
	return g.Run(ctx)
}

// NewCode makes a one-time code that logs a browser in as the person of that name
// in the tokens file. It is good for ten minutes; dev puts it into the fragment of
// the console's URL.
func (g *Gateway) NewCode(name string) string { return g.auth.NewCode(name) }

// Run serves until ctx ends, then lets requests under way finish for a moment. It
// returns when both listeners are closed and nothing runs any more.
func (g *Gateway) Run(ctx context.Context) error {
	servers := []*http.Server{g.server(g.public), g.server(g.agents)}
	agents := connlimit.New(g.cfg.AgentListener, maxAgentConns, connlimit.ByAddress)
	listeners := []net.Listener{g.cfg.Listener, agents}
	tasks, ctx := errgroup.WithContext(ctx)
	for i, s := range servers {
		tasks.Go(func() error {
			if err := s.Serve(listeners[i]); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve %s: %w", listeners[i].Addr(), err)
			}
			return nil
		})
	}
	tasks.Go(func() error { return g.hub.Run(ctx) })
	tasks.Go(func() error { g.tokens.Watch(ctx, g.cfg.Logger); return nil })
	tasks.Go(func() error {
		<-ctx.Done()
		return g.stop(servers) //nolint:contextcheck // ctx is over: stopping has its own time
	})
	return tasks.Wait()
}

// stop ends waits and streams at once, so that only what is short is waited for.
func (g *Gateway) stop(servers []*http.Server) error {
	g.live.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), stopGrace)
	defer cancel()
	var stopping errgroup.Group
	for _, s := range servers {
		stopping.Go(func() error {
			err := s.Shutdown(ctx)
			if errors.Is(err, context.DeadlineExceeded) {
				return s.Close() // whoever is left has been told by the connection's end
			}
			return err
		})
	}
	err := stopping.Wait()
	g.invoke.Stop()
	return err
}

func (g *Gateway) server(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(g.cfg.Logger.Handler(), slog.LevelDebug),
	}
}

// CheckOrigins says what is wrong with a Config's Origins, for who wants to know it
// before anything is opened.
func CheckOrigins(origins []string) error {
	_, err := auth.NewOrigins(origins)
	return err
}

// originsOf is what browsers call an address: nothing where it is every address.
func originsOf(addr net.Addr) []string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || tcp.IP.IsUnspecified() {
		return nil
	}
	return []string{"http://" + net.JoinHostPort(tcp.IP.String(), strconv.Itoa(tcp.Port))}
}
