package operate

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/services/internal/broker"
)

// NATSConf is `holdfast nats-conf`.
func NATSConf() *cobra.Command {
	return &cobra.Command{
		Use: "nats-conf", Short: "Print the users and permissions that a NATS of your own needs", Args: cobra.NoArgs,
		Long: "Prints the authorization block of nats.conf: a user for each service and what it may do, as this binary needs\n" +
			"it. Include it in the servers' configuration; they take the passwords from their environment,\n" +
			"HOLDFAST_NATS_PASSWORD_<USER>, plain or as bcrypt hashes.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), broker.Conf())
			return err
		},
	}
}
