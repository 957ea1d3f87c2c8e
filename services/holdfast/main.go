// Holdfast is the one binary: `holdfast dev` runs the whole control plane in one
// process, `holdfast serve` one service of it, and everything else is its client.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/services/holdfast/cli"
	"github.com/holdfast-io/holdfast/services/holdfast/operate"
)

// version is set by the build.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	if !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "holdfast:", cli.Explain(err))
	}
	os.Exit(cli.ExitCode(err))
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "holdfast",
		Short:         "Sessions for agents: sandboxes, policies, approvals, and one log that replays it all",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version,
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return cli.Usage(err) })
	o := &cli.Options{}
	o.Flags(cmd)
	cmd.AddCommand(
		operate.Dev(o, version), operate.Serve(version), operate.Install(), operate.Token(o), operate.Version(version),
		operate.Projections(o), operate.Doctor(o),
		cli.Demo(o), cli.Runtime(o), cli.Policy(o), cli.Session(o), cli.Approvals(o), cli.Audit(o), cli.Replay(o),
	)
	return cmd
}
