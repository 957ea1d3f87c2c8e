package app

import (
	"context"
	"slices"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/command"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
	"github.com/holdfast-io/holdfast/services/policy/internal/decider"
)

// Handlers gives the service's verbs.
func (a *App) Handlers() map[string]command.Handler {
	return map[string]command.Handler{
		verbs.Propose:      a.propose,
		verbs.ReadCall:     a.readCall,
		verbs.Start:        a.start,
		verbs.Complete:     a.complete,
		verbs.Deliver:      a.deliver,
		verbs.Answer:       a.answer,
		verbs.PolicyApply:  a.applyPolicy,
		verbs.PolicyRemove: a.removePolicy,
	}
}

func (a *App) execute(
	ctx context.Context, tenant string, req command.Request, decide eventlog.Decide[*session.State],
) (eventlog.Result, error) {
	subject, err := sessionSubject(tenant, req.Session)
	if err != nil {
		return eventlog.Result{}, err
	}
	return a.sessions.Execute(ctx, subject, eventlog.Command{ID: req.CommandID, Actor: req.Actor, Trace: req.Trace}, decide)
}

func sessionSubject(tenant, id string) (string, error) {
	subject, err := events.SessionSubject(tenant, id)
	if err != nil {
		return "", notFound()
	}
	return subject, nil
}

func notFound() error {
	return problem.New(api.CodeNotFound, "there is no such session or call in this tenant")
}

// read hands the session's state to view, confirmed by a leader read.
func (a *App) read(ctx context.Context, tenant, id string, view func(*session.State) error) error {
	subject, err := sessionSubject(tenant, id)
	if err != nil {
		return err
	}
	return a.sessions.Read(ctx, subject, func(s eventlog.Snapshot[*session.State]) error {
		if !s.Exists() {
			return notFound()
		}
		return view(s.State)
	})
}

func (a *App) propose(ctx context.Context, tenant string, req command.Request) (command.Reply, error) {
	body, err := command.Decode[verbs.ProposeBody](req)
	if err != nil {
		return command.Reply{}, err
	}
	args, hash, err := events.CanonicalArgs(body.Args)
	if err != nil || args[0] != '{' {
		return command.Reply{}, problem.New(api.CodeInvalidRequest, "args has to be a JSON object without repeated keys").
			At("/args", "not an object that has a canonical form")
	}
	cmd := decider.Propose{
		CallID:      events.CallID(req.Session, body.AgentCallID, body.Tool, hash),
		AgentCallID: body.AgentCallID, RunID: body.RunID, Tool: body.Tool, Args: args, Hash: hash, Modes: body.Modes,
	}
	var name string
	if err := a.read(ctx, tenant, req.Session, func(s *session.State) error {
		name = s.Terms.Policy
		return nil
	}); err != nil {
		return command.Reply{}, err
	}
	if cmd.Policy, err = a.inForce(ctx, tenant, name); err != nil {
		return command.Reply{}, err
	}
	res, err := a.execute(ctx, tenant, req, cmd.Decide)
	if err != nil {
		return command.Reply{}, err
	}
	return a.callReply(ctx, tenant, req.Session, cmd.CallID, res)
}

func (a *App) readCall(ctx context.Context, tenant string, req command.Request) (command.Reply, error) {
	body, err := command.Decode[verbs.ReadCallBody](req)
	if err != nil {
		return command.Reply{}, err
	}
	return a.callReply(ctx, tenant, req.Session, body.Call, eventlog.Result{})
}

// callReply words the state of a call for its agent, from a confirming read: an
// allow is never said from a cache that another process may have outdated.
func (a *App) callReply(ctx context.Context, tenant, id, call string, res eventlog.Result) (command.Reply, error) {
	var out verbs.CallResult
	err := a.read(ctx, tenant, id, func(s *session.State) error {
		c := s.Calls[call]
		if c == nil {
			return notFound()
		}
		out = callResult(c)
		if res.N == 0 {
			res.N, res.Seq = s.N, s.Seq
		}
		return nil
	})
	if err != nil {
		return command.Reply{}, err
	}
	return command.Result(res.N, res.Seq, res.Repeated, out)
}

func callResult(c *session.Call) verbs.CallResult {
	out := verbs.CallResult{Call: c.ID, State: string(c.State), ArgsHash: c.ArgsHash, Rule: c.Rule, Reason: c.Reason}
	if c.Answer != nil && c.Answer.Comment != "" {
		out.Reason = c.Answer.Comment
	}
	allowed := []session.CallState{
		session.CallStateAllowed, session.CallStateApproved, session.CallStateStarted, session.CallStateDelegated,
		session.CallStateCompleted,
	}
	switch {
	case c.State == session.CallStatePending:
		out.Decision, out.Mode = "ask", c.Asked.Mode
	case slices.Contains(allowed, c.State):
		out.Decision = "allow"
	default:
		out.Decision = "deny"
		if out.Reason == "" {
			out.Reason = "the call is " + string(c.State)
		}
	}
	return out
}

func (a *App) start(ctx context.Context, tenant string, req command.Request) (command.Reply, error) {
	body, err := command.Decode[verbs.StartBody](req)
	if err != nil {
		return command.Reply{}, err
	}
	cmd := decider.Start{CallID: body.Call, RunID: body.RunID, Hash: body.ArgsHash, Nonce: body.Nonce}
	res, err := a.execute(ctx, tenant, req, cmd.Decide)
	if err != nil {
		return command.Reply{}, err
	}
	return command.Result(res.N, res.Seq, res.Repeated, struct {
		Go bool `json:"go"`
	}{true})
}

func (a *App) complete(ctx context.Context, tenant string, req command.Request) (command.Reply, error) {
	body, err := command.Decode[verbs.CompleteBody](req)
	if err != nil {
		return command.Reply{}, err
	}
	cmd := decider.Complete{RunID: body.RunID, Result: session.CallCompleted{
		CallID: body.Call, Nonce: body.Nonce, ExitCode: body.ExitCode, Output: body.Output,
		Truncated: body.Truncated, Error: body.Error, Result: body.Result,
	}}
	res, err := a.execute(ctx, tenant, req, cmd.Decide)
	return command.Reply{N: res.N, Seq: res.Seq, Repeated: res.Repeated}, err
}

func (a *App) deliver(ctx context.Context, tenant string, req command.Request) (command.Reply, error) {
	body, err := command.Decode[verbs.DeliverBody](req)
	if err != nil {
		return command.Reply{}, err
	}
	res, err := a.execute(ctx, tenant, req, decider.Deliver(body).Decide)
	return command.Reply{N: res.N, Seq: res.Seq, Repeated: res.Repeated}, err
}

func (a *App) answer(ctx context.Context, tenant string, req command.Request) (command.Reply, error) {
	body, err := command.Decode[verbs.AnswerBody](req)
	if err != nil {
		return command.Reply{}, err
	}
	if req.Actor.Kind != events.ActorPerson {
		return command.Reply{}, problem.New(api.CodeNotAnApprover, "only people answer")
	}
	if body.Decision != decider.Approve && body.Decision != decider.Deny {
		return command.Reply{}, problem.New(api.CodeInvalidRequest, "decision has to be approve or deny").At("/decision", "unknown")
	}
	cmd := decider.Answer{
		CallID: body.Call, Decision: body.Decision, Hash: body.ArgsHash, Comment: body.Comment,
		By: req.Actor.ID, Roles: req.Roles, Groups: req.Groups,
	}
	res, err := a.execute(ctx, tenant, req, cmd.Decide)
	if err != nil {
		return command.Reply{N: res.N, Seq: res.Seq}, err
	}
	return a.answerReply(ctx, tenant, req, body.Call, res)
}

func (a *App) answerReply(ctx context.Context, tenant string, req command.Request, id string, res eventlog.Result) (command.Reply, error) {
	out := verbs.AnswerResult{First: len(res.Records) > 0 && !res.Repeated}
	err := a.read(ctx, tenant, req.Session, func(s *session.State) error {
		c := s.Calls[id]
		if err := refusedBefore(c, res); err != nil || c == nil || c.Answer == nil {
			return err
		}
		out.Call, out.State, out.Decision = c.ID, string(c.State), c.Answer.Decision
		out.By, out.At = c.Answer.By, c.Answer.At
		return nil
	})
	if err != nil {
		return command.Reply{N: res.N, Seq: res.Seq}, err
	}
	return command.Result(res.N, res.Seq, res.Repeated, out)
}

// refusedBefore gives the same refusal again, with the winner, to a repeated command
// whose answer was refused and recorded.
func refusedBefore(c *session.Call, res eventlog.Result) error {
	for _, r := range res.Records {
		p, err := session.Decode(r, events.ServicePolicy)
		if err != nil {
			return err
		}
		if refused, ok := p.(session.CallAnswerRefused); ok {
			if refused.Code == string(api.CodeAlreadyDecided) && c != nil && c.Answer != nil {
				return decider.AlreadyDecided(c)
			}
			return problem.New(api.Code(refused.Code), "this answer was refused before, for the same reason")
		}
	}
	return nil
}
