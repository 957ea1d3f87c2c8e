// Package rest answers the REST operations of the public listener, one method for
// each, by the generated server's interface. Writes become commands to the
// service that decides them; what they answer with, and single reads, come from
// the log (package live); lists, history and audit come from the projections, and
// refuse with history-unavailable while those can't be read.
//
// Who calls, whether it may, and whether the request fits the document was
// checked before (package edge).
package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiserver"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/gateway/internal/auth"
	"github.com/holdfast-io/holdfast/services/gateway/internal/edge"
	"github.com/holdfast-io/holdfast/services/gateway/internal/live"
	"github.com/holdfast-io/holdfast/services/internal/command"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

// Config is what the operations work with. All is required.
type Config struct {
	Commands *command.Client
	Live     *live.Live
	History  History
	Auth     *auth.Auth
	// Epoch is the log's; cursors carry it.
	Epoch    string
	Problems edge.Problems
	Logger   *slog.Logger
}

// API answers the operations.
type API struct {
	cfg    Config
	logins *edge.Limiter
}

var _ apiserver.StrictServerInterface = (*API)(nil)

// New makes an API.
func New(cfg Config) *API {
	return &API{cfg: cfg, logins: edge.NewLimiter(loginsPerSecond, loginsBurst)}
}

// Mount puts the operations on a router whose middleware is the guard.
func (a *API) Mount(r chi.Router) {
	fail := func(w http.ResponseWriter, r *http.Request, err error) { a.cfg.Problems.Write(w, r, err) }
	unreadable := func(w http.ResponseWriter, r *http.Request, err error) {
		// What fits the document and can't be bound is a fault of one of the two.
		fail(w, r, problem.Wrap(api.CodeInvalidRequest, "The request could not be read.", err))
	}
	strict := apiserver.NewStrictHandlerWithOptions(a, []apiserver.StrictMiddlewareFunc{keepRequest, boundReads},
		apiserver.StrictHTTPServerOptions{RequestErrorHandlerFunc: unreadable, ResponseErrorHandlerFunc: fail})
	apiserver.HandlerWithOptions(strict, apiserver.ChiServerOptions{BaseRouter: r, ErrorHandlerFunc: unreadable})
}

type httpRequestKey struct{}

// keepRequest lets the few operations at the request itself that need it: login
// and logout, which are about headers.
func keepRequest(next apiserver.StrictHandlerFunc, _ string) apiserver.StrictHandlerFunc {
	return func(ctx context.Context, w http.ResponseWriter, r *http.Request, request any) (any, error) {
		return next(context.WithValue(ctx, httpRequestKey{}, r), w, r, request)
	}
}

// write is one command of a client.
type write struct {
	service events.Service
	verb    string
	// operation, key and names make the command's id; with parts of the body in
	// unique, another body under the same key is another command.
	operation string
	key       *string
	names     []string
	unique    string
	// session is "" where the command is for none.
	session string
	body    any
}

// send sends a command as the request's principal and decodes its result into
// out, if that isn't nil.
func (a *API) send(ctx context.Context, w write, out any) (command.Reply, error) {
	who := auth.From(ctx)
	body, err := json.Marshal(w.body)
	if err != nil {
		return command.Reply{}, fmt.Errorf("encode %s: %w", w.verb, err)
	}
	reply, err := a.cfg.Commands.Do(ctx, w.service, who.Tenant, w.verb, command.Request{
		CommandID: w.commandID(who), Actor: who.Actor(), Roles: who.RoleNames(), Groups: who.Groups,
		Session: w.session, Body: body,
	})
	if err != nil {
		return reply, err
	}
	if out != nil {
		if err := json.Unmarshal(reply.Result, out); err != nil {
			return reply, fmt.Errorf("decode result of %s: %w", w.verb, err)
		}
	}
	return reply, nil
}

// commandID is the same for the same key of the same principal, else fresh.
func (w write) commandID(who auth.Principal) string {
	if w.key == nil {
		return events.RandomID(events.PrefixCommand)
	}
	parts := append([]string{who.Tenant, who.Name, w.operation, *w.key, w.unique}, w.names...)
	return events.HashID(events.PrefixCommand, parts...)
}

// hashOf is over a body in canonical form: how it was spaced or ordered doesn't
// make it another.
func hashOf(body any) (string, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return "", fmt.Errorf("encode body: %w", err)
	}
	_, hash, err := events.CanonicalArgs(raw)
	if err != nil {
		return "", problem.Wrap(api.CodeInvalidRequest, "The body has no canonical form.", err)
	}
	return hash, nil
}

// maxWait bounds how long a request is held open to wait for something.
const maxWait = 60 * time.Second

// preferredWait reads "wait=N" out of a Prefer header (RFC 7240); 0 where it
// isn't there or isn't a number: a preference may be ignored.
func preferredWait(prefer *string) time.Duration {
	if prefer == nil {
		return 0
	}
	for _, p := range strings.FieldsFunc(*prefer, func(r rune) bool { return r == ',' || r == ';' }) {
		name, value, _ := strings.Cut(strings.TrimSpace(p), "=")
		var seconds int
		if strings.EqualFold(strings.TrimSpace(name), "wait") {
			if _, err := fmt.Sscanf(strings.Trim(strings.TrimSpace(value), `"`), "%d", &seconds); err == nil && seconds > 0 {
				return min(time.Duration(seconds)*time.Second, maxWait)
			}
		}
	}
	return 0
}

// settled says that waiting for a sandbox is over: it is ready, or won't be.
func settled(s *session.State) bool {
	switch s.Phase() {
	case session.PhaseReady, session.PhaseEnding, session.PhaseEnded:
		return true
	case session.PhasePending, session.PhaseClaimed, session.PhaseSuspending, session.PhaseSuspended, session.PhaseResuming:
		return false
	}
	return false
}

// value is what an optional parameter says, or the zero value.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// duration reads what the document's pattern lets pass; nil for "".
func duration(pointer, s string) (*events.Duration, error) {
	if s == "" {
		return nil, nil //nolint:nilnil // absent is a value here
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return nil, problem.New(api.CodeInvalidRequest, "A duration is too long.").At(pointer, "can't be a duration")
	}
	out := events.Duration(d)
	return &out, nil
}
