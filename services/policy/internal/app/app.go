// Package app runs the policy service's commands: it finds the policy that is in
// force, compiles it once for each revision, executes the deciders, and words
// the answers.
package app

import (
	"context"
	"errors"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/policy"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/reactor"
	"github.com/holdfast-io/holdfast/services/policy/internal/decider"
	"github.com/holdfast-io/holdfast/services/policy/internal/rules"
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
	policies *eventlog.Store[*policy.State]
	compiled *lru.Cache[revision, *rules.Program]
}

// revision names one compiled policy.
type revision struct {
	tenant, name string
	number       uint64
}

// maxCompiled is how many compiled policies stay in memory.
const maxCompiled = 256

// New makes an App.
func New(cfg Config) *App {
	compiled, err := lru.New[revision, *rules.Program](maxCompiled)
	if err != nil {
		panic(err) // the size is a constant
	}
	return &App{
		sessions: eventlog.NewStore(eventlog.Config[*session.State]{
			Log: cfg.Log, New: session.New, Service: events.ServicePolicy, Copy: cfg.Copy, Epoch: cfg.Epoch, Now: cfg.Now,
		}),
		policies: eventlog.NewStore(eventlog.Config[*policy.State]{
			Log: cfg.Log, New: policy.New, Service: events.ServicePolicy, Copy: cfg.Copy, Epoch: cfg.Epoch, Now: cfg.Now,
		}),
		compiled: compiled,
	}
}

// system is the actor of what the service does by itself.
var system = events.Actor{Kind: events.ActorService, ID: string(events.ServicePolicy)}

// Settle closes what can't go on in a session. It is the reactor's.
func (a *App) Settle(ctx context.Context, key reactor.Key) error {
	return a.own(ctx, key.Tenant, key.Session, "settle", decider.Settle)
}

// Due acts on a deadline that the view says has passed.
func (a *App) Due(ctx context.Context, tenant, id string, d session.Deadline) error {
	return a.own(ctx, tenant, id, "deadline:"+string(d.Kind), decider.Due(d))
}

// own executes a decision of the service itself. The command's id is fresh: what
// is decided depends on the state alone, so a repetition finds it done.
func (a *App) own(ctx context.Context, tenant, id, cause string, decide eventlog.Decide[*session.State]) error {
	subject, err := events.SessionSubject(tenant, id)
	if err != nil {
		return err
	}
	_, err = a.sessions.Execute(ctx, subject, eventlog.Command{
		ID: events.RandomID(events.PrefixCommand), Actor: system, Cause: cause,
	}, decide)
	return err
}

// MissingPolicyRule names the decision on a call whose policy isn't there.
const MissingPolicyRule = "no-policy"

// inForce finds and compiles the policy's newest revision. Where there is none,
// everything is denied.
func (a *App) inForce(ctx context.Context, tenant, name string) (decider.Policy, error) {
	p := decider.Policy{Name: name, Evaluate: func(rules.Call) (rules.Verdict, error) {
		return rules.Verdict{Effect: policy.Deny, Rule: MissingPolicyRule, Reason: "there is no policy " + name}, nil
	}}
	subject, err := events.SubjectOf(events.AggregatePolicy, tenant, name)
	if _, ok := errors.AsType[*events.BadTokenError](err); ok {
		return p, nil
	}
	if err != nil {
		return p, err
	}
	err = a.policies.Read(ctx, subject, func(s eventlog.Snapshot[*policy.State]) error {
		rev, ok := s.State.Current()
		if !ok {
			return nil
		}
		key := revision{tenant, name, rev.Number}
		program, ok := a.compiled.Get(key)
		if !ok {
			var err error
			if program, err = rules.Compile(rev.Spec); err != nil {
				return problem.Wrap(api.CodeInternal, "a stored policy doesn't compile in this version: apply it again", err)
			}
			a.compiled.Add(key, program)
		}
		p.Revision, p.Evaluate = rev.Number, program.Evaluate
		return nil
	})
	return p, err
}
