// Package parts puts services together: what one needs of NATS and Postgres, and
// how each is run. dev starts all of them in one process, serve one of them.
package parts

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"net"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/blob/natsblob"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/eventlog/bloblog"
	"github.com/holdfast-io/holdfast/events/eventlog/natslog"
	"github.com/holdfast-io/holdfast/events/output"
	"github.com/holdfast-io/holdfast/events/output/bloboutput"
	"github.com/holdfast-io/holdfast/events/output/natsoutput"
	"github.com/holdfast-io/holdfast/migrations"
	"github.com/holdfast-io/holdfast/projections"
	"github.com/holdfast-io/holdfast/services/gateway"
	"github.com/holdfast-io/holdfast/services/gateway/console"
	"github.com/holdfast-io/holdfast/services/internal/brake"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/metered"
	"github.com/holdfast-io/holdfast/services/internal/reactor"
	"github.com/holdfast-io/holdfast/services/internal/serving"
	"github.com/holdfast-io/holdfast/services/internal/views"
	"github.com/holdfast-io/holdfast/services/policy"
	"github.com/holdfast-io/holdfast/services/runner"
	"github.com/holdfast-io/holdfast/services/session"
	"github.com/holdfast-io/holdfast/services/workload"
)

// Connector gives the NATS connection of a user.
type Connector func(ctx context.Context, user broker.User) (*nats.Conn, error)

// Env is what all services of a process share.
type Env struct {
	Connect Connector
	// Pool is the Postgres of the views, as OpenPool gives it.
	Pool   *pgxpool.Pool
	Logger *slog.Logger
	// Metrics are the process's; nil keeps none.
	Metrics *Metrics
	// Key signs for sandboxes; for the workload service.
	Key ed25519.PrivateKey
	// HostName is the host of the sandboxes; for the workload service and the host.
	// Empty is workload.DefaultHost.
	HostName string
	// Kubernetes is for the workload service where sandboxes are Pods; nil where a host
	// runs them.
	Kubernetes *workload.Kubernetes
	// Host is what only the host needs.
	Host Host
	// Gateway is where the gateway serves.
	Gateway Gateway
	// LogDir is where NATS keeps the log's files, where that is on this machine: the
	// brake watches their file system. Empty watches only what NATS reports.
	LogDir string
}

// Metrics are the metrics of a process: one registry for all services in it.
type Metrics struct {
	Registry *prometheus.Registry
	reactors *reactor.Metrics
	brake    *brake.Metrics
	metered  *metered.Metrics
}

// NewMetrics makes a registry with the metrics of the process itself, and the version
// that it is of.
func NewMetrics(version string) *Metrics {
	r := prometheus.NewRegistry()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "holdfast", Name: "build_info", Help: "1, labelled by the version that runs.", ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), build)
	return &Metrics{Registry: r, reactors: reactor.NewMetrics(r), brake: brake.NewMetrics(r), metered: metered.New(r)}
}

// Gateway is what only the gateway needs.
type Gateway struct {
	// Listener is for people, Agents for what asks from sandboxes.
	Listener, Agents net.Listener
	// Origins are what browsers call the gateway; see gateway.Config.
	Origins []string
	// TokensFile holds the people's tokens.
	TokensFile string
	// Key verifies what sandboxes present: the public half of Env.Key.
	Key ed25519.PublicKey
	// Made is told of the gateway before it serves; may be nil.
	Made func(*gateway.Gateway)
}

// base is a service's own connection with the log on it.
type base struct {
	nc     *nats.Conn
	log    eventlog.Log
	output output.Stream
	epoch  string
	reader *projections.Reader
	// brake is what the log stands behind.
	brake *brake.Brake
	// stopBrake ends its measuring.
	stopBrake func()
}

// close ends what the base has opened.
func (b base) close() {
	if b.stopBrake != nil {
		b.stopBrake()
	}
	if b.reader != nil {
		b.reader.Close()
	}
	b.nc.Close()
}

// OpenPool opens connections to the live views of a Postgres. It does not wait for
// Postgres to be there.
func OpenPool(ctx context.Context, dsn string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("URL of Postgres: %w", err)
	}
	cfg.ConnConfig.RuntimeParams["search_path"] = migrations.SearchPath(migrations.Views)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connections to Postgres: %w", err)
	}
	return pool, nil
}

func (e Env) base(ctx context.Context, user broker.User) (base, error) {
	nc, err := e.Connect(ctx, user)
	if err != nil {
		return base{}, err
	}
	b, err := onConnection(ctx, nc)
	if err == nil && user != broker.UserProjector { // it appends nothing
		err = e.brakeOn(ctx, &b)
	}
	if err == nil {
		b.reader, err = projections.NewReader(projections.ReaderConfig{
			Pool: e.Pool, Epoch: b.epoch, Log: b.log, Logger: e.Logger.With("service", string(user)),
		})
	}
	if err != nil {
		b.nc = nc
		b.close()
		return base{}, fmt.Errorf("%s: %w", user, err)
	}
	return b, nil
}

// brakeOn puts the log behind a brake, which has measured once when this returns: a
// service that starts on a full disk is to know it before its first command.
func (e Env) brakeOn(ctx context.Context, b *base) error {
	js, err := jetstream.New(b.nc)
	if err != nil {
		return err
	}
	cfg := brake.Config{Sources: []brake.Source{brake.JetStream(js)}, Logger: e.Logger}
	if e.LogDir != "" {
		cfg.Sources = append(cfg.Sources, brake.Disk(e.LogDir))
	}
	if e.Metrics != nil {
		cfg.Metrics = e.Metrics.brake
	}
	if b.brake, err = brake.New(cfg); err != nil {
		return err
	}
	b.brake.Measure(ctx)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.brake.Run(ctx)
	}()
	b.stopBrake = func() { cancel(); <-done }
	b.log = b.brake.Log(b.log)
	return nil
}

// OpenLog gives the log on a connection, which stays the caller's to close.
func OpenLog(nc *nats.Conn) (eventlog.Log, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	log, err := natslog.New(js, nc, natslog.Options{})
	if err != nil {
		return nil, err
	}
	blobs, err := natsblob.New(js, nc, natsblob.Beside)
	if err != nil {
		return nil, err
	}
	return bloblog.New(log, blobs), nil
}

// Server is a NATS that knows the users' passwords itself.
type Server interface {
	Connect(ctx context.Context, u broker.User) (*nats.Conn, error)
}

// ReadLog gives the log of a server, for reading; call done afterwards.
func ReadLog(ctx context.Context, s Server) (log eventlog.Log, done func(), err error) {
	nc, err := s.Connect(ctx, broker.UserProjector)
	if err != nil {
		return nil, nil, err
	}
	if log, err = OpenLog(nc); err != nil {
		nc.Close()
		return nil, nil, err
	}
	return log, nc.Close, nil
}

func openOutput(js jetstream.JetStream, nc *nats.Conn) (output.Stream, error) {
	out, err := natsoutput.New(js, nc, natsoutput.Options{})
	if err != nil {
		return nil, err
	}
	blobs, err := natsblob.New(js, nc, natsblob.Output)
	if err != nil {
		return nil, err
	}
	return bloboutput.New(out, blobs), nil
}

func onConnection(ctx context.Context, nc *nats.Conn) (base, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return base{}, err
	}
	log, err := OpenLog(nc)
	if err != nil {
		return base{}, err
	}
	out, err := openOutput(js, nc)
	if err != nil {
		return base{}, err
	}
	info, err := log.Info(ctx)
	if err != nil {
		return base{}, err
	}
	return base{nc: nc, log: log, output: out, epoch: info.Genesis.Epoch}, nil
}

func (e Env) serving(b base, service string) serving.Config {
	cfg := serving.Config{
		NC: b.nc, Log: b.log, Epoch: b.epoch, Copy: b.reader, Views: views.Of(b.reader), Logger: e.Logger.With("service", service),
	}
	if e.Metrics != nil {
		cfg.Reactors, cfg.Metered = e.Metrics.reactors, e.Metrics.metered
		cfg.Log = cfg.Metered.Log(events.Service(service), b.log)
	}
	return cfg
}

// Services lists what Serve takes, in the order in which dev starts them.
func Services() []string {
	return []string{"host", "projector", "session", "policy", "workload", "runner", "gateway"}
}

// All gives what runs each service until ctx ends, by its name.
func (e Env) All() map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"host": e.RunHost, "projector": e.Projector, "session": e.Session, "policy": e.Policy,
		"workload": e.Workload, "runner": e.Runner, "gateway": e.RunGateway,
	}
}

// Session runs the session service until ctx ends.
func (e Env) Session(ctx context.Context) error {
	b, err := e.base(ctx, broker.UserSession)
	if err != nil {
		return err
	}
	defer b.close()
	return session.Run(ctx, e.serving(b, "session"))
}

// Policy runs the policy service until ctx ends.
func (e Env) Policy(ctx context.Context) error {
	b, err := e.base(ctx, broker.UserPolicy)
	if err != nil {
		return err
	}
	defer b.close()
	return policy.Run(ctx, e.serving(b, "policy"))
}

// Workload runs the workload service until ctx ends.
func (e Env) Workload(ctx context.Context) error {
	b, err := e.base(ctx, broker.UserWorkload)
	if err != nil {
		return err
	}
	defer b.close()
	return workload.Run(ctx, workload.Config{
		Config: e.serving(b, "workload"), Key: e.Key, Runtimes: b.reader, Host: e.HostName,
		Kubernetes: e.Kubernetes,
	})
}

// Runner runs the runner service until ctx ends.
func (e Env) Runner(ctx context.Context) error {
	b, err := e.base(ctx, broker.UserRunner)
	if err != nil {
		return err
	}
	defer b.close()
	return runner.Run(ctx, runner.Config{Config: e.serving(b, "runner"), Output: b.output})
}

// RunGateway runs the gateway until ctx ends.
func (e Env) RunGateway(ctx context.Context) error {
	b, err := e.base(ctx, broker.UserGateway)
	if err != nil {
		return err
	}
	defer b.close()
	var registry *prometheus.Registry
	if e.Metrics != nil {
		registry = e.Metrics.Registry
	}
	g, err := gateway.New(gateway.Config{ //nolint:contextcheck // it starts nothing; what Run starts ends with ctx
		Metrics: registry,
		NC:      b.nc, Log: b.log, Output: b.output, Epoch: b.epoch, Views: b.reader, TokensFile: e.Gateway.TokensFile,
		Storage: b.brake.State, SandboxKey: e.Gateway.Key, Listener: e.Gateway.Listener, AgentListener: e.Gateway.Agents, Origins: e.Gateway.Origins,
		Console: console.Files(),
		Logger:  e.Logger.With("service", "gateway"),
	})
	if err != nil {
		return err
	}
	if e.Gateway.Made != nil {
		e.Gateway.Made(g)
	}
	return g.Run(ctx)
}

// Projector runs the projections of EVENTS and OUTPUT until ctx ends.
func (e Env) Projector(ctx context.Context) error {
	b, err := e.base(ctx, broker.UserProjector)
	if err != nil {
		return err
	}
	defer b.close()
	log := e.Logger.With("service", "projector")
	decisions, err := projections.NewProjector(projections.Config{Log: b.log, Pool: e.Pool, Logger: log})
	if err != nil {
		return err
	}
	said, err := projections.NewOutputProjector(projections.OutputConfig{Stream: b.output, Epoch: b.epoch, Pool: e.Pool, Logger: log})
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return decisions.Run(ctx) })
	g.Go(func() error { return said.Run(ctx) })
	return g.Wait()
}
