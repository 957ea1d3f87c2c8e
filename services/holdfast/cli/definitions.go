package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/api"
)

// Runtime is `holdfast runtime …`.
func Runtime(o *Options) *cobra.Command {
	cmd := &cobra.Command{Use: "runtime", Short: "Apply and list runtimes", Aliases: []string{"runtimes"}}
	var (
		file string
		page paging
	)
	apply := &cobra.Command{
		Use: "apply -f FILE", Short: "Apply a runtime from YAML or JSON; a change makes a new revision", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			name, body, err := readNamed(file, cmd.InOrStdin())
			if err != nil {
				return err
			}
			c, err := o.client()
			if err != nil {
				return err
			}
			r, err := c.ApplyRuntimeWithBodyWithResponse(cmd.Context(), name, nil, "application/yaml", bytes.NewReader(body))
			rt, err := answer(err, func() *api.Runtime {
				if r.JSON201 != nil {
					return r.JSON201
				}
				return r.JSON200
			})
			if err != nil {
				return err
			}
			return o.show(cmd.OutOrStdout(), rt, func(w io.Writer) {
				fmt.Fprintf(w, "runtime %s is at revision %d%s\n", rt.Name, rt.Revision, unchanged(r.JSON200 != nil))
			})
		},
	}
	apply.Flags().StringVarP(&file, "file", "f", "", "file, or - for the input")
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

func unchanged(same bool) string {
	if same {
		return " (unchanged)"
	}
	return ""
}

// Policy is `holdfast policy …`.
func Policy(o *Options) *cobra.Command {
	cmd := &cobra.Command{Use: "policy", Short: "Apply policies", Aliases: []string{"policies"}}
	var file string
	apply := &cobra.Command{
		Use: "apply -f FILE", Short: "Apply a policy from YAML or JSON; it is compiled and its tests are run first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			name, body, err := readNamed(file, cmd.InOrStdin())
			if err != nil {
				return err
			}
			c, err := o.client()
			if err != nil {
				return err
			}
			r, err := c.ApplyPolicyWithBodyWithResponse(cmd.Context(), name, nil, "application/yaml", bytes.NewReader(body))
			p, err := answer(err, func() *api.Policy {
				if r.JSON201 != nil {
					return r.JSON201
				}
				return r.JSON200
			})
			if err != nil {
				return err
			}
			return o.show(cmd.OutOrStdout(), p, func(w io.Writer) {
				fmt.Fprintf(w, "policy %s is at revision %d%s\n", p.Name, p.Revision, unchanged(r.JSON200 != nil))
			})
		},
	}
	apply.Flags().StringVarP(&file, "file", "f", "", "file, or - for the input")
	cmd.AddCommand(apply)
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
