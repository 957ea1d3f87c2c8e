package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
	"github.com/holdfast-io/holdfast/services/holdfast/dev"
	"github.com/holdfast-io/holdfast/services/internal/tokenfile"
)

const (
	// completeWithin is how long a shell's Tab may wait for the server.
	completeWithin = time.Second
	// completeMost bounds what a Tab offers.
	completeMost = 100
)

// lister gives what may stand as a command's first argument: each a name, and after
// a tab what a shell shows beside it.
type lister func(ctx context.Context, c *apiclient.ClientWithResponses) ([]string, error)

// completed lets a shell complete a command's first argument from the server. A
// server that doesn't answer completes nothing: Tab is no place for an error.
func (o *Options) completed(list lister, commands ...*cobra.Command) {
	for _, cmd := range commands {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			c, err := o.Client()
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
			defer cancel()
			offered, _ := list(ctx, c) // as above
			offered = slices.DeleteFunc(offered, func(s string) bool { return !strings.HasPrefix(s, typed) })
			return offered, cobra.ShellCompDirectiveNoFileComp
		}
	}
}

// Words lets a shell complete a flag that takes one of a few words.
func Words(cmd *cobra.Command, flag string, these ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(these, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // no such flag: a mistake in this package
	}
}

func limit() *int {
	most := completeMost
	return &most
}

func sessionIDs(ctx context.Context, c *apiclient.ClientWithResponses) ([]string, error) {
	r, err := c.ListSessionsWithResponse(ctx, &api.ListSessionsParams{Limit: limit()})
	l, err := answer(err, func() *api.SessionList { return r.JSON200 })
	if err != nil {
		return nil, err
	}
	offered := make([]string, len(l.Items))
	for i, s := range l.Items {
		offered[i] = fmt.Sprintf("%s\t%s of %s, %s ago", s.ID, phaseOf(s), s.Runtime.Name, ago(s.CreatedAt))
	}
	return offered, nil
}

func openApprovals(ctx context.Context, c *apiclient.ClientWithResponses) ([]string, error) {
	params := &api.ListApprovalsParams{Limit: limit()}
	params.State = appendTo(params.State, api.CallStatePending)
	r, err := c.ListApprovalsWithResponse(ctx, params)
	l, err := answer(err, func() *api.ApprovalList { return r.JSON200 })
	if err != nil {
		return nil, err
	}
	offered := make([]string, len(l.Items))
	for i, a := range l.Items {
		offered[i] = fmt.Sprintf("%s\t%s %s", a.ID, safe(a.Tool), strings.ReplaceAll(shortened(compact(a.Args), 60), "\t", " "))
	}
	return offered, nil
}

func runtimeNames(ctx context.Context, c *apiclient.ClientWithResponses) ([]string, error) {
	r, err := c.ListRuntimesWithResponse(ctx, &api.ListRuntimesParams{Limit: limit()})
	l, err := answer(err, func() *api.RuntimeList { return r.JSON200 })
	if err != nil {
		return nil, err
	}
	offered := make([]string, len(l.Items))
	for i, rt := range l.Items {
		offered[i] = fmt.Sprintf("%s\t%s at revision %d", rt.Name, rt.Spec.Kind, rt.Revision)
	}
	return offered, nil
}

func policyNames(ctx context.Context, c *apiclient.ClientWithResponses) ([]string, error) {
	r, err := c.ListPoliciesWithResponse(ctx, &api.ListPoliciesParams{Limit: limit()})
	l, err := answer(err, func() *api.PolicyList { return r.JSON200 })
	if err != nil {
		return nil, err
	}
	offered := make([]string, len(l.Items))
	for i, p := range l.Items {
		offered[i] = fmt.Sprintf("%s\t%d rules at revision %d", p.Name, len(p.Spec.Rules), p.Revision)
	}
	return offered, nil
}

// People completes the names of those whose tokens the dev that runs here has.
func (o *Options) People(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	dir, err := o.Directory()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	entries, _ := tokenfile.Read(dev.TokensFile(dir)) // where there is none, nothing is offered
	var names []string
	for _, e := range entries {
		names = append(names, e.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
