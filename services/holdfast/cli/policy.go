package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
)

// Policy is `holdfast policy …`.
func Policy(o *Options) *cobra.Command {
	cmd := &cobra.Command{Use: "policy", Short: "Apply, show, list and remove policies", Aliases: []string{"policies"}}
	apply := applyCommand(o, "policy", "Apply a policy from YAML or JSON; it is compiled and its tests are run first", nil,
		func(ctx context.Context, c *apiclient.ClientWithResponses, name string, body io.Reader) (applied, error) {
			r, err := c.ApplyPolicyWithBodyWithResponse(ctx, name, nil, yamlType, body)
			p, err := answer(err, func() *api.Policy { return cmp.Or(r.JSON201, r.JSON200) })
			if err != nil {
				return applied{}, err
			}
			return applied{definition: p, name: p.Name, revision: p.Revision, same: r.JSON200 != nil}, nil
		})
	show := showCommand(o, "policy",
		func(ctx context.Context, c *apiclient.ClientWithResponses, name string, revision *uint64) (*api.Policy, error) {
			r, err := c.GetPolicyWithResponse(ctx, name, &api.GetPolicyParams{Revision: revision})
			return answer(err, func() *api.Policy { return r.JSON200 })
		}, func(p *api.Policy) any { return p.Spec })
	remove := removeCommand(o, "policy", "Remove a policy: runtimes that name it deny every call from then on",
		func(ctx context.Context, c *apiclient.ClientWithResponses, name string) error {
			_, err := c.RemovePolicyWithResponse(ctx, name, nil)
			return err
		})
	o.completed(policyNames, show, remove)
	cmd.AddCommand(apply, policyList(o), show, remove)
	return cmd
}

func policyList(o *Options) *cobra.Command {
	var page paging
	cmd := &cobra.Command{
		Use: "list", Short: "List policies", Args: cobra.NoArgs, Aliases: []string{"ls"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.Client()
			if err != nil {
				return err
			}
			params := &api.ListPoliciesParams{Limit: &page.limit}
			set(&params.Cursor, page.cursor)
			r, err := c.ListPoliciesWithResponse(cmd.Context(), params)
			l, err := answer(err, func() *api.PolicyList { return r.JSON200 })
			if err != nil {
				return err
			}
			return o.Show(cmd.OutOrStdout(), l, func(w io.Writer) {
				rows := make([][]string, len(l.Items))
				for i, p := range l.Items {
					rows[i] = []string{
						fmt.Sprintf("%s@%d", p.Name, p.Revision), strconv.Itoa(len(p.Spec.Rules)), string(p.Spec.Default), p.By, ago(p.At),
					}
				}
				table(w, []string{"POLICY", "RULES", "DEFAULT", "BY", "AGE"}, rows)
				more(w, l.Next)
			})
		},
	}
	page.flags(cmd)
	return cmd
}
