package app

import (
	"context"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/runtime"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/command"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
	"github.com/holdfast-io/holdfast/services/session/internal/decider"
)

// Handlers gives the service's verbs.
func (a *App) Handlers() map[string]command.Handler {
	return map[string]command.Handler{
		verbs.Create:       a.create,
		verbs.Send:         a.send,
		verbs.Suspend:      verb(a, func(struct{}) decision { return decider.Suspend{}.Decide }),
		verbs.Resume:       verb(a, func(struct{}) decision { return decider.Resume{}.Decide }),
		verbs.Extend:       verb(a, func(b verbs.ExtendBody) decision { return decider.Extend{Max: b.Max, Idle: b.Idle}.Decide }),
		verbs.Terminate:    verb(a, func(b verbs.TerminateBody) decision { return decider.Terminate{Reason: b.Reason}.Decide }),
		verbs.NoteActivity: verb(a, func(b verbs.ActivityBody) decision { return decider.NoteActivity(b).Decide }),
	}
}

type decision = eventlog.Decide[*session.State]

// verb makes the handler of a verb that only needs its body.
func verb[B any](a *App, bind func(B) decision) command.Handler {
	return func(ctx context.Context, tenant string, req command.Request) (command.Reply, error) {
		body, err := command.Decode[B](req)
		if err != nil {
			return command.Reply{}, err
		}
		res, err := a.execute(ctx, tenant, req, bind(body))
		return command.Reply{N: res.N, Seq: res.Seq, Repeated: res.Repeated}, err
	}
}

func (a *App) execute(ctx context.Context, tenant string, req command.Request, decide decision) (eventlog.Result, error) {
	subject, err := events.SessionSubject(tenant, req.Session)
	if err != nil {
		return eventlog.Result{}, problem.New(api.CodeNotFound, "there is no such session in this tenant")
	}
	return a.sessions.Execute(ctx, subject, eventlog.Command{
		ID: req.CommandID, Actor: req.Actor, Trace: req.Trace,
	}, decide)
}

func (a *App) create(ctx context.Context, tenant string, req command.Request) (command.Reply, error) {
	body, err := command.Decode[verbs.CreateBody](req)
	if err != nil {
		return command.Reply{}, err
	}
	cmd, err := a.createCommand(ctx, tenant, req, body)
	if err != nil {
		// What can't be created now may have been before: the runtime has changed or
		// is gone, and the same key still gets the same answer.
		if cmd, err = a.createdBefore(ctx, tenant, req, body, err); err != nil {
			return command.Reply{}, err
		}
	}
	res, err := a.execute(ctx, tenant, req, cmd.Decide)
	if err != nil {
		return command.Reply{}, err
	}
	if res.Repeated {
		if err := sameBody(res.Records, body.BodyHash); err != nil {
			return command.Reply{}, err
		}
	}
	out := verbs.CreateResult{Session: req.Session, Created: !res.Repeated && len(res.Records) > 0}
	if cmd.Message != nil {
		out.RunID = cmd.Message.RunID
	}
	return command.Result(res.N, res.Seq, res.Repeated, out)
}

// createdBefore gives the create again where its session exists, else the refusal.
func (a *App) createdBefore(
	ctx context.Context, tenant string, req command.Request, body verbs.CreateBody, refusal error,
) (decider.Create, error) {
	subject, err := events.SessionSubject(tenant, req.Session)
	if err != nil {
		return decider.Create{}, refusal
	}
	cmd := decider.Create{BodyHash: body.BodyHash}
	err = a.sessions.Read(ctx, subject, func(s eventlog.Snapshot[*session.State]) error {
		if !s.Exists() {
			return refusal
		}
		return nil
	})
	if len(body.Message) > 0 {
		m := message(tenant, req, body.Message)
		cmd.Message = &m
	}
	return cmd, err
}

func (a *App) createCommand(ctx context.Context, tenant string, req command.Request, body verbs.CreateBody) (decider.Create, error) {
	if err := checkLabels(body.Labels); err != nil {
		return decider.Create{}, err
	}
	rev, err := a.revision(ctx, tenant, body.Runtime)
	if err != nil {
		return decider.Create{}, err
	}
	terms, err := termsOf(rev.Spec, body)
	if err != nil {
		return decider.Create{}, err
	}
	cmd := decider.Create{
		Owner: req.Actor.ID, Runtime: session.RuntimeRef{Name: body.Runtime, Revision: rev.Number}, Terms: terms,
		Config: body.Config, Labels: body.Labels, Parent: body.Parent, BodyHash: body.BodyHash,
	}
	if len(body.Message) > 0 {
		if terms.Adapter == "none" {
			return decider.Create{}, noAgent()
		}
		m := message(tenant, req, body.Message)
		cmd.Message = &m
	}
	return cmd, nil
}

// labelKey is what the API says of a label's key and its schema can't.
var labelKey = regexp.MustCompile(`^[A-Za-z0-9._/-]{1,63}$`)

// checkLabels names every label whose key can't be one.
func checkLabels(labels map[string]string) error {
	p := problem.New(api.CodeInvalidRequest, "a label's key has 1 to 63 letters, digits and any of . _ / -")
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if !labelKey.MatchString(key) {
			p = p.At("/labels/"+pointerToken.Replace(key), "this key can't be a label's")
		}
	}
	if len(p.Errors) == 0 {
		return nil
	}
	return p
}

// pointerToken escapes a JSON pointer's token (RFC 6901).
var pointerToken = strings.NewReplacer("~", "~0", "/", "~1")

// message names the message and its run after the command, so that a repetition
// names the same.
func message(tenant string, req command.Request, content json.RawMessage) decider.Send {
	return decider.Send{
		Messages:  []decider.Message{{ID: events.HashID(events.PrefixMessage, tenant, req.Session, req.CommandID), Content: content}},
		RunID:     events.HashID(events.PrefixRun, tenant, req.Session, req.CommandID),
		Requester: req.Actor.ID,
	}
}

func (a *App) send(ctx context.Context, tenant string, req command.Request) (command.Reply, error) {
	body, err := command.Decode[verbs.SendBody](req)
	if err != nil {
		return command.Reply{}, err
	}
	cmd := message(tenant, req, body.Content)
	if len(body.Messages) > 0 {
		cmd.Messages = make([]decider.Message, len(body.Messages))
		for i, m := range body.Messages {
			cmd.Messages[i] = decider.Message(m)
		}
	}
	if body.RunID != "" {
		cmd.RunID = body.RunID
	}
	cmd.Tools, cmd.WhenBusy, cmd.BodyHash = body.Tools, decider.WhenBusy(body.WhenBusy), body.BodyHash
	res, err := a.execute(ctx, tenant, req, func(s *session.State, now time.Time) ([]events.Record, error) {
		if s.Exists() && s.Terms.Adapter == "none" {
			return nil, noAgent()
		}
		return cmd.Decide(s, now)
	})
	if err != nil {
		return command.Reply{}, err
	}
	if res.Repeated {
		if err := sameBody(res.Records, body.BodyHash); err != nil {
			return command.Reply{}, err
		}
	}
	return command.Result(res.N, res.Seq, res.Repeated, verbs.SendResult{MessageID: cmd.Messages[len(cmd.Messages)-1].ID, RunID: cmd.RunID})
}

func noAgent() error {
	return problem.New(api.CodeInvalidRequest, "this runtime has no agent that takes messages; call into its sandbox by invoke")
}

// sameBody refuses a repeated command whose first event was made from another body.
func sameBody(records []events.Record, hash string) error {
	for _, r := range records {
		p, err := session.Decode(r, events.ServiceSession)
		if err != nil {
			return err
		}
		var before string
		switch p := p.(type) {
		case session.Created:
			before = p.BodyHash
		case session.MessageReceived:
			before = p.BodyHash
		default:
			continue
		}
		if before != hash {
			return problem.New(api.CodeIdempotencyConflict, "this Idempotency-Key was used with another body; use a new key for a new request")
		}
		return nil
	}
	return nil
}

func (a *App) revision(ctx context.Context, tenant, name string) (runtime.Revision, error) {
	missing := problem.Newf(api.CodeRuntimeNotFound, "there is no runtime %q; list them with GET /v1/runtimes", name)
	subject, err := events.SubjectOf(events.AggregateRuntime, tenant, name)
	if err != nil {
		return runtime.Revision{}, missing
	}
	var rev runtime.Revision
	err = a.runtimes.Read(ctx, subject, func(s eventlog.Snapshot[*runtime.State]) error {
		var ok bool
		if rev, ok = s.State.Current(); !ok {
			return missing
		}
		return nil
	})
	return rev, err
}

// termsOf pins what the runtime says of a session's life. A create may shorten
// its timeouts, never lengthen them.
func termsOf(spec runtime.Spec, body verbs.CreateBody) (session.Terms, error) {
	t := session.Terms{
		Kind: string(spec.Kind), Adapter: spec.Adapter.Protocol, Policy: spec.Policy,
		OnIdle: spec.OnIdle, OnLoss: spec.OnLoss, Suspends: spec.Workspace != nil || spec.Stateless,
		Claim: spec.Timeouts.Claim, Idle: spec.Timeouts.Idle, Max: spec.Timeouts.Max,
		SuspendWhileWaiting: spec.Timeouts.SuspendWhileWaiting, DrainGrace: spec.Timeouts.DrainGrace,
		Redact: spec.Redact,
	}
	for _, f := range []struct {
		pointer string
		asked   *events.Duration
		limit   *events.Duration
	}{{"/idleTimeout", body.IdleTimeout, &t.Idle}, {"/maxDuration", body.MaxDuration, &t.Max}} {
		if f.asked == nil {
			continue
		}
		if *f.asked <= 0 || (*f.limit > 0 && *f.asked > *f.limit) {
			return t, problem.Newf(api.CodeInvalidRequest, "the runtime allows at most %s here", *f.limit).
				At(f.pointer, "longer than the runtime allows, or not positive")
		}
		*f.limit = *f.asked
	}
	return t, nil
}
