package app

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/command"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
	"github.com/holdfast-io/holdfast/services/runner/internal/drive"
	"github.com/holdfast-io/holdfast/services/runner/internal/transcript"
)

// Delegate implements drive.Delegator. It is the agent that proposes: the runner only
// passes on what the agent's run ended with.
func (a *App) Delegate(ctx context.Context, run drive.Run, call transcript.ToolCall) (string, error) {
	body, err := json.Marshal(verbs.ProposeBody{
		AgentCallID: call.ID, RunID: run.ID, Tool: call.Name, Args: arguments(call.Args), Modes: []string{session.ModeDelegate},
	})
	if err != nil {
		return "", err
	}
	reply, err := a.commands.Do(ctx, events.ServicePolicy, run.Tenant, verbs.Propose, command.Request{
		// The call's id follows from the call, so repeating it asks nothing twice.
		CommandID: events.RandomID(events.PrefixCommand), Actor: events.Actor{Kind: events.ActorAgent, ID: run.Session},
		Session: run.Session, Body: body,
	})
	if err != nil {
		return "", err
	}
	var out verbs.CallResult
	if err := json.Unmarshal(reply.Result, &out); err != nil {
		return "", fmt.Errorf("result of %s: %w", verbs.Propose, err)
	}
	return out.Call, nil
}

// arguments are what the policy is shown. What isn't JSON goes as a string, which it
// refuses by saying so.
func arguments(said string) json.RawMessage {
	switch {
	case said == "":
		return json.RawMessage("{}")
	case json.Valid([]byte(said)):
		return json.RawMessage(said)
	}
	quoted, err := json.Marshal(said)
	if err != nil {
		return nil // a string is always JSON
	}
	return quoted
}
