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
	"github.com/holdfast-io/holdfast/services/holdfast/doctor"
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
	cmd.PersistentPreRunE = func(*cobra.Command, []string) error { return o.Check() }
	cmd.AddCommand(
		operate.Dev(o, version), operate.Serve(version), operate.Ready(), operate.Install(o), operate.NATSConf(), operate.Token(o), operate.Version(o, version),
		operate.Projections(o), doctor.Command(o),
		cli.Demo(o), cli.Runtime(o), cli.Policy(o), cli.Session(o), cli.Approvals(o), cli.Parked(o), cli.Sweep(o), cli.Audit(o), cli.Replay(o),
	)
	strict(cmd)
	return cmd
}

// strict makes a wrong use an error of its own kind everywhere: cobra lets an
// unknown subcommand pass as a wish for help.
func strict(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		strict(c)
	}
	if check := cmd.Args; check != nil {
		cmd.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return cli.Usage(fmt.Errorf("%w; %s", err, c.UseLine()))
			}
			return nil
		}
	}
	if cmd.HasSubCommands() && !cmd.Runnable() {
		cmd.Args = cobra.ArbitraryArgs
		cmd.RunE = func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return cli.Usage(fmt.Errorf("there is no command %q in %s; see %s --help", args[0], c.CommandPath(), c.CommandPath()))
			}
			return c.Help()
		}
	}
}
