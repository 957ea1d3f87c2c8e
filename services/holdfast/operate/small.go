package operate

import (
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/services/holdfast/cli"
	"github.com/holdfast-io/holdfast/services/holdfast/dev"
)

// Token is `holdfast token`.
func Token(o *cli.Options) *cobra.Command {
	return &cobra.Command{
		Use: "token NAME", Short: "Print the token of one of dev's people: admin, alice, bob", Args: cobra.ExactArgs(1),
		ValidArgsFunction: o.People,
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := o.DataDir
			if dir == "" {
				var err error
				if dir, err = dev.DefaultDataDir(); err != nil {
					return err
				}
			}
			token, err := cli.TokenOf(dir, args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), token)
			return err
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
			if o.Output == "json" {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]string{"version": version, "go": strings.TrimSpace(goVersion)})
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "holdfast %s%s\n", version, goVersion)
			return err
		},
	}
}
