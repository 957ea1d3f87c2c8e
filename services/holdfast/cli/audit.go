package cli

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
)

// Audit is `holdfast audit …`.
func Audit(o *Options) *cobra.Command {
	var (
		session, actor string
		types          []string
		since          time.Duration
		page           paging
	)
	list := &cobra.Command{
		Use: "list", Short: "List what happened, who did it, why, and how it came out", Args: cobra.NoArgs, Aliases: []string{"ls"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.Client()
			if err != nil {
				return err
			}
			params := &api.ListAuditParams{Limit: &page.limit}
			set(&params.Session, session)
			set(&params.Actor, actor)
			set(&params.Cursor, page.cursor)
			for _, t := range types {
				params.Type = appendTo(params.Type, t)
			}
			if since > 0 {
				from := time.Now().Add(-since)
				params.From = &from
			}
			r, err := c.ListAuditWithResponse(cmd.Context(), params)
			l, err := answer(err, func() *api.AuditList { return r.JSON200 })
			if err != nil {
				return err
			}
			return o.Show(cmd.OutOrStdout(), l, func(w io.Writer) {
				rows := make([][]string, len(l.Items))
				for i, e := range l.Items {
					rows[i] = []string{
						strconv.FormatUint(e.Seq, 10), clock(e.Time), e.Subject, strconv.FormatUint(e.N, 10), e.Type, e.Actor, e.Outcome,
						shortened(e.Cause, 30), shortened(compact(e.Data), 50),
					}
				}
				table(w, []string{"SEQ", "TIME", "SUBJECT", "N", "EVENT", "ACTOR", "OUTCOME", "CAUSE", "DATA"}, rows)
				more(w, l.Next)
			})
		},
	}
	f := list.Flags()
	f.StringVar(&session, "session", "", "only this session's")
	f.StringVar(&actor, "actor", "", "only this actor's, such as user:bob")
	f.StringSliceVar(&types, "type", nil, "only these types of event")
	f.DurationVar(&since, "since", 0, "only the last so long, such as 1h")
	page.flags(list)
	cmd := &cobra.Command{Use: "audit", Short: "Read the audit log"}
	cmd.AddCommand(list)
	return cmd
}

func set(to **string, value string) {
	if value != "" {
		*to = &value
	}
}

// Replay is `holdfast replay`.
func Replay(o *Options) *cobra.Command {
	var speed string
	cmd := &cobra.Command{
		Use: "replay SESSION", Short: "Play a session's history again, deciding nothing", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.Client()
			if err != nil {
				return err
			}
			params, err := replayParams(speed)
			if err != nil {
				return err
			}
			resp, err := c.ReplaySession(cmd.Context(), args[0], params) //nolint:bodyclose // Frames closes it
			if err != nil {
				return err
			}
			return printFrames(cmd.OutOrStdout(), o, resp)
		},
	}
	cmd.Flags().StringVar(&speed, "speed", "max", "times as fast as it was, or max")
	o.completed(sessionIDs, cmd)
	return cmd
}

func printFrames(w io.Writer, o *Options, resp *http.Response) error {
	p := &printer{w: w, json: o.Output == "json"}
	for f, err := range apiclient.Frames(resp.Body) {
		if err != nil {
			return fmt.Errorf("the replay was cut: %w", err)
		}
		p.frame(f)
	}
	return nil
}

func replayParams(speed string) (*api.ReplaySessionParams, error) {
	times := 0.0
	if speed != "max" {
		var err error
		if times, err = strconv.ParseFloat(speed, 64); err != nil || times < 0 {
			return nil, usagef("speed %q: say how many times as fast as it was, or max", speed)
		}
	}
	return &api.ReplaySessionParams{Speed: &times}, nil
}
