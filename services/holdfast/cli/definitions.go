package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
)

// Runtime is `holdfast runtime …`.
func Runtime(o *Options) *cobra.Command {
	cmd := &cobra.Command{Use: "runtime", Short: "Apply and list runtimes", Aliases: []string{"runtimes"}}
	var page paging
	apply := applyCommand(o, "runtime", "Apply a runtime from YAML or JSON; a change makes a new revision",
		func(ctx context.Context, c *apiclient.ClientWithResponses, name string, body io.Reader) (applied, error) {
			r, err := c.ApplyRuntimeWithBodyWithResponse(ctx, name, nil, yamlType, body)
			rt, err := answer(err, func() *api.Runtime { return cmp.Or(r.JSON201, r.JSON200) })
			if err != nil {
				return applied{}, err
			}
			return applied{definition: rt, name: rt.Name, revision: rt.Revision, same: r.JSON200 != nil}, nil
		})
	list := &cobra.Command{
		Use: "list", Short: "List runtimes", Args: cobra.NoArgs, Aliases: []string{"ls"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			params := &api.ListRuntimesParams{Limit: &page.limit}
			set(&params.Cursor, page.cursor)
			r, err := c.ListRuntimesWithResponse(cmd.Context(), params)
			l, err := answer(err, func() *api.RuntimeList { return r.JSON200 })
			if err != nil {
				return err
			}
			return o.show(cmd.OutOrStdout(), l, func(w io.Writer) {
				rows := make([][]string, len(l.Items))
				for i, rt := range l.Items {
					rows[i] = []string{
						fmt.Sprintf("%s@%d", rt.Name, rt.Revision), string(rt.Spec.Kind), rt.Spec.Policy,
						strconv.Itoa(rt.Spec.WarmPool.Size), rt.By, ago(rt.At),
					}
				}
				table(w, []string{"RUNTIME", "KIND", "POLICY", "WARM", "BY", "AGE"}, rows)
				more(w, l.Next)
			})
		},
	}
	page.flags(list)
	cmd.AddCommand(apply, list)
	return cmd
}

// Policy is `holdfast policy …`.
func Policy(o *Options) *cobra.Command {
	cmd := &cobra.Command{Use: "policy", Short: "Apply policies", Aliases: []string{"policies"}}
	cmd.AddCommand(applyCommand(o, "policy", "Apply a policy from YAML or JSON; it is compiled and its tests are run first",
		func(ctx context.Context, c *apiclient.ClientWithResponses, name string, body io.Reader) (applied, error) {
			r, err := c.ApplyPolicyWithBodyWithResponse(ctx, name, nil, yamlType, body)
			p, err := answer(err, func() *api.Policy { return cmp.Or(r.JSON201, r.JSON200) })
			if err != nil {
				return applied{}, err
			}
			return applied{definition: p, name: p.Name, revision: p.Revision, same: r.JSON200 != nil}, nil
		}))
	return cmd
}

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
			c, err := o.client()
			if err != nil {
				return err
			}
			a, err := send(cmd.Context(), c, name, bytes.NewReader(body))
			if err != nil {
				return err
			}
			return o.show(cmd.OutOrStdout(), a.definition, func(w io.Writer) {
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
	return named.Name, body, nil
}
