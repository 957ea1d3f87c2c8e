package drive

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/runner/internal/decider"
	"github.com/holdfast-io/holdfast/services/runner/internal/transcript"
)

// forClient are the tool calls that a run left to its client: those that its end
// names (AG-UI's pendingToolCallIds), or, where it names none, all unanswered ones of
// tools that the client offers, as agents before AG-UI 1.0 mean it. An error says
// that the end names what isn't there.
func (f *follower) forClient() ([]transcript.ToolCall, error) {
	unanswered := f.transcript.Unanswered()
	ending := f.transcript.Ending()
	if ending == nil || len(ending.Pending) == 0 {
		return unanswered, nil
	}
	pending := make([]transcript.ToolCall, len(ending.Pending))
	for i, id := range ending.Pending {
		at := slices.IndexFunc(unanswered, func(c transcript.ToolCall) bool { return c.ID == id })
		if at < 0 {
			return nil, fmt.Errorf("the run's end leaves the tool call %.64q to the client, but the run has no such call, of a tool that its client offers and without a result", id)
		}
		pending[i] = unanswered[at]
	}
	return pending, nil
}

// handOver puts the client's tool calls to the policy and parks the run on them: it
// goes on when each has its result, or won't have one. What the policy service
// refuses for good fails the run.
func (f *follower) handOver(ctx context.Context, pending []transcript.ToolCall, wrong error) error {
	if wrong != nil {
		return f.fail(ctx, decider.CauseProtocol, wrong.Error())
	}
	calls := make([]string, len(pending))
	for i, c := range pending {
		id, err := f.driver.Calls.Delegate(ctx, f.run, c)
		if p := problem.From(err); p != nil && p.Status() < 500 {
			return f.fail(ctx, decider.CauseProtocol, fmt.Sprintf("the tool call %.64q can't be left to the client: %s", c.ID, p.Detail))
		}
		if err != nil {
			return fmt.Errorf("delegate tool call %s: %w", c.ID, err)
		}
		calls[i] = id
	}
	return f.end(ctx, decider.Interrupt(f.run.Instance, session.RunInterrupted{
		RunID: f.run.ID, LastK: f.last, Calls: calls, State: f.transcript.State(),
	}))
}
