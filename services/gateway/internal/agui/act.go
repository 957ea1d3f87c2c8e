package agui

import (
	"bytes"
	"context"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
)

// act does what the request asks: cancels, or answers, brings results, and sends. The
// first refusal ends it; what was done before stands, and is found done when the
// request is repeated.
func (x *exchange) act(ctx context.Context) error {
	if x.in.cancel {
		return x.cancel(ctx)
	}
	for _, a := range x.in.Resume {
		if err := x.answer(ctx, a); err != nil {
			return err
		}
	}
	for _, r := range x.news.results {
		if err := x.do(ctx, events.ServicePolicy, verbs.Deliver, events.RandomID(events.PrefixCommand), r); err != nil {
			return err
		}
	}
	return x.send(ctx)
}

// cancelTries is how often what runs is looked at again where a run that was to be
// cancelled had gone on in another.
const cancelTries = 3

// cancel ends what is open, parked or queued.
func (x *exchange) cancel(ctx context.Context) error {
	s := x.standing
	for range cancelTries {
		gone, err := x.cancelRuns(ctx, s)
		if err != nil || !gone {
			return err
		}
		// It has ended meanwhile, or a question was answered and its run goes on.
		if s, err = x.read(ctx); err != nil {
			return err
		}
	}
	return nil
}

// cancelRuns cancels the runs of a thread as it stood. gone says that one of them was
// over.
func (x *exchange) cancelRuns(ctx context.Context, s *standing) (gone bool, _ error) {
	var runs []string
	if s.run != nil {
		runs = append(runs, s.run.ID)
	}
	if s.interrupted != nil {
		runs = append(runs, s.interrupted.RunID)
	}
	for _, run := range append(runs, s.queue...) {
		err := x.do(ctx, events.ServiceRunner, verbs.CancelRun, events.RandomID(events.PrefixCommand), verbs.CancelRunBody{RunID: run})
		switch p := problem.From(err); {
		case p != nil && p.Code == api.CodeIllegalTransition:
			gone = true
		case p != nil:
			return gone, err
		}
	}
	return gone, nil
}

// send queues the new messages as one run. Only behind an answer or a result of the
// same request may they wait; else a thread that is busy refuses them.
func (x *exchange) send(ctx context.Context) error {
	if len(x.news.messages) == 0 {
		return nil
	}
	run, busy := runOf(x.id, x.in.RunID), "reject"
	if len(x.in.Resume)+len(x.news.results) > 0 {
		busy = "queue"
	}
	parts := []string{x.id, "agui", x.in.RunID}
	for _, m := range x.news.messages {
		parts = append(parts, m.ID)
	}
	x.sent = run
	return x.do(ctx, events.ServiceSession, verbs.Send, events.HashID(events.PrefixCommand, parts...), verbs.SendBody{
		Messages: x.news.messages, RunID: run, Tools: x.in.Tools, WhenBusy: busy,
	})
}

// answer gives one answer of resume[] to the call that its interrupt is about. The id
// of a call is made of its arguments' hash, so to name the interrupt is to echo what
// was shown; a hash that is echoed besides has to be the same.
func (x *exchange) answer(ctx context.Context, a answer) error {
	call, err := x.call(ctx, a.InterruptID)
	if err != nil {
		return err
	}
	if a.Status == statusCancelled {
		if call.State != session.CallStatePending {
			return nil // it is settled; there is nothing to dismiss
		}
		err := x.decide(ctx, call, api.AnswerDeny, call.ArgsHash, "dismissed by the client")
		if p := problem.From(err); p != nil && (p.Code == api.CodeApprovalExpired || p.Code == api.CodeAlreadyDecided) {
			return nil // it was settled meanwhile
		}
		return err
	}
	hash := a.Payload.ArgsHash
	if hash == "" {
		hash = call.ArgsHash
	}
	if edited := a.Payload.EditedArgs; len(edited) > 0 && !bytes.Equal(edited, []byte("null")) {
		if _, over, err := events.CanonicalArgs(edited); err != nil || over != call.ArgsHash {
			return problem.New(api.CodeArgsChanged,
				"Arguments can't be edited in an answer: deny the call and tell the agent what to do instead.")
		}
	}
	decision := api.AnswerDeny
	if *a.Payload.Approved {
		decision = api.AnswerApprove
	}
	comment := a.Payload.Comment
	if comment == "" {
		comment = a.Payload.Reason
	}
	return x.decide(ctx, call, decision, hash, comment)
}

func (x *exchange) decide(ctx context.Context, call *session.Call, decision api.Answer, hash, comment string) error {
	return x.cfg.Decide(ctx, call.ID, api.DecideApproval{Decision: decision, ArgsHash: hash, Comment: clip(comment)})
}

// call finds a call of the thread.
func (x *exchange) call(ctx context.Context, id string) (*session.Call, error) {
	var found *session.Call
	err := x.cfg.Live.Session(ctx, x.who.Tenant, x.id, func(s *session.State) error {
		c := s.Calls[id]
		if c == nil {
			return problem.New(api.CodeNotFound, "There is no such interrupt in this thread.")
		}
		known := *c
		found = &known
		return nil
	})
	return found, err
}

// maxComment is the longest comment that a decision takes.
const maxComment = 2000

func clip(s string) string {
	r := []rune(s)
	return string(r[:min(len(r), maxComment)])
}
