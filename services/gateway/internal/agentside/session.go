package agentside

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/agentserver"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/agentinput"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

// GetAgentSession says what the agent may know of the session it works in.
func (a *Agents) GetAgentSession(ctx context.Context, _ agentserver.GetAgentSessionRequestObject) (agentserver.GetAgentSessionResponseObject, error) {
	who := claimsOf(ctx)
	var out api.AgentSession
	err := a.cfg.Live.Session(ctx, who.Tenant, who.Session, func(s *session.State) error {
		out = api.AgentSession{
			ID: s.ID, Tenant: s.Tenant, Runtime: api.RuntimeRef{Name: s.Runtime.Name, Revision: s.Runtime.Revision},
			Generation: s.Workload.Generation, Isolation: s.Workload.Isolation, Config: slices.Clone(s.Config),
		}
		if s.Run != nil {
			out.Run = s.Run.ID
		}
		return nil
	})
	return agentserver.GetAgentSession200JSONResponse(out), err
}

// GetInput gives the RunAgentInput of the open run, for an agent that fetches it
// itself.
func (a *Agents) GetInput(ctx context.Context, req agentserver.GetInputRequestObject) (agentserver.GetInputResponseObject, error) {
	who := claimsOf(ctx)
	if req.Params.Wait != nil && *req.Params.Wait > 0 {
		atMost := time.Duration(*req.Params.Wait) * time.Second
		if err := a.cfg.Live.Wait(ctx, who.Tenant, who.Session, atMost, func(s *session.State) bool {
			return s.Run != nil || !current(who, s)
		}); err != nil {
			return nil, err
		}
	}
	var input json.RawMessage
	err := a.cfg.Live.Thread(ctx, who.Tenant, who.Session, func(t *agentinput.Thread) error {
		var err error
		input, err = agentinput.Build(t)
		return err
	})
	if err != nil {
		return nil, err
	}
	if input == nil {
		return agentserver.GetInput204Response{}, nil
	}
	return inputResponse(input), nil
}

// inputResponse writes the input as it is. The generated answer's type has lost
// the methods of json.RawMessage and would write base64.
type inputResponse json.RawMessage

// VisitGetInputResponse implements agentserver.GetInputResponseObject.
func (body inputResponse) VisitGetInputResponse(w http.ResponseWriter) error {
	w.Header().Set("Content-Type", "application/json")
	_, err := w.Write(body)
	return err
}

// pushProtocol is the adapter of agents that send their events themselves.
const pushProtocol = string(api.AdapterProtocolPush)

// PushEvents refuses: what agents say comes by the spool of their sandbox alone, else
// the same event could be told twice under two numbers. The sandboxd of an agent of the
// adapter push takes its events there, and never passes them on to here.
func (a *Agents) PushEvents(ctx context.Context, _ agentserver.PushEventsRequestObject) (agentserver.PushEventsResponseObject, error) {
	who := claimsOf(ctx)
	var adapter, phase string
	if err := a.cfg.Live.Session(ctx, who.Tenant, who.Session, func(s *session.State) error {
		adapter, phase = s.Terms.Adapter, string(s.Phase())
		return nil
	}); err != nil {
		return nil, err
	}
	detail := "Agents of the adapter " + adapter + " don't push events: theirs are read where they run."
	if adapter == pushProtocol {
		detail = "Events are taken in the sandbox: POST them to $HOLDFAST_URL/v1/agent/events there."
	}
	return nil, problem.New(api.CodeIllegalTransition, detail).In(phase)
}
