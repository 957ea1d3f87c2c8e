package operate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/migrations"
	"github.com/holdfast-io/holdfast/services/holdfast/cli"
	"github.com/holdfast-io/holdfast/services/holdfast/dev"
	"github.com/holdfast-io/holdfast/services/holdfast/parts"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/install"
	"github.com/holdfast-io/holdfast/services/internal/keyfile"
	"github.com/holdfast-io/holdfast/services/internal/postgres"
	"github.com/holdfast-io/holdfast/services/workload"
)

// The environment of serve and install, beside HOLDFAST_POSTGRES_URL.
const (
	// EnvNATSURL is the NATS server, or several, comma separated. The password of a
	// service's user is in HOLDFAST_NATS_PASSWORD_<USER>.
	EnvNATSURL = "HOLDFAST_NATS_URL"
	// EnvKeyFile is the key for sandboxes: the private one for the workload service,
	// for the gateway the public one will do.
	EnvKeyFile = "HOLDFAST_KEY_FILE"
	// EnvTokensFile is the people's tokens.
	EnvTokensFile = "HOLDFAST_TOKENS_FILE"
)

// Serve is `holdfast serve SERVICE`.
func Serve(version string) *cobra.Command {
	var (
		s       served
		verbose bool
	)
	cmd := &cobra.Command{
		Use:   "serve SERVICE",
		Short: "Run one service: " + strings.Join(parts.Services(), ", "),
		Long: "Runs one service against a NATS and a Postgres that are installed already (holdfast install).\n\n" +
			"  HOLDFAST_NATS_URL, HOLDFAST_NATS_PASSWORD_<USER>   NATS, and the service's own password there\n" +
			"  HOLDFAST_POSTGRES_URL                              Postgres\n" +
			"  HOLDFAST_KEY_FILE                                  workload: the key for sandboxes; gateway: its public half\n" +
			"  HOLDFAST_TOKENS_FILE                               gateway: the people's tokens",
		Args: cobra.ExactArgs(1), ValidArgs: parts.Services(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(parts.Services(), args[0]) {
				return cli.Usage(fmt.Errorf("there is no service %q; there are %s", args[0], strings.Join(parts.Services(), ", ")))
			}
			s.version = version
			return s.run(cmd, args[0], verbose)
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.addr, "addr", dev.DefaultAddr, "gateway: address of the API and the console")
	f.StringVar(&s.agentSocket, "agent-socket", "", "gateway and workload: the unix socket that sandboxes reach, in a directory of its own")
	f.StringVar(&s.dataDir, "sandboxes", "", "workload: directory for sandboxes and workspaces")
	f.StringVar(&s.sandboxd, "sandboxd", os.Getenv("HOLDFAST_SANDBOXD"), "workload: the sandboxd binary")
	f.StringVar(&s.isolation, "isolation", "namespaces", "workload: namespaces or none")
	f.BoolVarP(&verbose, "verbose", "v", false, "log everything")
	return cmd
}

// served is what the flags of serve say.
type served struct {
	addr, agentSocket, dataDir, sandboxd, isolation, version string
}

func (s served) run(cmd *cobra.Command, service string, verbose bool) error {
	ctx, log := cmd.Context(), logger(cmd.ErrOrStderr(), verbose)
	dsn := os.Getenv(postgres.EnvURL)
	if dsn == "" {
		return fmt.Errorf("set %s to the Postgres that holds the views", postgres.EnvURL)
	}
	pool, err := parts.OpenPool(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	env := parts.Env{
		Connect: func(ctx context.Context, u broker.User) (*nats.Conn, error) { return connectNATS(ctx, u, log) },
		Pool:    pool, Logger: log, Metrics: parts.NewMetrics(),
		Local: workload.Local{DataDir: s.dataDir, SandboxdPath: s.sandboxd, AgentSocket: s.agentSocket, Isolation: s.isolation},
	}
	switch service {
	case "workload":
		if env.Key, err = keyfile.Private(os.Getenv(EnvKeyFile)); err != nil {
			return fmt.Errorf("%s: %w", EnvKeyFile, err)
		}
	case "gateway":
		if err := s.listen(ctx, &env); err != nil {
			return err
		}
	}
	fmt.Fprintf(cmd.OutOrStdout(), "holdfast %s serves\n", service)
	err = env.All()[service](ctx)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (s served) listen(ctx context.Context, env *parts.Env) error {
	if s.agentSocket == "" {
		return errors.New("the gateway needs --agent-socket")
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", s.addr)
	if err != nil {
		return err
	}
	agents, err := dev.ListenForAgents(filepath.Dir(s.agentSocket))
	if err != nil {
		return errors.Join(err, l.Close())
	}
	key, err := keyfile.Public(os.Getenv(EnvKeyFile))
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", EnvKeyFile, err), l.Close(), agents.Close())
	}
	env.Gateway = parts.Gateway{Listener: l, Agents: agents, TokensFile: os.Getenv(EnvTokensFile), Key: key}
	return nil
}

func connectNATS(ctx context.Context, u broker.User, log *slog.Logger) (*nats.Conn, error) {
	url := os.Getenv(EnvNATSURL)
	if url == "" {
		return nil, fmt.Errorf("set %s to the NATS that holds the log", EnvNATSURL)
	}
	return broker.Connect(ctx, broker.Client{URL: url, User: u, Password: os.Getenv(broker.PasswordVariable(u)), Logger: log})
}

// Install is `holdfast install`.
func Install() *cobra.Command {
	var (
		replicas int
		key      string
	)
	cmd := &cobra.Command{
		Use: "install", Short: "Make the streams and consumers on NATS and the schema in Postgres; safe to repeat", Args: cobra.NoArgs,
		Long: "Makes what services find made: streams, consumers and the log's first message, as the NATS user installer\n" +
			"(HOLDFAST_NATS_URL, HOLDFAST_NATS_PASSWORD_INSTALLER), the schema in HOLDFAST_POSTGRES_URL, and with\n" +
			"--key-file the key for sandboxes where there is none. What is there already stays.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, log := cmd.Context(), logger(cmd.ErrOrStderr(), false)
			nc, err := connectNATS(ctx, broker.UserInstaller, log)
			if err != nil {
				return err
			}
			defer nc.Close()
			js, err := jetstream.New(nc)
			if err != nil {
				return err
			}
			genesis, err := install.RunWith(ctx, js, install.Options{Replicas: replicas})
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
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "installed: log %s, epoch %s\n", genesis.LogID, genesis.Epoch)
			return err
		},
	}
	cmd.Flags().IntVar(&replicas, "replicas", 1, "of the streams; 3 on a cluster")
	cmd.Flags().StringVar(&key, "key-file", "", "make the key for sandboxes here, with its public half beside it (.pub)")
	return cmd
}
