package operate

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/services/holdfast/cli"
	"github.com/holdfast-io/holdfast/services/internal/postgres"
)

// What is given counts, else the environment, which may be set and empty.
func TestOriginFlag(t *testing.T) {
	for _, test := range []struct {
		env  string
		args []string
		want []string
	}{
		{"", nil, nil},
		{"https://a.example", nil, []string{"https://a.example"}},
		{"https://a.example, https://b.example", nil, []string{"https://a.example", "https://b.example"}},
		{"https://a.example", []string{"--origin", "https://c.example", "--origin", "https://d.example"}, []string{"https://c.example", "https://d.example"}},
	} {
		t.Setenv(EnvOrigins, test.env)
		var got []string
		cmd := &cobra.Command{}
		originFlag(cmd, &got, "")
		if err := cmd.ParseFlags(test.args); err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s=%q %v: %q, %v", EnvOrigins, test.env, test.args, got, err)
		}
	}
}

// An origin that no browser sends is refused before anything is opened.
func TestNonsenseForAnOrigin(t *testing.T) {
	t.Setenv(EnvOrigins, "")
	t.Setenv(postgres.EnvURL, "postgres://127.0.0.1:1/none")
	for _, args := range [][]string{
		{"serve", "gateway", "--agents-addr", "127.0.0.1:0", "--origin", "holdfast.example.com"},
		{"dev", "--data-dir", t.TempDir(), "--origin", "holdfast.example.com"},
	} {
		var o cli.Options
		root := &cobra.Command{SilenceErrors: true, SilenceUsage: true}
		o.Flags(root)
		root.AddCommand(Serve("test"), Dev(&o, "test"))
		root.SetArgs(args)
		err := root.ExecuteContext(t.Context())
		if err == nil || cli.ExitCode(err) != cli.ExitUsage || !strings.Contains(err.Error(), "https://holdfast.example.com") {
			t.Errorf("%v: %v", args, err)
		}
	}
}
