package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
)

// Approvals is `holdfast approvals …`.
func Approvals(o *Options) *cobra.Command {
	cmd := &cobra.Command{Use: "approvals", Short: "See and answer what agents ask", Aliases: []string{"approval"}}
	each := []*cobra.Command{
		approvalsShow(o),
		approvalsDecide(o, "approve", "Let the call run, exactly as shown", api.AnswerApprove),
		approvalsDecide(o, "deny", "Refuse the call", api.AnswerDeny),
	}
	o.completed(openApprovals, each...)
	cmd.AddCommand(each...)
	cmd.AddCommand(approvalsList(o), approvalsWatch(o))
	return cmd
}

func approvalsList(o *Options) *cobra.Command {
	var (
		states []string
		page   paging
	)
	cmd := &cobra.Command{
		Use: "list", Short: "List what waits for an answer", Args: cobra.NoArgs, Aliases: []string{"ls"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.Client()
			if err != nil {
				return err
			}
			params := &api.ListApprovalsParams{Limit: &page.limit}
			set(&params.Cursor, page.cursor)
			for _, s := range states {
				params.State = appendTo(params.State, api.CallState(s))
			}
			r, err := c.ListApprovalsWithResponse(cmd.Context(), params)
			list, err := answer(err, func() *api.ApprovalList { return r.JSON200 })
			if err != nil {
				return err
			}
			return o.Show(cmd.OutOrStdout(), list, func(w io.Writer) {
				approvalTable(w, o, list.Items, slices.Equal(states, pendingOnly))
				more(w, list.Next)
			})
		},
	}
	page.flags(cmd)
	cmd.Flags().StringSliceVar(&states, "state", pendingOnly, "only these states, such as approved, denied, expired, completed")
	Words(cmd, "state", "proposed", "allowed", "pending", "approved", "denied", "expired", "cancelled", "superseded", "started", "delegated", "completed", "lapsed")
	return cmd
}

// pendingOnly are the states that wait for an answer.
var pendingOnly = []string{string(api.CallStatePending)}

func approvalTable(w io.Writer, o *Options, approvals []api.Approval, open bool) {
	switch {
	case len(approvals) == 0 && open:
		fmt.Fprintln(w, "Nothing waits for an answer.")
		return
	case len(approvals) == 0:
		fmt.Fprintln(w, "There are none in these states.")
		return
	}
	rows := make([][]string, len(approvals))
	for i, a := range approvals {
		deadline := "never"
		if !a.Deadline.IsZero() {
			deadline = clock(a.Deadline)
		}
		rows[i] = []string{a.ID, string(a.State), a.Tool, shortened(compact(a.Args), 60), a.Requester, deadline}
	}
	table(w, []string{"APPROVAL", "STATE", "TOOL", "ARGUMENTS", "REQUESTER", "DEADLINE"}, rows)
	if open {
		fmt.Fprintf(w, "\nSee one whole: %s. Answer: %s\n", o.hint("approvals show ID"), o.hint("approvals approve|deny ID"))
	}
}

// shortened says plainly where something is left out: a table is no place to
// decide by.
func shortened(s string, most int) string {
	s = safe(s)
	if r := []rune(s); len(r) > most {
		return fmt.Sprintf("%s… (%d more)", string(r[:most]), len(r)-most)
	}
	return s
}

func approvalsShow(o *Options) *cobra.Command {
	return &cobra.Command{
		Use: "show APPROVAL", Short: "Show a question with exactly what would run", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.Client()
			if err != nil {
				return err
			}
			a, err := approval(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			return o.Show(cmd.OutOrStdout(), a, func(w io.Writer) { question(w, *a) })
		},
	}
}

func approval(ctx context.Context, c *apiclient.ClientWithResponses, id string) (*api.Approval, error) {
	r, err := c.GetApprovalWithResponse(ctx, id, nil)
	return answer(err, func() *api.Approval { return r.JSON200 })
}

// question prints a prompt: what is ours plainly, the agent's arguments whole.
func question(w io.Writer, a api.Approval) {
	fmt.Fprintf(w, "The agent wants to run %s in session %s\n", safe(a.Tool), a.Session)
	for l := range strings.SplitSeq(pretty(a.Args), "\n") {
		fmt.Fprintln(w, "    "+safe(l))
	}
	if a.Message != "" {
		fmt.Fprintf(w, "  message    %s\n", safe(a.Message))
	}
	fmt.Fprintf(w, "  state      %s\n  rule       %q of policy %s@%d (%s)\n  isolation  %s\n  requester  %s\n  args hash  %s\n",
		a.State, a.Rule, a.Policy, a.Revision, a.Enforcement, firstOf(a.Isolation, "unknown"), a.Requester, a.ArgsHash)
	if !a.Deadline.IsZero() {
		fmt.Fprintf(w, "  deadline   %s\n", clock(a.Deadline))
	}
	if a.Decision.By != "" {
		fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("  answered   %s by %s at %s %s",
			a.Decision.Decision, a.Decision.By, clock(a.Decision.At), safe(a.Decision.Reason)), " "))
	}
	fmt.Fprintf(w, "  id         %s\n", a.ID)
}

func pretty(raw json.RawMessage) string {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return string(raw)
	}
	return encode(v, "  ", string(raw))
}

func approvalsDecide(o *Options, name, short string, decision api.Answer) *cobra.Command {
	var comment, hash string
	cmd := &cobra.Command{
		Use: name + " APPROVAL", Short: short, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.Client()
			if err != nil {
				return err
			}
			if hash == "" { // what is shown now is what is answered
				a, err := approval(cmd.Context(), c, args[0])
				if err != nil {
					return err
				}
				if hash = a.ArgsHash; o.Output != "json" {
					question(cmd.OutOrStdout(), *a)
				}
			}
			r, err := c.DecideApprovalWithResponse(cmd.Context(), args[0], nil, api.DecideApproval{
				Decision: decision, ArgsHash: hash, Comment: comment,
			})
			a, err := answer(err, func() *api.Approval {
				if r.JSON201 != nil {
					return r.JSON201
				}
				return r.JSON200
			})
			if err != nil {
				return err
			}
			return o.Show(cmd.OutOrStdout(), a, func(w io.Writer) { fmt.Fprintf(w, "→ %s\n", a.State) })
		},
	}
	cmd.Flags().StringVarP(&comment, "comment", "c", "", "why; the agent and the audit see it")
	cmd.Flags().StringVar(&hash, "args-hash", "", "answer only if the arguments have this hash (default: those shown now)")
	return cmd
}

func approvalsWatch(o *Options) *cobra.Command {
	return &cobra.Command{
		Use: "watch", Short: "Print questions, answers and what else happens in all sessions, as it comes", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.Client()
			if err != nil {
				return err
			}
			return followInbox(cmd.Context(), c, cmd.OutOrStdout(), o)
		},
	}
}
