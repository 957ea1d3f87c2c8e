// Package serving runs a service that decides: its commands, its reactor and its
// sweep of deadlines, until the context ends; then it finishes what it has begun.
// What a service is made of stands in [Parts], what it needs in [Config].
package serving

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/command"
	"github.com/holdfast-io/holdfast/services/internal/deadlines"
	"github.com/holdfast-io/holdfast/services/internal/metered"
	"github.com/holdfast-io/holdfast/services/internal/reactor"
)

// Config is what every deciding service needs.
type Config struct {
	// NC is a connection as the service's own NATS user.
	NC *nats.Conn
	// Log is EVENTS, Epoch its genesis' epoch.
	Log   eventlog.Log
	Epoch string
	// Copy shortens cold loads; nil does without.
	Copy eventlog.Copy
	// Views tells what is due and what isn't settled.
	Views  Views
	Logger *slog.Logger
	// Reactors are the process's metrics of reactors; may be nil.
	Reactors *reactor.Metrics
	// Metered are the process's metrics of commands; may be nil. Appends are counted
	// by the Log that it makes.
	Metered *metered.Metrics
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Views is what a service reads from the projections.
type Views interface {
	deadlines.Reader
	// Unsettled lists the sessions that the service would act on.
	Unsettled(ctx context.Context, service events.Service) ([]reactor.Key, error)
}

// Validate names what is missing.
func (c Config) Validate() error {
	if c.NC == nil || c.Log == nil || c.Epoch == "" || c.Views == nil || c.Logger == nil {
		return errors.New("a service needs NC, Log, Epoch, Views and Logger")
	}
	return nil
}

// Parts is what a service is made of.
type Parts struct {
	Service  events.Service
	Handlers map[string]command.Handler
	// Interested says whether a message of these event types may change what Settle
	// decides.
	Interested func(types []string) bool
	Settle     func(ctx context.Context, key reactor.Key) error
	// Workers is how many sessions are settled at a time; 0 is the reactor's own.
	Workers int
	// Due acts on a deadline that has passed; nil for a service without any.
	Due func(ctx context.Context, tenant, id string, d session.Deadline) error
	// Requeue, if set, is given the way to have a session settled again before
	// anything is settled: what only has to be looked at later is no failure, which
	// would park the session in the end.
	Requeue func(Requeue)
	// Background runs beside the rest until ctx ends; may be nil.
	Background func(ctx context.Context) error
}

// Requeue gives a session to the service's reactor again.
type Requeue interface {
	Enqueue(reactor.Key)
	EnqueueAfter(reactor.Key, time.Duration)
}

// stopGrace bounds the orderly end of the commands under way.
const stopGrace = 10 * time.Second

// ends says whether a session is to end: whatever failed of it before, what is left of
// it has to go, its sandbox first of all.
func ends(types []string) bool {
	return slices.ContainsFunc(types, func(t string) bool {
		return t == session.TypeTerminated || t == session.TypeExpired || t == session.TypeEndRequested
	})
}

// Run serves until ctx ends.
func Run(ctx context.Context, cfg Config, parts Parts) error {
	js, err := jetstream.New(cfg.NC)
	if err != nil {
		return fmt.Errorf("%s: %w", parts.Service, err)
	}
	react, err := reactor.New(reactor.Config{
		NC: cfg.NC, Service: parts.Service, Interested: parts.Interested, Unparks: ends, Settle: patient(parts.Settle),
		Unsettled: func(ctx context.Context) ([]reactor.Key, error) { return cfg.Views.Unsettled(ctx, parts.Service) },
		Workers:   parts.Workers,
		Logger:    cfg.Logger,
		Metrics:   cfg.Reactors,
	})
	if err != nil {
		return fmt.Errorf("%s reactor: %w", parts.Service, err)
	}
	if parts.Requeue != nil {
		parts.Requeue(react)
	}
	handlers := cfg.Metered.Handlers(parts.Service, parked{js: js, service: parts.Service}.with(parts.Handlers))
	server, err := command.Serve(cfg.NC, parts.Service, handlers, cfg.Logger) //nolint:contextcheck // commands that were taken are finished after ctx: Stop ends them
	if err != nil {
		return fmt.Errorf("%s commands: %w", parts.Service, err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return react.Run(ctx) })
	if parts.Due != nil {
		g.Go(func() error {
			sweep := deadlines.Sweep{Reader: cfg.Views, Service: parts.Service, Handle: parts.Due, Logger: cfg.Logger, Now: cfg.Now}
			return sweep.Run(ctx)
		})
	}
	if parts.Background != nil {
		g.Go(func() error { return parts.Background(ctx) })
	}
	g.Go(func() error {
		<-ctx.Done()
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
		defer cancel()
		return server.Stop(stop)
	})
	return g.Wait()
}
