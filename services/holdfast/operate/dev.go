package operate

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/holdfast-io/holdfast/services/gateway"
	"github.com/holdfast-io/holdfast/services/holdfast/cli"
	"github.com/holdfast-io/holdfast/services/holdfast/dev"
	"github.com/holdfast-io/holdfast/services/internal/postgres"
)

// Dev is `holdfast dev`.
func Dev(o *cli.Options, version string) *cobra.Command {
	cfg := dev.Config{Version: version, SyncAlways: true}
	var look observing
	cmd := &cobra.Command{
		Use: "dev", Short: "Run everything in one process, on this machine", Args: cobra.NoArgs,
		Long: "Starts an embedded NATS, its own Postgres (or the one in HOLDFAST_POSTGRES_URL), all services, the local\n" +
			"driver and the console. What was accepted survives a crash; the next start goes on with it.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if cfg.DataDir, err = o.Directory(); err != nil {
				return err
			}
			if !slices.Contains([]string{"namespaces", "gvisor", "none"}, cfg.Isolation) {
				return cli.Usage(fmt.Errorf("isolation %q: use namespaces, gvisor or none", cfg.Isolation))
			}
			if err := gateway.CheckOrigins(cfg.Origins); err != nil {
				return cli.Usage(err)
			}
			cfg.PostgresURL = os.Getenv(postgres.EnvURL)
			if cfg.Logger, err = look.logger(cmd.ErrOrStderr(), slog.LevelWarn); err != nil {
				return err
			}
			stop, err := look.profiles(cmd.Context(), cfg.Logger)
			if err != nil {
				return err
			}
			defer stop()
			return runDev(cmd.Context(), cmd.OutOrStdout(), cfg)
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Addr, "addr", dev.DefaultAddr, "address of the API and the console")
	originFlag(cmd, &cfg.Origins, "")
	f.BoolVar(&cfg.Reset, "reset", false, "start with an empty log (tokens stay)")
	f.StringVar(&cfg.Isolation, "isolation", "namespaces", "of sandboxes: namespaces, gvisor (with runsc in the PATH), or none (agents run as plain processes)")
	cli.Words(cmd, "isolation", "namespaces", "gvisor", "none")
	look.flags(cmd)
	return cmd
}

func runDev(ctx context.Context, w io.Writer, cfg dev.Config) error {
	fmt.Fprintf(w, "Holdfast %s starts on %s\n", cfg.Version, cfg.DataDir)
	begin := time.Now()
	cfg.Progress = progress(w)
	p, err := dev.Start(ctx, cfg)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "  ready in %s\n\n%s", time.Since(begin).Round(time.Millisecond), p.Banner())
	select {
	case <-ctx.Done():
		fmt.Fprintln(w, "\nstopping …")
	case <-p.Done():
	}
	if err := p.Stop(); err != nil {
		return err
	}
	fmt.Fprintln(w, "stopped; everything accepted is kept")
	return nil
}

// progress shows each step while it lasts, where somebody looks, and when it is done.
func progress(w io.Writer) func(step string, took time.Duration) {
	f, ok := w.(*os.File)
	looked := ok && term.IsTerminal(int(f.Fd()))
	return func(step string, took time.Duration) {
		switch {
		case took > 0 && looked:
			fmt.Fprintf(w, "\r  ✓ %-16s %s\n", step, took.Round(time.Millisecond))
		case took > 0:
			fmt.Fprintf(w, "  ✓ %-16s %s\n", step, took.Round(time.Millisecond))
		case looked:
			fmt.Fprintf(w, "  … %s", step)
		}
	}
}
