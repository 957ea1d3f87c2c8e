// Package session is the session service: it takes clients' commands on a
// session's life, reacts to what becomes of its workload, runs and calls, and
// acts on its deadlines. It appends session.* and nothing else.
//
//	cmd.session.<tenant>.{create,send,suspend,resume,extend,terminate,note-activity}
//	      │ load → decide (internal/decider, pure) → append → retry on conflict
//	      ▼
//	ev.<tenant>.s.<session>  ──▶ reactor: settle (ended, resume when a run is due)
//	deadlines view ──────────▶ sweep, once a second: idle, waiting, max
package session

import (
	"context"
	"fmt"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/services/internal/command"
	"github.com/holdfast-io/holdfast/services/internal/serving"
	"github.com/holdfast-io/holdfast/services/session/internal/app"
	"github.com/holdfast-io/holdfast/services/session/internal/decider"
)

// Config is what the service needs.
type Config = serving.Config

// Run serves until ctx ends, then finishes what it has begun.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("session service: %w", err)
	}
	a := newApp(cfg)
	return serving.Run(ctx, cfg, serving.Parts{
		Service: events.ServiceSession, Handlers: a.Handlers(), Interested: decider.Interested, Settle: a.Settle, Due: a.Due,
	})
}

// Commands gives the handlers of the service's verbs alone, without its reactor
// and its sweep, for a program that issues commands in its own process, as the
// benchmarks do. It needs Log and Epoch of the config.
func Commands(cfg Config) map[string]command.Handler { return newApp(cfg).Handlers() }

func newApp(cfg Config) *app.App {
	return app.New(app.Config{Log: cfg.Log, Epoch: cfg.Epoch, Copy: cfg.Copy, Now: cfg.Now})
}
