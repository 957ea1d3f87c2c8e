package operate

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/projections"
	"github.com/holdfast-io/holdfast/services/holdfast/cli"
	"github.com/holdfast-io/holdfast/services/holdfast/dev"
	"github.com/holdfast-io/holdfast/services/holdfast/parts"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/postgres"
)

// Projections is `holdfast projections …`.
func Projections(o *cli.Options) *cobra.Command {
	var compare bool
	rebuild := &cobra.Command{
		Use: "rebuild", Short: "Build the views again from the log, compare, and swap them in", Args: cobra.NoArgs,
		Long: "With HOLDFAST_NATS_URL it works on the installation that runs there, while it runs. Without, on the data of\n" +
			"a dev on this machine, which has to be stopped.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var report projections.Report
			use := func(ctx context.Context, log eventlog.Log, pool *pgxpool.Pool) (err error) {
				report, err = projections.Rebuild(ctx, projections.RebuildConfig{
					Log: log, Pool: pool, CompareOnly: compare, Logger: plainLogger(cmd.ErrOrStderr()),
				})
				return err
			}
			if err := onProjections(cmd, o, use); err != nil {
				return err
			}
			return o.Show(cmd.OutOrStdout(), report, func(w io.Writer) { tell(w, report) })
		},
	}
	rebuild.Flags().BoolVar(&compare, "compare", false, "only compare; leave the live views in place")
	cmd := &cobra.Command{Use: "projections", Short: "Look after the views in Postgres"}
	cmd.AddCommand(rebuild)
	return cmd
}

func onProjections(cmd *cobra.Command, o *cli.Options, use func(context.Context, eventlog.Log, *pgxpool.Pool) error) error {
	ctx, log := cmd.Context(), plainLogger(cmd.ErrOrStderr())
	if os.Getenv(broker.EnvURL) == "" {
		dir, err := o.Directory()
		if err != nil {
			return err
		}
		return dev.Offline(ctx, dev.Config{DataDir: dir, SyncAlways: true, PostgresURL: os.Getenv(postgres.EnvURL), Logger: log}, use)
	}
	nc, err := connectNATS(ctx, broker.UserProjector, log)
	if err != nil {
		return err
	}
	defer nc.Close()
	decisions, err := parts.OpenLog(nc)
	if err != nil {
		return err
	}
	pool, err := parts.OpenPool(ctx, os.Getenv(postgres.EnvURL))
	if err != nil {
		return err
	}
	defer pool.Close()
	return use(ctx, decisions, pool)
}

func tell(w io.Writer, r projections.Report) {
	fmt.Fprintf(w, "built from the log up to sequence %d in %s\n", r.Seq, r.Took.Round(time.Millisecond))
	for _, t := range r.Tables {
		fmt.Fprintf(w, "  %-12s %d rows\n", t.Name, t.Rows)
	}
	switch {
	case !r.Compared:
		fmt.Fprintf(w, "the live views could not be compared: %s\n", r.Mismatch)
	case len(r.Differences) == 0:
		fmt.Fprintln(w, "the live views were the same")
	default:
		for _, d := range r.Differences {
			fmt.Fprintf(w, "  differs: %v\n", d)
		}
	}
	if r.Swapped {
		fmt.Fprintln(w, "what was built is live now")
	}
}
