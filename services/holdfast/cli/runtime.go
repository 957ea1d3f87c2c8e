package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
)

// Runtime is `holdfast runtime …`.
func Runtime(o *Options) *cobra.Command {
	cmd := &cobra.Command{Use: "runtime", Short: "Apply, show, list and remove runtimes", Aliases: []string{"runtimes"}}
	var page paging
	apply := applyCommand(o, "runtime", "Apply runtimes from YAML or JSON, ours or AgentCube's; a change makes a new revision", agentCube,
		func(ctx context.Context, c *apiclient.ClientWithResponses, name string, body io.Reader) (applied, error) {
			r, err := c.ApplyRuntimeWithBodyWithResponse(ctx, name, nil, yamlType, body)
			rt, err := answer(err, func() *api.Runtime { return cmp.Or(r.JSON201, r.JSON200) })
			if err != nil {
				return applied{}, err
			}
			a := applied{definition: rt, name: rt.Name, revision: rt.Revision, same: r.JSON200 != nil}
			if given := rt.Spec.Sandbox.Secrets; len(given) > 0 {
				a.note = "its sandboxes are given what is secret: " + strings.Join(given, ", ")
			}
			return a, nil
		})
	list := &cobra.Command{
		Use: "list", Short: "List runtimes", Args: cobra.NoArgs, Aliases: []string{"ls"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.Client()
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
			return o.Show(cmd.OutOrStdout(), l, func(w io.Writer) {
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
	show := showCommand(o, "runtime",
		func(ctx context.Context, c *apiclient.ClientWithResponses, name string, revision *uint64) (*api.Runtime, error) {
			r, err := c.GetRuntimeWithResponse(ctx, name, &api.GetRuntimeParams{Revision: revision})
			return answer(err, func() *api.Runtime { return r.JSON200 })
		}, func(r *api.Runtime) any { return r.Spec })
	remove := removeCommand(o, "runtime", "Remove a runtime: no new sessions; living ones stay",
		func(ctx context.Context, c *apiclient.ClientWithResponses, name string) error {
			_, err := c.RemoveRuntimeWithResponse(ctx, name, nil)
			return err
		})
	o.completed(runtimeNames, show, remove)
	cmd.AddCommand(apply, list, show, remove)
	return cmd
}
