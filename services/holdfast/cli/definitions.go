package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/api/apiclient"
)

// showCommand is `show NAME` of a kind of definition: the whole, as it can be
// applied again.
func showCommand[T any](
	o *Options, kind string, get func(ctx context.Context, c *apiclient.ClientWithResponses, name string, revision *uint64) (*T, error),
	spec func(*T) any,
) *cobra.Command {
	var revision uint64
	cmd := &cobra.Command{
		Use: "show NAME", Short: "Show a " + kind + " as it can be applied again", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.Client()
			if err != nil {
				return err
			}
			var at *uint64
			if revision > 0 {
				at = &revision
			}
			d, err := get(cmd.Context(), c, args[0], at)
			if err != nil {
				return err
			}
			body, err := yaml.Marshal(spec(d))
			if err != nil {
				return err
			}
			return o.Show(cmd.OutOrStdout(), d, func(w io.Writer) { fmt.Fprint(w, safe(string(body))) })
		},
	}
	cmd.Flags().Uint64Var(&revision, "revision", 0, "this revision (default: the newest)")
	return cmd
}

// removeCommand is `remove NAME` of a kind of definition.
func removeCommand(
	o *Options, kind, short string, remove func(ctx context.Context, c *apiclient.ClientWithResponses, name string) error,
) *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Short: short, Args: cobra.ExactArgs(1), Aliases: []string{"rm"},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.Client()
			if err != nil {
				return err
			}
			if err := remove(cmd.Context(), c, args[0]); err != nil {
				return err
			}
			return o.Show(cmd.OutOrStdout(), map[string]string{"removed": args[0]}, func(w io.Writer) {
				fmt.Fprintf(w, "%s %s is removed\n", kind, args[0])
			})
		},
	}
}
