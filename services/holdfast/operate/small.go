package operate

import (
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/services/holdfast/cli"
)

// Token is `holdfast token`.
func Token(o *cli.Options) *cobra.Command {
	return &cobra.Command{
		Use: "token NAME", Short: "Print the token of one of dev's people: admin, alice, bob", Args: cobra.ExactArgs(1),
		ValidArgsFunction: o.People,
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := o.Directory()
			if err != nil {
				return err
			}
			token, err := cli.TokenOf(dir, args[0])
			if err != nil {
				return err
			}
			return o.Show(cmd.OutOrStdout(), map[string]string{"name": args[0], "token": token}, func(w io.Writer) { fmt.Fprintln(w, token) })
		},
	}
}

// Version is `holdfast version`.
func Version(o *cli.Options, version string) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			goVersion := ""
			if info, ok := debug.ReadBuildInfo(); ok {
				goVersion = " " + info.GoVersion
			}
			about := map[string]string{"version": version, "go": strings.TrimSpace(goVersion)}
			return o.Show(cmd.OutOrStdout(), about, func(w io.Writer) { fmt.Fprintf(w, "holdfast %s%s\n", version, goVersion) })
		},
	}
}
