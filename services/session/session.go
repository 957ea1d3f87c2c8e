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
	"github.com/holdfast-io/holdfast/services/session/internal/app"
)

// Config is what the service needs. All fields without a default are required.
type Config struct {
	// NC is a connection as the NATS user "session".
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
		return errors.New("session service: NC, Log, Epoch, Views and Logger are required")
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
		NC: cfg.NC, Service: events.ServiceSession, Interested: interested, Settle: a.Settle,
		Unsettled: func(ctx context.Context) ([]reactor.Key, error) {
			return cfg.Views.Unsettled(ctx, events.ServiceSession)
		},
		Logger: cfg.Logger,
	})
	if err != nil {
		return fmt.Errorf("session reactor: %w", err)
	}
	server, err := command.Serve(cfg.NC, events.ServiceSession, a.Handlers(), cfg.Logger)
	if err != nil {
		return fmt.Errorf("session commands: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return react.Run(ctx) })
	g.Go(func() error {
		sweep := deadlines.Sweep{Reader: cfg.Views, Service: events.ServiceSession, Handle: a.Due, Logger: cfg.Logger}
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

// interested says whether a message may change what Settle decides: anything of
// a workload or a run, a call that came to its end, and the session's own ends.
func interested(types []string) bool {
	for _, t := range types {
		switch t {
		case session.TypeReleased, session.TypeFailed, session.TypeLost, session.TypeSuspended,
			session.TypeRunFinished, session.TypeRunFailed, session.TypeRunInterrupted,
			session.TypeExpired, session.TypeTerminated, session.TypeEndRequested, session.TypeMessageReceived,
			session.TypeCallApproved, session.TypeCallDenied, session.TypeCallExpired, session.TypeCallCancelled,
			session.TypeCallSuperseded, session.TypeCallCompleted, session.TypeCallLapsed:
			return true
		}
	}
	return false
}
