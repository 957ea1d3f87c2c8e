package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
)

func sessionMessages(o *Options) *cobra.Command {
	var page paging
	cmd := &cobra.Command{
		Use: "messages SESSION", Short: "Show what was said, whole", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.Client()
			if err != nil {
				return err
			}
			params := &api.ListMessagesParams{Limit: &page.limit}
			set(&params.Cursor, page.cursor)
			r, err := c.ListMessagesWithResponse(cmd.Context(), args[0], params)
			l, err := answer(err, func() *api.MessageList { return r.JSON200 })
			if err != nil {
				return err
			}
			return o.Show(cmd.OutOrStdout(), l, func(w io.Writer) {
				for _, m := range l.Items {
					fmt.Fprintf(w, "%s %s  %s\n", clock(m.Time), firstOf(m.Requester, m.Role), m.RunID)
					if m.Content != "" {
						fmt.Fprintln(w, "    "+indent(safe(strings.TrimRight(m.Content, "\n"))))
					}
					for _, call := range m.ToolCalls {
						fmt.Fprintln(w, "    → "+safe(called(call)))
					}
				}
				more(w, l.Next)
			})
		},
	}
	page.flags(cmd)
	return cmd
}

// called is one of AG-UI's tool calls on a line: the tool, and what it is called with.
func called(raw json.RawMessage) string {
	var call struct {
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	}
	if json.Unmarshal(raw, &call) != nil || call.Function.Name == "" {
		return compact(raw)
	}
	return call.Function.Name + " " + compact(json.RawMessage(call.Function.Arguments))
}

func sessionRuns(o *Options) *cobra.Command {
	var page paging
	cmd := &cobra.Command{
		Use: "runs SESSION", Short: "List a session's runs", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.Client()
			if err != nil {
				return err
			}
			params := &api.ListRunsParams{Limit: &page.limit}
			set(&params.Cursor, page.cursor)
			r, err := c.ListRunsWithResponse(cmd.Context(), args[0], params)
			l, err := answer(err, func() *api.RunList { return r.JSON200 })
			if err != nil {
				return err
			}
			return o.Show(cmd.OutOrStdout(), l, func(w io.Writer) {
				rows := make([][]string, len(l.Items))
				for i, run := range l.Items {
					began, took := "", ""
					if !run.StartedAt.IsZero() {
						began = clock(run.StartedAt)
						if !run.EndedAt.IsZero() {
							took = run.EndedAt.Sub(run.StartedAt).Round(time.Millisecond).String()
						}
					}
					rows[i] = []string{run.ID, string(run.State), began, took, run.ParentRunID, run.Requester, shortened(why(run), 60)}
				}
				table(w, []string{"RUN", "STATE", "STARTED", "TOOK", "GOES ON FROM", "REQUESTER", "CAUSE"}, rows)
				more(w, l.Next)
			})
		},
	}
	page.flags(cmd)
	return cmd
}

func sessionExtend(o *Options) *cobra.Command {
	var body api.ExtendSession
	cmd := &cobra.Command{
		Use: "extend SESSION", Short: "Give a session more time", Args: cobra.ExactArgs(1),
		Example: "  holdfast session extend s-… --idle 1h\n  holdfast session extend s-… --max 24h",
		RunE: func(cmd *cobra.Command, args []string) error {
			if body.Idle == "" && body.Max == "" {
				return usagef("say how long from now: --idle, --max, or both, such as --max 2h")
			}
			c, err := o.Client()
			if err != nil {
				return err
			}
			r, err := c.ExtendSessionWithResponse(cmd.Context(), args[0], nil, body)
			s, err := answer(err, func() *api.Session { return r.JSON200 })
			if err != nil {
				return err
			}
			return o.Show(cmd.OutOrStdout(), s, func(w io.Writer) { describe(w, s) })
		},
	}
	cmd.Flags().StringVar(&body.Idle, "idle", "", "put away or end it only this long from now")
	cmd.Flags().StringVar(&body.Max, "max", "", "end it only this long from now")
	return cmd
}

// why is a failed run's cause with what is said of it.
func why(run api.Run) string {
	if run.Detail == "" {
		return run.Cause
	}
	return run.Cause + ": " + run.Detail
}
