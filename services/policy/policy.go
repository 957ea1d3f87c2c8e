// Package policy is the policy service: it decides agents' calls by the policy in
// force, puts questions to people, takes their answers, lets calls start at most
// once, and closes what can't go on. It appends call.* and policy.* and nothing
// else.
//
//	cmd.policy.<tenant>.{propose,read-call,start,complete,deliver,answer,policy-apply,policy-remove}
//	      │ internal/rules (CEL) → internal/decider (pure) → append
//	      ▼
//	ev.<tenant>.s.<session>, ev.<tenant>.policy.<name>
//	reactor: a run or a session is over → its calls are cancelled or lapse
//	sweep, once a second: approval and execution deadlines
package policy

import (
	"context"
	"fmt"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/services/internal/serving"
	"github.com/holdfast-io/holdfast/services/policy/internal/app"
	"github.com/holdfast-io/holdfast/services/policy/internal/decider"
)

// Config is what the service needs.
type Config = serving.Config

// Run serves until ctx ends, then finishes what it has begun.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("policy service: %w", err)
	}
	a := app.New(app.Config{Log: cfg.Log, Epoch: cfg.Epoch, Copy: cfg.Copy, Now: cfg.Now})
	return serving.Run(ctx, cfg, serving.Parts{
		Service: events.ServicePolicy, Handlers: a.Handlers(), Interested: decider.Interested, Settle: a.Settle, Due: a.Due,
	})
}
