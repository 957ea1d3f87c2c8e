// Package policy is the policy service: it decides agents' calls by the policy in
// force, puts questions to people, takes their answers, lets calls start at most
// once, and closes what can't go on. It appends call.* and policy.* and nothing
// else.
//
//	cmd.policy.<tenant>.{propose,read-call,start,complete,answer,policy-apply,policy-remove}
//	      │ internal/rules (CEL) → internal/decider (pure) → append
//	      ▼
//	ev.<tenant>.s.<session>, ev.<tenant>.policy.<name>
//	reactor: a run or a session is over → its calls are cancelled or lapse
//	sweep, once a second: approval and execution deadlines
package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/command"
	"github.com/holdfast-io/holdfast/services/internal/deadlines"
	"github.com/holdfast-io/holdfast/services/internal/reactor"
	"github.com/holdfast-io/holdfast/services/policy/internal/app"
)

// Config is what the service needs. All fields without a default are required.
type Config struct {
	// NC is a connection as the NATS user "policy".
	NC *nats.Conn
	// Log is EVENTS, Epoch its genesis' epoch.
	Log   eventlog.Log
	Epoch string
	// Copy shortens cold loads; nil does without.
	Copy eventlog.Copy
	// Views tells what is due and what isn't settled.
	Views Views
	// Logger is required, Now defaults to time.Now.
	Logger *slog.Logger
	Now    func() time.Time
}

// Views is what the service reads from the projections.
type Views interface {
	deadlines.Reader
	Unsettled(ctx context.Context, service events.Service) ([]reactor.Key, error)
}

// Validate names what is missing.
func (c Config) Validate() error {
	if c.NC == nil || c.Log == nil || c.Epoch == "" || c.Views == nil || c.Logger == nil {
		return errors.New("policy service: NC, Log, Epoch, Views and Logger are required")
	}
	return nil
}

// Run serves until ctx ends, then finishes what it has begun.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	a := app.New(app.Config{Log: cfg.Log, Epoch: cfg.Epoch, Copy: cfg.Copy, Now: cfg.Now})
	react, err := reactor.New(reactor.Config{
		NC: cfg.NC, Service: events.ServicePolicy, Interested: interested, Settle: a.Settle,
		Unsettled: func(ctx context.Context) ([]reactor.Key, error) {
			return cfg.Views.Unsettled(ctx, events.ServicePolicy)
		},
		Logger: cfg.Logger,
	})
	if err != nil {
		return fmt.Errorf("policy reactor: %w", err)
	}
	server, err := command.Serve(cfg.NC, events.ServicePolicy, a.Handlers(), cfg.Logger)
	if err != nil {
		return fmt.Errorf("policy commands: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return react.Run(ctx) })
	g.Go(func() error {
		sweep := deadlines.Sweep{Reader: cfg.Views, Service: events.ServicePolicy, Handle: a.Due, Logger: cfg.Logger}
		return sweep.Run(ctx)
	})
	g.Go(func() error {
		<-ctx.Done()
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return server.Stop(stop)
	})
	return g.Wait()
}

// interested says whether a message may leave calls behind that can't go on.
func interested(types []string) bool {
	for _, t := range types {
		switch t {
		case session.TypeRunFinished, session.TypeRunFailed, session.TypeExpired, session.TypeTerminated, session.TypeEndRequested:
			return true
		}
	}
	return false
}
