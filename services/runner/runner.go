// Package runner is the runner service: it starts the turns that are due, takes
// what agents say from their sandboxes into OUTPUT and the log, and parks and ends
// runs. It appends run.* and nothing else.
//
//	ready, a message or the last answer ─▶ run.started ─▶ sandboxd drives the agent
//	spool (numbered by k) ─▶ OUTPUT batches, run.message-recorded
//	its end ─▶ run.finished | run.interrupted | run.failed
//
// A run is apart from any runner's life. Each instance answers pings under its
// id; an open run whose instance nobody answers for is taken over
// (run.taken-over) and goes on from the last published k.
package runner

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/output"
	"github.com/holdfast-io/holdfast/services/internal/serving"
	"github.com/holdfast-io/holdfast/services/runner/internal/app"
	"github.com/holdfast-io/holdfast/services/runner/internal/decider"
)

// Config is what the service needs.
type Config struct {
	serving.Config
	// Output is the OUTPUT stream.
	Output output.Stream
}

// Validate names what is missing.
func (c Config) Validate() error {
	if c.Output == nil {
		return errors.New("the runner needs Output")
	}
	return c.Config.Validate()
}

// Run serves until ctx ends. Runs under way go on in their sandboxes.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("runner service: %w", err)
	}
	a := app.New(app.Config{
		NC: cfg.NC, Log: cfg.Log, Epoch: cfg.Epoch, Copy: cfg.Copy, Output: cfg.Output, Logger: cfg.Logger, Now: cfg.Now,
	})
	return serving.Run(ctx, cfg.Config, serving.Parts{
		Service: events.ServiceRunner, Handlers: a.Handlers(), Interested: decider.Interested, Settle: a.Settle,
		Requeue: a.UseRequeue, Background: a.Background,
	})
}
