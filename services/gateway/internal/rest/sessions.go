package rest

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiserver"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/projections/view"
	"github.com/holdfast-io/holdfast/services/gateway/internal/auth"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
)

// CreateSession makes a session whose id follows from the key, so that a create
// that is repeated, also after its answer was lost, finds the same.
func (a *API) CreateSession(ctx context.Context, req apiserver.CreateSessionRequestObject) (apiserver.CreateSessionResponseObject, error) {
	who, body := auth.From(ctx), req.Body
	create, err := createBody(body)
	if err != nil {
		return nil, err
	}
	id := events.RandomID(events.PrefixSession)
	if key := req.Params.IdempotencyKey; key != nil {
		id = events.HashID(events.PrefixSession, who.Tenant, who.Name, *key)
	}
	var result verbs.CreateResult
	reply, err := a.send(ctx, write{
		service: events.ServiceSession, verb: verbs.Create, operation: "createSession", key: req.Params.IdempotencyKey,
		session: id, body: create,
	}, &result)
	if err != nil {
		return nil, err
	}
	out, err := a.after(ctx, id, preferredWait(req.Params.Prefer))
	if err != nil {
		return nil, done(err)
	}
	if !result.Created {
		return apiserver.CreateSession200JSONResponse{Body: out, Headers: apiserver.CreateSession200ResponseHeaders{HoldfastSeq: reply.Seq}}, nil
	}
	return apiserver.CreateSession201JSONResponse{Body: out, Headers: apiserver.CreateSession201ResponseHeaders{HoldfastSeq: reply.Seq}}, nil
}

func createBody(body *api.CreateSession) (verbs.CreateBody, error) {
	hash, err := hashOf(body)
	if err != nil {
		return verbs.CreateBody{}, err
	}
	out := verbs.CreateBody{
		Runtime: body.Runtime, Config: body.Config, Labels: body.Labels, Parent: body.Parent, BodyHash: hash,
	}
	if body.Message != "" {
		if out.Message, err = json.Marshal(body.Message); err != nil {
			return out, err
		}
	}
	if err := errors.Join(
		verbs.CheckContent("/message", "The message", len(out.Message), verbs.MaxContentBytes),
		verbs.CheckContent("/config", "The config", len(out.Config), verbs.MaxConfigBytes),
	); err != nil {
		return out, err
	}
	if out.IdleTimeout, err = duration("/idleTimeout", body.IdleTimeout); err != nil {
		return out, err
	}
	out.MaxDuration, err = duration("/maxDuration", body.MaxDuration)
	return out, err
}

// after shows a session as it is after a command, waiting first for its sandbox
// where the client prefers to.
func (a *API) after(ctx context.Context, id string, wait time.Duration) (api.Session, error) {
	tenant := auth.From(ctx).Tenant
	if wait > 0 {
		if err := a.cfg.Live.Wait(ctx, tenant, id, wait, settled); err != nil {
			return api.Session{}, err
		}
	}
	var out api.Session
	err := a.cfg.Live.Session(ctx, tenant, id, func(s *session.State) error {
		out = sessionOf(view.SessionOf(s))
		return nil
	})
	return out, err
}

// GetSession shows a session now, from the log, or in the past, from history.
func (a *API) GetSession(ctx context.Context, req apiserver.GetSessionRequestObject) (apiserver.GetSessionResponseObject, error) {
	if req.Params.AsOf != nil {
		out, err := a.asOf(ctx, req.ID, *req.Params.AsOf, req.Params.MinSeq)
		return apiserver.GetSession200JSONResponse(out), err
	}
	out, err := a.after(ctx, req.ID, 0) // the log itself: whatever minSeq names is in it
	return apiserver.GetSession200JSONResponse(out), err
}

// SendMessage appends a message and names the run that will answer it.
func (a *API) SendMessage(ctx context.Context, req apiserver.SendMessageRequestObject) (apiserver.SendMessageResponseObject, error) {
	out, seq, err := a.Send(ctx, req.ID, *req.Body, req.Params.IdempotencyKey)
	return apiserver.SendMessage202JSONResponse{Body: out, Headers: apiserver.SendMessage202ResponseHeaders{HoldfastSeq: seq}}, err
}

// Send sends a message as the context's principal, over REST or over the WebSocket.
func (a *API) Send(ctx context.Context, id string, body api.SendMessage, key *string) (out api.MessageAccepted, seq uint64, err error) {
	content, err := json.Marshal(body.Content)
	if err == nil {
		err = verbs.CheckContent("/content", "The message", len(content), verbs.MaxContentBytes)
	}
	if err != nil {
		return out, 0, err
	}
	hash, err := hashOf(body)
	if err != nil {
		return out, 0, err
	}
	var result verbs.SendResult
	reply, err := a.send(ctx, write{
		service: events.ServiceSession, verb: verbs.Send, operation: "sendMessage", key: key, names: []string{id}, session: id,
		body: verbs.SendBody{Content: content, WhenBusy: string(body.WhenBusy), BodyHash: hash},
	}, &result)
	if err != nil {
		return out, 0, err
	}
	return api.MessageAccepted{MessageID: result.MessageID, RunID: result.RunID, N: reply.N, Seq: reply.Seq}, reply.Seq, nil
}

// move asks for a move of a session's life and shows the session after it.
func (a *API) move(ctx context.Context, w write, wait time.Duration) (api.Session, uint64, error) {
	hash, err := hashOf(w.body)
	if err != nil {
		return api.Session{}, 0, err
	}
	w.unique, w.names = hash, append(w.names, w.session)
	reply, err := a.send(ctx, w, nil)
	if err != nil {
		return api.Session{}, 0, err
	}
	out, err := a.after(ctx, w.session, wait)
	return out, reply.Seq, done(err)
}

// done words that a session can't be shown after a command that took effect: whatever
// stands in the way, as an event that only a newer build can read, is no refusal.
func done(err error) error {
	if err == nil {
		return nil
	}
	return problem.Wrap(api.CodeOutcomeUnknown,
		"It was done, but the session can't be shown now: ask again with the same idempotency key.", err)
}

// SuspendSession gives the sandbox up and keeps the workspace.
func (a *API) SuspendSession(ctx context.Context, req apiserver.SuspendSessionRequestObject) (apiserver.SuspendSessionResponseObject, error) {
	out, seq, err := a.move(ctx, write{
		service: events.ServiceSession, verb: verbs.Suspend, operation: "suspendSession", key: req.Params.IdempotencyKey,
		session: req.ID, body: struct{}{},
	}, 0)
	return apiserver.SuspendSession202JSONResponse{Body: out, Headers: apiserver.SuspendSession202ResponseHeaders{HoldfastSeq: seq}}, err
}

// ResumeSession asks for a sandbox again.
func (a *API) ResumeSession(ctx context.Context, req apiserver.ResumeSessionRequestObject) (apiserver.ResumeSessionResponseObject, error) {
	out, seq, err := a.move(ctx, write{
		service: events.ServiceSession, verb: verbs.Resume, operation: "resumeSession", key: req.Params.IdempotencyKey,
		session: req.ID, body: struct{}{},
	}, preferredWait(req.Params.Prefer))
	return apiserver.ResumeSession202JSONResponse{Body: out, Headers: apiserver.ResumeSession202ResponseHeaders{HoldfastSeq: seq}}, err
}

// ExtendSession moves deadlines later.
func (a *API) ExtendSession(ctx context.Context, req apiserver.ExtendSessionRequestObject) (apiserver.ExtendSessionResponseObject, error) {
	idle, err := duration("/idle", req.Body.Idle)
	if err != nil {
		return nil, err
	}
	longest, err := duration("/max", req.Body.Max)
	if err != nil {
		return nil, err
	}
	out, seq, err := a.move(ctx, write{
		service: events.ServiceSession, verb: verbs.Extend, operation: "extendSession", key: req.Params.IdempotencyKey,
		session: req.ID, body: verbs.ExtendBody{Idle: idle, Max: longest},
	}, 0)
	return apiserver.ExtendSession200JSONResponse{Body: out, Headers: apiserver.ExtendSession200ResponseHeaders{HoldfastSeq: seq}}, err
}

// TerminateSession ends a session for good.
func (a *API) TerminateSession(ctx context.Context, req apiserver.TerminateSessionRequestObject) (apiserver.TerminateSessionResponseObject, error) {
	var body verbs.TerminateBody
	if req.Body != nil {
		body.Reason = req.Body.Reason
	}
	out, seq, err := a.move(ctx, write{
		service: events.ServiceSession, verb: verbs.Terminate, operation: "terminateSession", key: req.Params.IdempotencyKey,
		session: req.ID, body: body,
	}, 0)
	return apiserver.TerminateSession202JSONResponse{Body: out, Headers: apiserver.TerminateSession202ResponseHeaders{HoldfastSeq: seq}}, err
}

// CancelRun ends a run, or takes it out of the queue.
func (a *API) CancelRun(ctx context.Context, req apiserver.CancelRunRequestObject) (apiserver.CancelRunResponseObject, error) {
	out, seq, err := a.move(ctx, write{
		service: events.ServiceRunner, verb: verbs.CancelRun, operation: "cancelRun", key: req.Params.IdempotencyKey,
		session: req.ID, body: verbs.CancelRunBody{RunID: req.Run},
	}, 0)
	return apiserver.CancelRun202JSONResponse{Body: out, Headers: apiserver.CancelRun202ResponseHeaders{HoldfastSeq: seq}}, err
}
