package operate

import (
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// EnvOrigins is what browsers call the gateway, comma separated.
const EnvOrigins = "HOLDFAST_ORIGINS"

// originFlag adds --origin to a command that runs a gateway. Without it the environment
// counts.
func originFlag(cmd *cobra.Command, origins *[]string, whose string) {
	given := strings.FieldsFunc(os.Getenv(EnvOrigins), func(r rune) bool { return r == ',' || r == ' ' })
	cmd.Flags().StringSliceVar(origins, "origin", given, whose+"what browsers call it, such as https://holdfast.example.com, where that is neither --addr\n"+
		"nor an address of loopback (default $"+EnvOrigins+"); a page of any other may not act")
}
