package agentside

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/agentserver"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/projections/view"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
)

// decisionAsk is the policy's word while a person is awaited.
const decisionAsk = "ask"

// hashPrefix may stand before a hash; services know the bare one.
const hashPrefix = "sha256:"

// ProposeCall asks the policy before the agent acts.
func (a *Agents) ProposeCall(ctx context.Context, req agentserver.ProposeCallRequestObject) (agentserver.ProposeCallResponseObject, error) {
	modes := make([]string, len(req.Body.Modes))
	for i, m := range req.Body.Modes {
		modes[i] = string(m)
	}
	if len(modes) == 0 {
		modes = []string{string(api.CallModeHold), string(api.CallModePark)}
	}
	if err := verbs.CheckContent("/args", "The arguments", len(req.Body.Args), verbs.MaxContentBytes); err != nil {
		return nil, err
	}
	var call verbs.CallResult
	err := a.ask(ctx, verbs.Propose, verbs.ProposeBody{
		AgentCallID: req.Body.AgentCallID, RunID: req.Body.RunID, Tool: req.Body.Tool, Args: req.Body.Args, Modes: modes,
	}, &call)
	if err == nil && call.Mode == string(api.CallModeHold) {
		call, err = a.hold(ctx, call, holdFor)
	}
	if err != nil {
		return nil, err
	}
	if call.Decision == decisionAsk {
		return agentserver.ProposeCall202JSONResponse(waiting(call)), nil
	}
	return agentserver.ProposeCall200JSONResponse(decided(call)), nil
}

// GetCall asks how a call of the session stands, waiting for its answer as long as
// the agent says.
func (a *Agents) GetCall(ctx context.Context, req agentserver.GetCallRequestObject) (agentserver.GetCallResponseObject, error) {
	if err := own(ctx, req.ID); err != nil {
		return nil, err
	}
	call, err := a.readCall(ctx, req.ID)
	if err == nil && req.Params.Wait != nil {
		call, err = a.hold(ctx, call, time.Duration(*req.Params.Wait)*time.Second)
	}
	if err != nil {
		return nil, err
	}
	if call.Decision == decisionAsk {
		return agentserver.GetCall202JSONResponse(waiting(call)), nil
	}
	return agentserver.GetCall200JSONResponse(decided(call)), nil
}

// hold waits for a question's answer and then reads it from policy, whose read is
// the one that may say allow. When the time is over it is the same question still.
func (a *Agents) hold(ctx context.Context, call verbs.CallResult, atMost time.Duration) (verbs.CallResult, error) {
	if call.Decision != decisionAsk || atMost <= 0 {
		return call, nil
	}
	who := claimsOf(ctx)
	err := a.cfg.Live.Wait(ctx, who.Tenant, who.Session, atMost, func(s *session.State) bool {
		c := s.Calls[call.Call]
		// An agent whose sandbox is gone waits for nothing.
		return c == nil || c.State.Answered() || !current(who, s)
	})
	if err != nil {
		return call, err
	}
	return a.readCall(ctx, call.Call)
}

func (a *Agents) readCall(ctx context.Context, id string) (verbs.CallResult, error) {
	var call verbs.CallResult
	err := a.ask(ctx, verbs.ReadCall, verbs.ReadCallBody{Call: id}, &call)
	return call, err
}

// own refuses a call of another session as if it weren't there.
func own(ctx context.Context, id string) error {
	if in, ok := events.SessionOfCall(id); !ok || in != claimsOf(ctx).Session {
		return problem.New(api.CodeNotFound, "There is no such call in this session.")
	}
	return nil
}

func decided(c verbs.CallResult) api.CallDecided {
	return api.CallDecided{
		Call: c.Call, Decision: api.CallVerdict(c.Decision), ArgsHash: c.ArgsHash, Rule: c.Rule, Reason: c.Reason,
	}
}

func waiting(c verbs.CallResult) api.CallWaiting {
	return api.CallWaiting{Call: c.Call, Approval: c.Call, ArgsHash: c.ArgsHash, Mode: api.CallMode(c.Mode)}
}

// StartCall records that the agent begins, and only then tells it to.
func (a *Agents) StartCall(ctx context.Context, req agentserver.StartCallRequestObject) (agentserver.StartCallResponseObject, error) {
	if err := own(ctx, req.ID); err != nil {
		return nil, err
	}
	if err := a.ask(ctx, verbs.Start, verbs.StartBody{
		Call: req.ID, RunID: req.Body.RunID, ArgsHash: strings.TrimPrefix(req.Body.ArgsHash, hashPrefix), Nonce: req.Body.Nonce,
	}, nil); err != nil {
		return nil, err
	}
	return agentserver.StartCall200JSONResponse{Go: true}, nil
}

// CompleteCall records what came of a call.
func (a *Agents) CompleteCall(ctx context.Context, req agentserver.CompleteCallRequestObject) (agentserver.CompleteCallResponseObject, error) {
	if err := own(ctx, req.ID); err != nil {
		return nil, err
	}
	body := req.Body
	if err := verbs.CheckContent("/output", "The output", len(body.Output), verbs.MaxContentBytes); err != nil {
		return nil, err
	}
	if err := a.ask(ctx, verbs.Complete, verbs.CompleteBody{
		Call: req.ID, RunID: body.RunID, Nonce: body.Nonce, ExitCode: body.ExitCode, Output: body.Output,
		Truncated: body.Truncated, Error: body.Error,
	}, nil); err != nil {
		return nil, err
	}
	who := claimsOf(ctx)
	var out api.Call
	err := a.cfg.Live.Session(ctx, who.Tenant, who.Session, func(s *session.State) error {
		c := s.Calls[req.ID]
		if c == nil {
			return own(ctx, "")
		}
		v := view.CallOf(c)
		out = api.Call{ID: v.ID, State: api.CallState(v.State), N: v.N}
		return nil
	})
	return agentserver.CompleteCall200JSONResponse(out), err
}
