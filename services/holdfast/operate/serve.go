package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/migrations"
	"github.com/holdfast-io/holdfast/services/gateway"
	"github.com/holdfast-io/holdfast/services/holdfast/cli"
	"github.com/holdfast-io/holdfast/services/holdfast/dev"
	"github.com/holdfast-io/holdfast/services/holdfast/parts"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/clusterfile"
	"github.com/holdfast-io/holdfast/services/internal/install"
	"github.com/holdfast-io/holdfast/services/internal/keyfile"
	"github.com/holdfast-io/holdfast/services/internal/ops"
	"github.com/holdfast-io/holdfast/services/internal/postgres"
	"github.com/holdfast-io/holdfast/services/workload"
)

// The environment of serve and install, beside those of NATS (package broker) and Postgres.
const (
	// EnvKeyFile is the key for sandboxes: the private one for the workload service,
	// for the gateway the public one will do.
	EnvKeyFile = "HOLDFAST_KEY_FILE"
	// EnvTokensFile is the people's tokens.
	EnvTokensFile = "HOLDFAST_TOKENS_FILE"
)

// Serve is `holdfast serve SERVICE`.
func Serve(version string) *cobra.Command {
	var s served
	cmd := &cobra.Command{
		Use:   "serve SERVICE",
		Short: "Run one service: " + strings.Join(parts.Services(), ", "),
		Long: "Runs one service against a NATS and a Postgres that are installed already (holdfast install). Any number of\n" +
			"replicas of each may run, but one host of a name: sandboxes are processes of the host and end with it.\n\n" +
			"  HOLDFAST_NATS_URL, HOLDFAST_NATS_PASSWORD_<USER>   NATS (several, comma separated), and the service's own password there\n" +
			"  HOLDFAST_POSTGRES_URL                              Postgres; not for the host\n" +
			"  HOLDFAST_KEY_FILE                                  workload: the key for sandboxes; gateway, host: its public half\n" +
			"  HOLDFAST_TOKENS_FILE                               gateway: the people's tokens\n" +
			"  HOLDFAST_ORIGINS                                   gateway: --origin, comma separated\n" +
			"  HOLDFAST_SANDBOXD                                  host: the sandboxd binary\n" +
			"  HOLDFAST_CLUSTER_FILE, KUBECONFIG                  workload: where sandboxes are Pods of a cluster, what the installation\n" +
			"                                                     says of itself, and the API server (in a Pod: its service account's)\n\n" +
			"With --health-addr a service answers /healthz, /readyz and /metrics there; the gateway does so at --addr anyhow.\n" +
			"'holdfast ready URL' asks.",
		Example: "  holdfast serve gateway --addr 0.0.0.0:7070 --agents-addr 0.0.0.0:7071\n" +
			"  holdfast serve host --sandboxes /var/lib/holdfast --listen 0.0.0.0:7072 --advertise http://host:7072 --agents-url http://gateway:7071\n" +
			"  holdfast serve workload",
		Args: cobra.ExactArgs(1), ValidArgs: parts.Services(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(parts.Services(), args[0]) {
				return cli.Usage(fmt.Errorf("there is no service %q; there are %s", args[0], strings.Join(parts.Services(), ", ")))
			}
			s.version = version
			return s.run(cmd, args[0])
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.healthAddr, "health-addr", "", "address of /healthz, /readyz and /metrics of the process")
	f.StringVar(&s.addr, "addr", dev.DefaultAddr, "gateway: address of the API and the console")
	originFlag(cmd, &s.origins, "gateway: ")
	f.StringVar(&s.agentsAddr, "agents-addr", "", "gateway: TCP address for what agents ask, by way of hosts' --agents-url")
	f.StringVar(&s.agentSocket, "agent-socket", "", "gateway, and a host on the same machine: the unix socket that sandboxes reach, in a directory of its own")
	f.StringVar(&s.hostName, "host", workload.DefaultHost, "workload and host: the host's name")
	f.StringVar(&s.dataDir, "sandboxes", "", "host: directory for sandboxes and workspaces")
	f.StringVar(&s.sandboxd, "sandboxd", os.Getenv("HOLDFAST_SANDBOXD"), "host: the sandboxd binary")
	f.StringVar(&s.isolation, "isolation", "namespaces", "host: namespaces, gvisor or none")
	cli.Words(cmd, "isolation", "namespaces", "gvisor", "none")
	f.StringSliceVar(&s.share, "share", nil, "host: directories that sandboxes see, read-only")
	f.StringVar(&s.listen, "listen", "127.0.0.1:7072", "host: TCP address at which the gateway and the runner reach sandboxes")
	f.StringVar(&s.advertise, "advertise", "", "host: that address as the others reach it, http://host:port; the default is where it listens")
	f.StringSliceVar(&s.agentsURL, "agents-url", nil, "host: gateways' --agents-addr, http://host:port; several are used in turn. workload, with a cluster file: as sandboxes reach it, instead of the file's")
	f.StringVar(&s.clusterFile, "cluster-file", os.Getenv(clusterfile.EnvFile), "workload: sandboxes are Pods of the cluster that this file speaks of; without one a host runs them")
	f.DurationVar(&s.awaitInstall, "await-install", 0, "all but the host: how long to wait for 'holdfast install' to be done; 0 fails where it isn't")
	s.observing.flags(cmd)
	return cmd
}

// served is what the flags of serve say.
type served struct {
	addr, agentsAddr, agentSocket, healthAddr, version        string
	hostName, dataDir, sandboxd, isolation, listen, advertise string
	share, agentsURL, origins                                 []string
	clusterFile                                               string
	awaitInstall                                              time.Duration
	observing                                                 observing
}

func (s served) run(cmd *cobra.Command, service string) (err error) {
	ctx := cmd.Context()
	log, err := s.observing.logger(cmd.ErrOrStderr(), slog.LevelInfo)
	if err != nil {
		return err
	}
	stop, err := s.observing.profiles(ctx, log)
	if err != nil {
		return err
	}
	defer stop()
	h := &health{}
	env := parts.Env{
		Connect: func(ctx context.Context, u broker.User) (*nats.Conn, error) {
			nc, err := connectNATS(ctx, u, log)
			if err != nil {
				return nil, err
			}
			if s.awaitInstall > 0 {
				if err := awaitInstall(ctx, nc, s.awaitInstall, log); err != nil {
					nc.Close()
					return nil, err
				}
			}
			h.uses(nc)
			return nc, nil
		},
		Logger: log, Metrics: parts.NewMetrics(s.version), HostName: s.hostName,
	}
	if service != "host" {
		dsn := os.Getenv(postgres.EnvURL)
		if dsn == "" {
			return fmt.Errorf("set %s to the Postgres that holds the views", postgres.EnvURL)
		}
		if env.Pool, err = parts.OpenPool(ctx, dsn); err != nil {
			return err
		}
		defer env.Pool.Close()
	}
	if err := s.open(ctx, service, &env, h); err != nil {
		return err
	}
	if s.healthAddr != "" {
		listening, stop := context.WithCancel(ctx)
		said, err := ops.Listen(listening, s.healthAddr, ops.Config{Metrics: env.Metrics.Registry, Ready: h.check, Logger: log})
		if err != nil {
			stop()
			return err
		}
		defer said.Wait()
		defer stop()
	}
	fmt.Fprintf(cmd.OutOrStdout(), "holdfast %s serves\n", service)
	err = env.All()[service](ctx)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// open opens what only this service needs.
func (s served) open(ctx context.Context, service string, env *parts.Env, h *health) (err error) {
	switch service {
	case "workload":
		if env.Key, err = keyfile.Private(os.Getenv(EnvKeyFile)); err != nil {
			return fmt.Errorf("%s: %w", EnvKeyFile, err)
		}
		env.Kubernetes, err = s.kubernetes(ctx)
	case "gateway":
		err = s.gateway(ctx, env)
	case "host":
		err = s.host(ctx, env, h)
	}
	return err
}

// gateway opens what only the gateway needs.
func (s served) gateway(ctx context.Context, env *parts.Env) error {
	if err := gateway.CheckOrigins(s.origins); err != nil {
		return cli.Usage(err)
	}
	var lc net.ListenConfig
	key, err := keyfile.Public(os.Getenv(EnvKeyFile))
	if err != nil {
		return fmt.Errorf("%s: %w", EnvKeyFile, err)
	}
	var agents net.Listener
	switch {
	case s.agentsAddr != "" && s.agentSocket != "":
		return cli.Usage(errors.New("the gateway takes --agents-addr or --agent-socket, not both"))
	case s.agentsAddr != "":
		agents, err = lc.Listen(ctx, "tcp", s.agentsAddr)
	case s.agentSocket != "":
		agents, err = dev.ListenForAgents(s.agentSocket)
	default:
		return cli.Usage(errors.New("the gateway needs --agents-addr, or --agent-socket where the host is on this machine"))
	}
	if err != nil {
		return err
	}
	l, err := lc.Listen(ctx, "tcp", s.addr)
	if err != nil {
		return errors.Join(err, agents.Close())
	}
	env.Gateway = parts.Gateway{Listener: l, Agents: agents, Origins: s.origins, TokensFile: os.Getenv(EnvTokensFile), Key: key}
	return nil
}

// host opens what only the host needs.
func (s served) host(ctx context.Context, env *parts.Env, h *health) error {
	key, err := keyfile.Public(os.Getenv(EnvKeyFile))
	if err != nil {
		return fmt.Errorf("%s: %w", EnvKeyFile, err)
	}
	if s.dataDir == "" || (len(s.agentsURL) == 0) == (s.agentSocket == "") {
		return cli.Usage(errors.New("the host needs --sandboxes, and --agents-url, or --agent-socket where the gateway is on this machine"))
	}
	dir, err := filepath.Abs(s.dataDir)
	if err != nil {
		return err
	}
	s.dataDir = dir
	var agents net.Listener
	if s.agentSocket == "" {
		s.agentSocket = filepath.Join(s.dataDir, "agent", dev.AgentSocket)
		if agents, err = dev.ListenForAgents(s.agentSocket); err != nil {
			return err
		}
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", s.listen)
	if err != nil {
		if agents != nil {
			err = errors.Join(err, agents.Close())
		}
		return err
	}
	h.waits()
	env.Host = parts.Host{
		Local:    workload.Local{DataDir: s.dataDir, SandboxdPath: s.sandboxd, AgentSocket: s.agentSocket, Isolation: s.isolation, SharePaths: s.share},
		Listener: l, URL: cmp.Or(s.advertise, "http://"+l.Addr().String()), Key: key, Agents: agents, Gateways: s.agentsURL, Ready: h.ready,
	}
	return nil
}

func connectNATS(ctx context.Context, u broker.User, log *slog.Logger) (*nats.Conn, error) {
	url := os.Getenv(broker.EnvURL)
	if url == "" {
		return nil, fmt.Errorf("set %s to the NATS that holds the log", broker.EnvURL)
	}
	return broker.Connect(ctx, broker.Client{URL: url, User: u, Password: os.Getenv(broker.PasswordVariable(u)), Logger: log})
}

// Install is `holdfast install`.
func Install(o *cli.Options) *cobra.Command {
	var (
		replicas int
		logBytes int64
		key      string
	)
	cmd := &cobra.Command{
		Use: "install", Short: "Make the streams and consumers on NATS and the schema in Postgres; safe to repeat", Args: cobra.NoArgs,
		Long: "Makes what services find made: streams, consumers and the log's first message, as the NATS user installer\n" +
			"(HOLDFAST_NATS_URL, HOLDFAST_NATS_PASSWORD_INSTALLER), the schema in HOLDFAST_POSTGRES_URL, and with\n" +
			"--key-file the key for sandboxes where there is none. What is there already stays, but that streams are given\n" +
			"more room where --log-max-bytes is more than they have.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, log := cmd.Context(), plainLogger(cmd.ErrOrStderr())
			nc, err := connectNATS(ctx, broker.UserInstaller, log)
			if err != nil {
				return err
			}
			defer nc.Close()
			js, err := jetstream.New(nc)
			if err != nil {
				return err
			}
			genesis, err := install.RunWith(ctx, js, install.Options{
				Replicas: replicas, LogMaxBytes: logBytes, Logger: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)),
			})
			if err != nil {
				return err
			}
			if err := migrations.Up(ctx, os.Getenv(postgres.EnvURL)); err != nil {
				return err
			}
			if key != "" {
				if _, err := keyfile.Ensure(key); err != nil {
					return err
				}
			}
			return o.Show(cmd.OutOrStdout(), genesis, func(w io.Writer) {
				fmt.Fprintf(w, "installed: log %s, epoch %s\n", genesis.LogID, genesis.Epoch)
			})
		},
	}
	cmd.Flags().IntVar(&replicas, "replicas", 1, "of the streams; 3 on a cluster")
	cmd.Flags().Int64Var(&logBytes, "log-max-bytes", 0, "what the log, and the contents beside it, may take each on a server's disk: at 85 % of it only what\n"+
		"ends something is accepted. Streams that are there are given more, never less; 0 is no limit for new ones")
	cmd.Flags().StringVar(&key, "key-file", "", "make the key for sandboxes here, with its public half beside it (.pub)")
	return cmd
}
