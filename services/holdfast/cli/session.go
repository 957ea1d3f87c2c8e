package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
)

// Session is `holdfast session …`.
func Session(o *Options) *cobra.Command {
	cmd := &cobra.Command{Use: "session", Short: "Create, use and end sessions", Aliases: []string{"sessions"}}
	create := sessionCreate(o)
	o.completed(runtimeNames, create)
	each := []*cobra.Command{
		sessionShow(o), sessionSend(o), sessionWatch(o), sessionMessages(o), sessionRuns(o), sessionCancel(o), sessionExtend(o), sessionTerminate(o),
		move(o, "suspend", "Put a session's sandbox away, keeping its workspace",
			func(ctx context.Context, c *apiclient.ClientWithResponses, id string) (*api.Session, error) {
				r, err := c.SuspendSessionWithResponse(ctx, id, nil)
				return answer(err, func() *api.Session { return r.JSON202 })
			}),
		move(o, "resume", "Give a suspended session its sandbox back",
			func(ctx context.Context, c *apiclient.ClientWithResponses, id string) (*api.Session, error) {
				r, err := c.ResumeSessionWithResponse(ctx, id, nil)
				return answer(err, func() *api.Session { return r.JSON202 })
			}),
	}
	o.completed(sessionIDs, each...)
	cmd.AddCommand(each...)
	cmd.AddCommand(create, sessionList(o))
	return cmd
}

// answer unwraps a generated answer: the client has made an error of every
// refusal, so what is left has a body.
func answer[T any](err error, body func() *T) (*T, error) {
	if err != nil {
		return nil, err
	}
	b := body()
	if b == nil {
		return nil, errors.New("the server's answer has no body that this version knows")
	}
	return b, nil
}

func sessionCreate(o *Options) *cobra.Command {
	var (
		message string
		config  string
		labels  map[string]string
		wait    int
		watch   bool
	)
	cmd := &cobra.Command{
		Use: "create RUNTIME", Short: "Create a session", Args: cobra.ExactArgs(1),
		Example: "  holdfast session create shell -m 'ls -la'\n  holdfast session create shell --label team=search --wait 30\n" +
			`  holdfast session create my-agent --config '{"model": "small"}'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if config != "" && !json.Valid([]byte(config)) {
				return usagef("--config %q: it is no JSON", config)
			}
			c, err := o.Client()
			if err != nil {
				return err
			}
			params := &api.CreateSessionParams{}
			if wait > 0 {
				prefer := fmt.Sprintf("wait=%d", wait)
				params.Prefer = &prefer
			}
			r, err := c.CreateSessionWithResponse(cmd.Context(), params, api.CreateSession{
				Runtime: args[0], Message: message, Labels: labels, Config: json.RawMessage(config),
			})
			s, err := answer(err, func() *api.Session {
				if r.JSON201 != nil {
					return r.JSON201
				}
				return r.JSON200
			})
			if err != nil {
				return err
			}
			if err := o.Show(cmd.OutOrStdout(), s, func(w io.Writer) { describe(w, s) }); err != nil || !watch {
				return err
			}
			_, err = follow(cmd.Context(), c, cmd.OutOrStdout(), o, s.ID, from{}, untilSettled)
			return err
		},
	}
	cmd.Flags().StringVarP(&message, "message", "m", "", "first message to the agent")
	cmd.Flags().StringVar(&config, "config", "", "JSON for the agent, which it reads from GET /v1/agent/session; no secrets")
	cmd.Flags().StringToStringVar(&labels, "label", nil, "label, key=value; may be repeated")
	cmd.Flags().IntVar(&wait, "wait", 0, "answer when it is ready, after so many seconds at most")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "follow it until its run ends or waits for somebody")
	return cmd
}

func sessionList(o *Options) *cobra.Command {
	var (
		phases, labels []string
		page           paging
	)
	cmd := &cobra.Command{
		Use: "list", Short: "List sessions, newest first", Args: cobra.NoArgs, Aliases: []string{"ls"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.Client()
			if err != nil {
				return err
			}
			params := &api.ListSessionsParams{Limit: &page.limit}
			set(&params.Cursor, page.cursor)
			for _, p := range phases {
				params.Phase = appendTo(params.Phase, api.SessionPhase(p))
			}
			for _, l := range labels {
				params.Label = appendTo(params.Label, l)
			}
			r, err := c.ListSessionsWithResponse(cmd.Context(), params)
			list, err := answer(err, func() *api.SessionList { return r.JSON200 })
			if err != nil {
				return err
			}
			return o.Show(cmd.OutOrStdout(), list, func(w io.Writer) {
				sessionTable(w, list.Items)
				more(w, list.Next)
			})
		},
	}
	page.flags(cmd)
	cmd.Flags().StringSliceVar(&phases, "phase", nil, "only these phases, such as ready, suspended, ended")
	Words(cmd, "phase", "pending", "claimed", "ready", "suspending", "suspended", "resuming", "ending", "ended")
	cmd.Flags().StringSliceVar(&labels, "label", nil, "only with this label, key=value")
	return cmd
}

func appendTo[T any](list *[]T, v T) *[]T {
	if list == nil {
		return &[]T{v}
	}
	*list = append(*list, v)
	return list
}

func sessionTable(w io.Writer, sessions []api.Session) {
	if len(sessions) == 0 {
		fmt.Fprintln(w, "No sessions. Create one: holdfast session create shell -m 'ls -la'")
		return
	}
	rows := make([][]string, len(sessions))
	for i, s := range sessions {
		waiting := ""
		if s.Waiting > 0 {
			waiting = fmt.Sprintf("%d to answer", s.Waiting)
		}
		rows[i] = []string{s.ID, phaseOf(s), waiting, fmt.Sprintf("%s@%d", s.Runtime.Name, s.Runtime.Revision), s.Owner, ago(s.CreatedAt)}
	}
	table(w, []string{"SESSION", "PHASE", "WAITS", "RUNTIME", "OWNER", "AGE"}, rows)
}

func phaseOf(s api.Session) string {
	if s.Outcome != "" {
		return fmt.Sprintf("%s (%s)", s.Phase, s.Outcome)
	}
	return string(s.Phase)
}

// moment is what a session can be shown as of, as the API takes it.
var moment = regexp.MustCompile(`^([1-9][0-9]{0,18}|[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9:.]{8,18}([Zz]|[+-][0-9]{2}:[0-9]{2}))$`)

func sessionShow(o *Options) *cobra.Command {
	var asOf string
	cmd := &cobra.Command{
		Use: "show SESSION", Short: "Show a session, now or as it was", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.Client()
			if err != nil {
				return err
			}
			params := &api.GetSessionParams{}
			if asOf != "" {
				if !moment.MatchString(asOf) {
					return usagef("--as-of %q: name an n of the session, such as 5, or a time, such as 2026-01-02T15:04:05Z", asOf)
				}
				params.AsOf = &asOf
			}
			r, err := c.GetSessionWithResponse(cmd.Context(), args[0], params)
			s, err := answer(err, func() *api.Session { return r.JSON200 })
			if err != nil {
				return err
			}
			return o.Show(cmd.OutOrStdout(), s, func(w io.Writer) {
				if asOf != "" {
					fmt.Fprintf(w, "as of %s\n", asOf)
				}
				describe(w, s)
			})
		},
	}
	cmd.Flags().StringVar(&asOf, "as-of", "", "an n of the session, or an RFC 3339 time")
	return cmd
}

func describe(w io.Writer, s *api.Session) {
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%-11s %s\n", name, value)
		}
	}
	line("session", s.ID)
	line("phase", phaseOf(*s))
	line("cause", safe(s.Cause))
	if s.Waiting > 0 {
		line("waits", fmt.Sprintf("%d to answer: holdfast approvals list", s.Waiting))
	}
	line("runtime", fmt.Sprintf("%s@%d", s.Runtime.Name, s.Runtime.Revision))
	if s.Generation == 0 {
		line("sandbox", "not yet")
	} else {
		line("sandbox", fmt.Sprintf("generation %d, isolation %s", s.Generation, firstOf(s.Isolation, "not known yet")))
	}
	line("run", s.Run)
	line("owner", s.Owner)
	if !s.Deadlines.Max.IsZero() {
		line("ends", clock(s.Deadlines.Max)+" at the latest")
	}
	if !s.Deadlines.Idle.IsZero() {
		line("idle", "put away or ended at "+clock(s.Deadlines.Idle))
	}
	for _, k := range slices.Sorted(maps.Keys(s.Labels)) {
		line("label", k+"="+s.Labels[k])
	}
}

func sessionSend(o *Options) *cobra.Command {
	var (
		busy  string
		watch bool
	)
	cmd := &cobra.Command{
		Use: "send SESSION [MESSAGE…]", Short: "Send a message; without one it is read from the input", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.Client()
			if err != nil {
				return err
			}
			content := strings.Join(args[1:], " ")
			if len(args) == 1 {
				raw, err := io.ReadAll(bufio.NewReader(os.Stdin))
				if err != nil {
					return fmt.Errorf("read the message: %w", err)
				}
				content = strings.TrimRight(string(raw), "\n")
			}
			r, err := c.SendMessageWithResponse(cmd.Context(), args[0], nil, api.SendMessage{Content: content, WhenBusy: api.WhenBusy(busy)})
			m, err := answer(err, func() *api.MessageAccepted { return r.JSON202 })
			if err != nil {
				return err
			}
			if !watch {
				return o.Show(cmd.OutOrStdout(), m, func(w io.Writer) {
					fmt.Fprintf(w, "sent; run %s answers. Follow it: holdfast session watch %s\n", m.RunID, args[0])
				})
			}
			_, err = follow(cmd.Context(), c, cmd.OutOrStdout(), o, args[0], from{run: m.RunID}, untilRun(m.RunID))
			return err
		},
	}
	cmd.Flags().StringVar(&busy, "when-busy", "queue", "while a run is open: queue, reject or cancel")
	Words(cmd, "when-busy", string(api.WhenBusyQueue), string(api.WhenBusyReject), string(api.WhenBusyCancel))
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "follow it until its run ends or waits for somebody")
	return cmd
}

func sessionTerminate(o *Options) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "terminate SESSION", Short: "End a session for good", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.Client()
			if err != nil {
				return err
			}
			r, err := c.TerminateSessionWithResponse(cmd.Context(), args[0], nil, api.TerminateSession{Reason: reason})
			s, err := answer(err, func() *api.Session { return r.JSON202 })
			if err != nil {
				return err
			}
			return o.Show(cmd.OutOrStdout(), s, func(w io.Writer) { describe(w, s) })
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; it is kept in the log")
	return cmd
}

func sessionCancel(o *Options) *cobra.Command {
	return &cobra.Command{
		Use: "cancel SESSION [RUN]", Short: "Cancel a run: the named one, else the open one", Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.Client()
			if err != nil {
				return err
			}
			var run string
			if len(args) == 2 {
				run = args[1]
			} else {
				r, err := c.GetSessionWithResponse(cmd.Context(), args[0], nil)
				s, err := answer(err, func() *api.Session { return r.JSON200 })
				if err != nil {
					return err
				}
				if run = s.Run; run == "" {
					return fmt.Errorf("session %s has no open run; its runs are in holdfast session watch %s", s.ID, s.ID)
				}
			}
			r, err := c.CancelRunWithResponse(cmd.Context(), args[0], run, nil)
			s, err := answer(err, func() *api.Session { return r.JSON202 })
			if err != nil {
				return err
			}
			return o.Show(cmd.OutOrStdout(), s, func(w io.Writer) { fmt.Fprintf(w, "run %s is being cancelled\n", run) })
		},
	}
}

// move is a command that changes a session's life and shows it.
func move(
	o *Options, name, short string, do func(context.Context, *apiclient.ClientWithResponses, string) (*api.Session, error),
) *cobra.Command {
	return &cobra.Command{
		Use: name + " SESSION", Short: short, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.Client()
			if err != nil {
				return err
			}
			s, err := do(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			return o.Show(cmd.OutOrStdout(), s, func(w io.Writer) { describe(w, s) })
		},
	}
}
