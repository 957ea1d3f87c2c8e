package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/api/apiclient"
)

// yamlType is what files are sent as; JSON is YAML too.
const yamlType = "application/yaml"

// applied is what an apply made, or found to be in force already.
type applied struct {
	definition any
	name       string
	revision   uint64
	same       bool
}

// applyCommand is `apply -f FILE` of a kind of definition.
func applyCommand(
	o *Options, kind, short string,
	send func(ctx context.Context, c *apiclient.ClientWithResponses, name string, body io.Reader) (applied, error),
) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "apply -f FILE", Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			name, body, err := readNamed(file, cmd.InOrStdin())
			if err != nil {
				return err
			}
			c, err := o.Client()
			if err != nil {
				return err
			}
			a, err := send(cmd.Context(), c, name, bytes.NewReader(body))
			if err != nil {
				return err
			}
			return o.Show(cmd.OutOrStdout(), a.definition, func(w io.Writer) {
				note := ""
				if a.same {
					note = " (unchanged)"
				}
				fmt.Fprintf(w, "%s %s is at revision %d%s\n", kind, a.name, a.revision, note)
			})
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "file, or - for the input")
	return cmd
}

// readNamed reads a file and the name in it.
func readNamed(file string, stdin io.Reader) (name string, body []byte, err error) {
	switch file {
	case "":
		return "", nil, usagef("say which file: -f FILE, or -f - for the input")
	case "-":
		body, err = io.ReadAll(stdin)
	default:
		body, err = os.ReadFile(file)
	}
	if err != nil {
		return "", nil, fmt.Errorf("read %s: %w", file, err)
	}
	var named struct {
		Name string `json:"name"`
	}
	if err := yaml.Unmarshal(body, &named); err != nil {
		return "", nil, fmt.Errorf("%s is no YAML: %w", file, err)
	}
	if named.Name == "" {
		return "", nil, fmt.Errorf("%s has no name", file)
	}
	body, err = rooted(file, body)
	return named.Name, body, err
}

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
