package cli

import (
	"context"
	"encoding/json"

	tea "charm.land/bubbletea/v2"

	"github.com/holdfast-io/holdfast/api"
)

// approvalOf reads a prompt's frame.
func approvalOf(f api.Frame) (api.Approval, bool) {
	var a api.Approval
	return a, json.Unmarshal(f.Data, &a) == nil
}

// read asks for the session as it is.
func (a actions) read() tea.Msg {
	r, err := a.client.GetSessionWithResponse(a.ctx, a.session, nil)
	s, err := answer(err, func() *api.Session { return r.JSON200 })
	return sessionMsg{s, err}
}

// move calls something that changes the session's life.
func (a actions) move(what string, call func(context.Context) error) tea.Cmd {
	return func() tea.Msg { return doneMsg{what, call(a.ctx)} }
}

func (a actions) suspend(ctx context.Context) error {
	_, err := a.client.SuspendSessionWithResponse(ctx, a.session, nil)
	return err
}

func (a actions) resume(ctx context.Context) error {
	_, err := a.client.ResumeSessionWithResponse(ctx, a.session, nil)
	return err
}

func (a actions) cancel(run string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := a.client.CancelRunWithResponse(ctx, a.session, run, nil)
		return err
	}
}

func (a actions) send(text string) tea.Cmd {
	return a.move("sent", func(ctx context.Context) error {
		_, err := a.client.SendMessageWithResponse(ctx, a.session, nil, api.SendMessage{Content: text, WhenBusy: api.WhenBusyQueue})
		return err
	})
}

// decide answers a question, exactly as it was shown.
func (a actions) decide(q api.Approval, decision api.Answer, comment string) tea.Cmd {
	said := map[api.Answer]string{api.AnswerApprove: "approved", api.AnswerDeny: "denied"}[decision]
	return a.move(said, func(ctx context.Context) error {
		_, err := a.client.DecideApprovalWithResponse(ctx, q.ID, nil, api.DecideApproval{
			Decision: decision, ArgsHash: q.ArgsHash, Comment: comment,
		})
		return err
	})
}
