// Package app runs the session service's commands: it reads what a decider needs,
// executes the decider on the session's subject, and words the answer.
package app

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/runtime"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/reactor"
	"github.com/holdfast-io/holdfast/services/session/internal/decider"
)

// Config of an App; see the service's Config.
type Config struct {
	Log   eventlog.Log
	Epoch string
	Copy  eventlog.Copy
	Now   func() time.Time
}

// App executes commands, settles and acts on deadlines.
type App struct {
	sessions *eventlog.Store[*session.State]
	runtimes *eventlog.Store[*runtime.State]
}

// New makes an App.
func New(cfg Config) *App {
	return &App{
		sessions: eventlog.NewStore(eventlog.Config[*session.State]{
			Log: cfg.Log, New: session.New, Service: events.ServiceSession, Copy: cfg.Copy, Epoch: cfg.Epoch, Now: cfg.Now,
		}),
		runtimes: eventlog.NewStore(eventlog.Config[*runtime.State]{
			Log: cfg.Log, New: runtime.New, Copy: cfg.Copy, Epoch: cfg.Epoch, Now: cfg.Now,
		}),
	}
}

// system is the actor of what the service does by itself.
var system = events.Actor{Kind: events.ActorService, ID: string(events.ServiceSession)}

// Settle brings a session a step nearer to what it wants. It is the reactor's.
func (a *App) Settle(ctx context.Context, key reactor.Key) error {
	subject, err := events.SessionSubject(key.Tenant, key.Session)
	if err != nil {
		return err
	}
	_, err = a.sessions.Execute(ctx, subject, own("settle"), decider.Settle)
	return err
}

// Due acts on a deadline that the view says has passed.
func (a *App) Due(ctx context.Context, tenant, id string, d session.Deadline) error {
	subject, err := events.SessionSubject(tenant, id)
	if err != nil {
		return err
	}
	_, err = a.sessions.Execute(ctx, subject, own("deadline:"+string(d.Kind)), decider.Due(d.Kind))
	return err
}

// own is a command of the service itself. Its id is fresh: what it decides
// depends on the state alone, so a repetition finds it done.
func own(cause string) eventlog.Command {
	return eventlog.Command{ID: events.RandomID(events.PrefixCommand), Actor: system, Cause: cause}
}
