package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
)

// Parked is `holdfast parked …`.
func Parked(o *Options) *cobra.Command {
	cmd := &cobra.Command{
		Use: "parked", Short: "See and retry what services gave up on",
		Long: "A service that fails ten times in a row to bring a session where it should be parks it: the others go on, and it\n" +
			"is tried again every ten minutes. Once the cause is gone, 'retry' has it tried at once.",
	}
	cmd.AddCommand(parkedList(o), parkedRetry(o))
	return cmd
}

func parkedList(o *Options) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List parked sessions, the longest ago first", Args: cobra.NoArgs, Aliases: []string{"ls"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.Client()
			if err != nil {
				return err
			}
			list, err := parked(cmd.Context(), c)
			if err != nil {
				return err
			}
			return o.Show(cmd.OutOrStdout(), list, func(w io.Writer) { parkedTable(w, o, list) })
		},
	}
}

func parked(ctx context.Context, c *apiclient.ClientWithResponses) (*api.ParkedList, error) {
	r, err := c.ListParkedWithResponse(ctx)
	return answer(err, func() *api.ParkedList { return r.JSON200 })
}

func parkedTable(w io.Writer, o *Options, list *api.ParkedList) {
	if len(list.Items) == 0 {
		fmt.Fprintln(w, "Nothing is parked.")
	} else {
		rows := make([][]string, len(list.Items))
		for i, p := range list.Items {
			rows[i] = []string{parkedKey(p), clock(p.At), strconv.Itoa(p.Failures), shortened(oneLine(p.Reason), 100)}
		}
		table(w, []string{"KEY", "SINCE", "FAILURES", "REASON"}, rows)
		fmt.Fprintf(w, "\nRetry one: %s. All: %s\n", o.hint("parked retry KEY"), o.hint("parked retry --all"))
	}
	for _, s := range list.Silent {
		fmt.Fprintf(w, "The %s service doesn't answer: what it parked isn't listed.\n", s)
	}
}

// oneLine is the first line of a text: a reason may hold a stack.
func oneLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

func parkedRetry(o *Options) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "retry KEY... | --all", Short: "Have parked sessions tried again at once; a key is SERVICE/SESSION, as listed",
		Args: func(_ *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return fmt.Errorf("name what to retry, as '%s' lists it, or give --all", "parked list")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			keys := make([]api.Parked, len(args))
			for i, arg := range args {
				service, session, ok := strings.Cut(arg, "/")
				if !ok || !api.ParkingService(service).Valid() {
					return usagef("%q is no key: it is SERVICE/SESSION, as 'parked list' shows it", arg)
				}
				keys[i] = api.Parked{Service: api.ParkingService(service), Session: session}
			}
			c, err := o.Client()
			if err != nil {
				return err
			}
			if all {
				list, err := parked(cmd.Context(), c)
				if err != nil {
					return err
				}
				keys = list.Items
			}
			for _, p := range keys {
				if _, err := c.RetryParkedWithResponse(cmd.Context(), p.Service, p.Session); err != nil {
					return fmt.Errorf("retry %s: %w", parkedKey(p), err)
				}
			}
			return o.Show(cmd.OutOrStdout(), struct {
				Retried int `json:"retried"`
			}{len(keys)}, func(w io.Writer) { fmt.Fprintf(w, "tried again: %d\n", len(keys)) })
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "everything that is listed")
	return cmd
}

// parkedKey names what is parked on the command line.
func parkedKey(p api.Parked) string { return string(p.Service) + "/" + p.Session }
