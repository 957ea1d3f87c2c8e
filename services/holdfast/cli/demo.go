package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
)

// demoLines are what the demo's agent is told to do: two things that the default
// policy lets through, one that a person is asked about, one that it never allows.
const demoLines = "echo hello from the sandbox\nid\necho 'written by an agent' > note.txt && cat note.txt\nsudo reboot"

// Demo is `holdfast demo`: alice creates a session, the agent asks, bob approves,
// and the timeline shows it all.
func Demo(o *Options) *cobra.Command {
	var answer bool
	cmd := &cobra.Command{
		Use: "demo", Short: "A walk in two minutes: a session, a question, an answer, the timeline", Args: cobra.NoArgs,
		Long: "Runs against the dev on this machine. Alice creates a session whose agent is to run four commands; the policy\n" +
			"lets two through, asks a person about one, and denies one. Bob approves. With --answer=false you are the one\n" +
			"who answers: in the console, or with 'holdfast approvals'.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo(cmd.Context(), o, cmd.OutOrStdout(), answer)
		},
	}
	cmd.Flags().BoolVar(&answer, "answer", true, "let bob answer by himself after a moment")
	return cmd
}

// as gives the client of another of dev's people.
func (o *Options) as(name string) (*apiclient.ClientWithResponses, error) {
	other := *o
	other.As, other.Token = name, ""
	return other.Client()
}

func demo(ctx context.Context, o *Options, w io.Writer, answers bool) error {
	alice, err := o.as("alice")
	if err != nil {
		return err
	}
	bob, err := o.as("bob")
	if err != nil {
		return err
	}
	fmt.Fprintln(w, "▸ alice creates a session of runtime shell and tells its agent:")
	fmt.Fprintf(w, "    %s\n\n", indent(demoLines))
	prefer := "wait=30"
	r, err := alice.CreateSessionWithResponse(ctx, &api.CreateSessionParams{Prefer: &prefer},
		api.CreateSession{Runtime: "shell", Message: demoLines, Labels: api.Labels{"demo": "yes"}})
	s, err := created(r, err)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "▸ session %s is %s, isolation %s. Its timeline:\n\n", s.ID, s.Phase, firstOf(s.Isolation, "not known yet"))
	last, err := follow(ctx, alice, w, o, s.ID, from{}, untilSettled)
	if err != nil {
		return err
	}
	if typeOf(last) != "run.interrupted" {
		return errors.New("the agent asked nobody: the policy of runtime shell is not the one that dev came with")
	}
	a, err := pending(ctx, bob, s.ID)
	if err != nil {
		return err
	}
	if answers {
		fmt.Fprintln(w, "\n▸ bob sees exactly that, and approves it:")
		d, err := bob.DecideApprovalWithResponse(ctx, a.ID, nil, api.DecideApproval{
			Decision: api.AnswerApprove, ArgsHash: a.ArgsHash, Comment: "fine for a demo",
		})
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "    HTTP %d: the first answer counts. The agent goes on:\n\n", d.StatusCode())
	} else {
		fmt.Fprintf(w, "\n▸ your turn: answer in the console, or\n    %s\n\n", o.hint("approvals approve "+a.ID))
	}
	if _, err := follow(ctx, alice, w, o, s.ID, from{cursor: last.Cursor}, untilSettled); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n▸ all of it is in the log. See it again:\n    %s\n    %s\n",
		o.hint("replay "+s.ID+" --speed 2"), o.hint("audit list --session "+s.ID))
	return nil
}

func created(r *apiclient.CreateSessionResponse, err error) (*api.Session, error) {
	return answer(err, func() *api.Session {
		if r.JSON201 != nil {
			return r.JSON201
		}
		return r.JSON200
	})
}

// pending finds the question that the session waits with.
func pending(ctx context.Context, c *apiclient.ClientWithResponses, session string) (*api.Approval, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		r, err := c.ListApprovalsWithResponse(ctx, &api.ListApprovalsParams{
			Session: &session, State: &[]api.CallState{api.CallStatePending},
		})
		l, err := answer(err, func() *api.ApprovalList { return r.JSON200 })
		if err != nil {
			return nil, err
		}
		if len(l.Items) > 0 {
			return &l.Items[0], nil
		}
		pause := time.NewTimer(100 * time.Millisecond) // the view follows the log
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil, fmt.Errorf("session %s asks nothing: was the policy changed?", session)
		}
	}
}
