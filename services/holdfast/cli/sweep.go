package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
)

// sweepAtOnce is how many strays one request removes: each may take a host a moment.
const sweepAtOnce = 20

// Sweep is `holdfast sweep`.
func Sweep(o *Options) *cobra.Command {
	var confirm bool
	cmd := &cobra.Command{
		Use: "sweep [UID...]", Short: "Show what runs for no session, and remove it with --confirm",
		Long: "Sandboxes, volumes, pools and templates that the log has no use for: it doesn't know their session or runtime, or\n" +
			"another log wanted them. A crash, a log that was replaced or an installation that was removed leaves such. Nothing\n" +
			"removes them by itself. With --confirm what is listed is removed, with its contents and for good; UIDs narrow it.",
		RunE: func(cmd *cobra.Command, uids []string) error {
			c, err := o.Client()
			if err != nil {
				return err
			}
			strays, err := strays(cmd.Context(), c, uids)
			if err != nil {
				return err
			}
			if !confirm || len(strays) == 0 {
				return o.Show(cmd.OutOrStdout(), api.StrayList{Items: strays}, func(w io.Writer) { straysTable(w, o, strays) })
			}
			return removeStrays(cmd, o, c, strays)
		},
	}
	cmd.Flags().BoolVar(&confirm, "confirm", false, "remove what is listed")
	return cmd
}

// strays lists what the log has no use for; only what has one of the UIDs, where some are given.
func strays(ctx context.Context, c *apiclient.ClientWithResponses, uids []string) ([]api.Stray, error) {
	r, err := c.ListStraysWithResponse(ctx)
	list, err := answer(err, func() *api.StrayList { return r.JSON200 })
	switch {
	case err != nil:
		return nil, err
	case len(uids) == 0:
		return list.Items, nil
	}
	var some []api.Stray
	for _, uid := range uids {
		i := slices.IndexFunc(list.Items, func(s api.Stray) bool { return s.UID == uid })
		if i < 0 {
			return nil, fmt.Errorf("%s is the UID of nothing that could be removed: see 'holdfast sweep'", uid)
		}
		some = append(some, list.Items[i])
	}
	return some, nil
}

func straysTable(w io.Writer, o *Options, strays []api.Stray) {
	if len(strays) == 0 {
		fmt.Fprintln(w, "Nothing runs that the log has no use for.")
		return
	}
	rows := make([][]string, len(strays))
	for i, s := range strays {
		since := "-"
		if !s.Since.IsZero() {
			since = clock(s.Since)
		}
		rows[i] = []string{string(s.Kind), strayName(s.Namespace, s.Name), whose(s), dash(s.Epoch), since, string(s.Why), s.UID}
	}
	table(w, []string{"KIND", "NAME", "OF", "EPOCH", "SINCE", "WHY", "UID"}, rows)
	fmt.Fprintf(w, "\nRemove what is listed, for good: %s. Some of it: name the UIDs.\n", o.hint("sweep --confirm"))
}

// whose is what a stray was made for.
func whose(s api.Stray) string {
	switch {
	case s.Session != "" && s.Generation > 0:
		return s.Session + " g" + strconv.FormatInt(s.Generation, 10)
	case s.Session != "":
		return s.Session
	}
	return s.Runtime + " r" + strconv.FormatInt(s.Revision, 10)
}

func strayName(namespace, name string) string {
	if namespace == "" {
		return safe(name)
	}
	return safe(namespace + "/" + name)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// errNotSwept makes the command fail where something is left.
var errNotSwept = errors.New("not all of it could be removed: see above, and sweep again")

func removeStrays(cmd *cobra.Command, o *Options, c *apiclient.ClientWithResponses, strays []api.Stray) error {
	outcomes := api.StrayOutcomes{Items: []api.StrayOutcome{}}
	failed := false
	for some := range slices.Chunk(strays, sweepAtOnce) {
		names := make([]api.StrayName, len(some))
		for i, s := range some {
			names[i] = api.StrayName{Kind: s.Kind, Namespace: s.Namespace, Name: s.Name, UID: s.UID}
		}
		r, err := c.RemoveStraysWithResponse(cmd.Context(), api.StrayRemoval{Items: names})
		done, err := answer(err, func() *api.StrayOutcomes { return r.JSON200 })
		if err != nil {
			return err
		}
		outcomes.Items = append(outcomes.Items, done.Items...)
		for _, s := range done.Items {
			failed = failed || s.Outcome == api.StrayOutcomeOutcomeFailed
			if o.Output != "json" { // as it happens
				line := fmt.Sprintf("%-8s %s %s", s.Outcome, s.Kind, strayName(s.Namespace, s.Name))
				if s.Detail != "" {
					line += ": " + safe(s.Detail)
				}
				fmt.Fprintln(cmd.OutOrStdout(), line)
			}
		}
	}
	if err := o.Show(cmd.OutOrStdout(), outcomes, func(io.Writer) {}); err != nil {
		return err
	}
	if failed {
		return errNotSwept
	}
	return nil
}
