package agui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/services/gateway/internal/auth"
	"github.com/holdfast-io/holdfast/services/gateway/internal/edge"
	"github.com/holdfast-io/holdfast/services/gateway/internal/hub"
	"github.com/holdfast-io/holdfast/services/gateway/internal/live"
	"github.com/holdfast-io/holdfast/services/internal/agentinput"
	"github.com/holdfast-io/holdfast/services/internal/command"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
)

// Pattern is where the server is mounted; its {name} is the runtime's.
const Pattern = "/v1/runtimes/{name}/agui"

// SessionHeader names the session of the thread, for who wants to look at it by
// other calls.
const SessionHeader = "Holdfast-Session"

// Config is what a Server works with. All is required.
type Config struct {
	Commands *command.Client
	Live     *live.Live
	Hub      *hub.Hub
	// Decide takes an answer to a question, as POST /v1/approvals/{id}/decisions does.
	// The principal is in the context.
	Decide   func(ctx context.Context, id string, body api.DecideApproval) error
	Problems edge.Problems
	Logger   *slog.Logger
}

// Server is the http.Handler of [Pattern].
type Server struct{ cfg Config }

// New makes a Server.
func New(cfg Config) *Server { return &Server{cfg: cfg} }

// ServeHTTP answers one RunAgentInput with a stream, or with a problem where nothing
// could begin.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who, runtime := auth.From(r.Context()), chi.URLParam(r, "name")
	in, err := read(w, r)
	if err != nil {
		s.cfg.Problems.Write(w, r, err)
		return
	}
	x := &exchange{
		Server: s, who: who, runtime: runtime, id: sessionOf(who, runtime, in.ThreadID), in: in,
		out: newStream(w, in.ThreadID, in.RunID),
	}
	defer x.close()
	if err := x.serve(r.Context()); err != nil {
		x.fail(w, r, err)
	}
}

// exchange is one request and its stream.
type exchange struct {
	*Server
	who         auth.Principal
	runtime, id string
	in          input
	out         *stream

	follower *hub.Follower
	standing *standing
	news     news
	sent     string // the run of the new messages
}

func (x *exchange) close() {
	if x.follower != nil {
		x.follower.Close()
	}
}

// fail ends a request whose answer can't go on: by a problem while nothing of it was
// written, else by RUN_ERROR.
func (x *exchange) fail(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case r.Context().Err() != nil: // the client is gone; its run goes on
	case !x.out.begun:
		x.cfg.Problems.Write(w, r, err)
	default:
		p := problem.From(err)
		x.cfg.Logger.LogAttrs(r.Context(), slog.LevelWarn, "stream of a thread broke off",
			slog.String("session", x.id), slog.Any("error", err))
		_ = x.out.failed(string(p.Code), "The stream can't go on; the run does. Post again to go on following it.") // the last word either way
	}
}

// serve does what was asked and tells what becomes of it. An error is one of ours: it
// says nothing about the thread.
func (x *exchange) serve(ctx context.Context) error {
	if err := x.attach(ctx); err != nil {
		return err
	}
	if x.standing.n == 0 {
		return x.unknown()
	}
	x.out.header.Set(SessionHeader, x.id)
	var err error
	if x.news, err = newsOf(x.standing, &x.in); err == nil {
		err = x.act(ctx)
	}
	if refused(err) {
		return x.refuse(ctx, problem.From(err))
	}
	if err != nil {
		return err
	}
	return x.tell(ctx)
}

// attach makes the session if there is something to begin it with, and joins its
// stream before the thread is read, so that nothing falls between the two.
func (x *exchange) attach(ctx context.Context) (err error) {
	x.follower, err = x.cfg.Hub.Follow(ctx, x.who, x.id)
	if errors.Is(err, problem.New(api.CodeNotFound, "")) {
		x.standing = &standing{id: x.id}
		if x.news, err = newsOf(x.standing, &x.in); err != nil {
			return err
		}
		if err = x.create(ctx); err != nil || len(x.news.messages) == 0 {
			return err
		}
		x.follower, err = x.cfg.Hub.Follow(ctx, x.who, x.id)
	}
	if err != nil {
		return err
	}
	if x.standing, err = x.read(ctx); err != nil || x.standing.run == nil {
		return err
	}
	// A run is open: all of it, from its beginning.
	x.follower.Close()
	x.follower, err = x.cfg.Hub.FollowFrom(ctx, x.who, x.id, x.standing.run.StartN-1)
	return err
}

// create makes the thread's session, unless there is nothing to begin it with. A
// runtime that can't have one is refused either way.
func (x *exchange) create(ctx context.Context) error {
	rev, err := x.cfg.Live.Runtime(ctx, x.who.Tenant, x.runtime, 0)
	if err != nil {
		return err
	}
	if rev.Spec.Adapter.Protocol == string(api.AdapterProtocolNone) {
		return problem.New(api.CodeInvalidRequest, "This runtime has no agent; call into its sandbox by invoke.")
	}
	if len(x.news.messages) == 0 {
		return nil
	}
	return x.do(ctx, events.ServiceSession, verbs.Create, events.HashID(events.PrefixCommand, x.id, "agui", "create"),
		verbs.CreateBody{Runtime: x.runtime})
}

// unknown answers for a thread that has never begun.
func (x *exchange) unknown() error {
	if err := x.out.begin(nil, nil); err != nil {
		return err
	}
	if len(x.in.Resume)+len(x.news.results) > 0 {
		return x.out.failed(string(api.CodeNotFound), "The thread has no such question or tool call: it has never begun.")
	}
	return x.out.finished(success(nil))
}

// read reads the thread as it is now.
func (x *exchange) read(ctx context.Context) (s *standing, err error) {
	err = x.cfg.Live.Thread(ctx, x.who.Tenant, x.id, func(t *agentinput.Thread) error {
		s, err = standingOf(t)
		return err
	})
	return s, err
}

// do sends a command as the principal of the request.
func (x *exchange) do(ctx context.Context, service events.Service, verb, id string, body any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode %s: %w", verb, err)
	}
	_, err = x.cfg.Commands.Do(ctx, service, x.who.Tenant, verb, command.Request{
		CommandID: id, Actor: x.who.Actor(), Roles: x.who.RoleNames(), Groups: x.who.Groups, Session: x.id, Body: raw,
	})
	return err
}

// refused says that an error is about the thread, so that it is told in the stream:
// a client that speaks AG-UI reads no problem's code.
func refused(err error) bool {
	p := problem.From(err)
	if p == nil {
		return false
	}
	switch p.Status() {
	case http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusGone, http.StatusPreconditionFailed,
		http.StatusUnprocessableEntity:
		return true
	}
	return false
}

// refuse tells how the thread stands and then what was refused: a client whose view
// of it was wrong is set right.
func (x *exchange) refuse(ctx context.Context, p *problem.Error) error {
	s, err := x.read(ctx)
	if err != nil {
		return err
	}
	if err := x.out.begin(x.snapshot(s.all, s.waiting), s.state); err != nil {
		return err
	}
	message := p.Detail
	if message == "" {
		message = p.Title()
	}
	return x.out.failed(string(p.Code), message)
}
