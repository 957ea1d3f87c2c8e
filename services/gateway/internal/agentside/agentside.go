// Package agentside answers the agents' listener, /v1/agent/*: what an agent may
// know, and what it asks before it acts. The session comes from the token of its
// sandbox, never from the request.
//
//	a flood of bad ones? ─▶ token ─▶ signature, audience, expiry ─▶ fence: is it the session's sandbox now? ─▶ flood? ─▶ operation
//
// A call that has to wait for a person is answered 202. In mode hold the answer is
// held back up to a minute: subscribe, read, sleep until something happens to the
// session, read again; and only policy's own confirming read says allow.
//
// Here the sandboxd of a Pod redeems its bind too, and renews, by a token that Kubernetes
// gave to its Pod. The gateway has no rights there: the workload service reviews it.
package agentside

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/agentserver"
	"github.com/holdfast-io/holdfast/api/apispec"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/gateway/internal/auth"
	"github.com/holdfast-io/holdfast/services/gateway/internal/edge"
	"github.com/holdfast-io/holdfast/services/gateway/internal/live"
	"github.com/holdfast-io/holdfast/services/internal/command"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/sandboxtoken"
)

// What an agent may ask, for each session: far above what an honest one needs.
const (
	requestsPerSecond = 50
	requestsBurst     = 200
)

// What one address may present of tokens that are no good, before what it presents is looked
// at no more: a signature costs more to check than to make up. Who has a good one is never
// charged, so that Pods behind one address have nothing to share.
const (
	badTokensPerSecond = 10
	badTokensBurst     = 100
)

// holdFor is how long a question in mode hold keeps its first answer back.
const holdFor = 60 * time.Second

// Config is what the agents' side works with. All is required.
type Config struct {
	Commands *command.Client
	Live     *live.Live
	Verifier *sandboxtoken.Verifier
	// BindKey verifies binds: the public half of the workload service's key.
	BindKey  ed25519.PublicKey
	Problems edge.Problems
}

// Agents answers agents.
type Agents struct {
	cfg    Config
	floods *edge.Limiter
	// strangers bounds bad tokens, by address.
	strangers *edge.Limiter
	// presented and reviewed bound what Pods ask, by address and by incarnation.
	presented, reviewed *edge.Limiter
}

var _ agentserver.StrictServerInterface = (*Agents)(nil)

// New makes an Agents.
func New(cfg Config) *Agents {
	return &Agents{
		cfg: cfg, floods: edge.NewLimiter(requestsPerSecond, requestsBurst), strangers: edge.NewLimiter(badTokensPerSecond, badTokensBurst),
		presented: edge.NewLimiter(presentedPerSecond, presentedBurst), reviewed: edge.NewLimiter(reviewedPerSecond, reviewedBurst),
	}
}

// Mount puts the operations on a router whose middleware is the guard, with
// [Agents.Admit].
func (a *Agents) Mount(r chi.Router) {
	fail := func(w http.ResponseWriter, r *http.Request, err error) { a.cfg.Problems.Write(w, r, err) }
	unreadable := func(w http.ResponseWriter, r *http.Request, err error) {
		fail(w, r, problem.Wrap(api.CodeInvalidRequest, "The request could not be read.", err))
	}
	strict := agentserver.NewStrictHandlerWithOptions(a, nil,
		agentserver.StrictHTTPServerOptions{RequestErrorHandlerFunc: unreadable, ResponseErrorHandlerFunc: fail})
	agentserver.HandlerWithOptions(strict, agentserver.ChiServerOptions{BaseRouter: r, ErrorHandlerFunc: unreadable})
}

type claimsKey struct{}

func claimsOf(ctx context.Context) sandboxtoken.Claims {
	c, _ := ctx.Value(claimsKey{}).(sandboxtoken.Claims)
	return c
}

// Admit says which session's sandbox calls. A token that was good is refused once
// its sandbox isn't the session's own any more: suspended, lost, replaced, ended.
// Who redeems a bind has none yet, and is admitted by what Kubernetes says of its Pod.
func (a *Agents) Admit(op *apispec.Operation, r *http.Request) (context.Context, error) {
	if forPods(op) {
		return a.admitPod(r)
	}
	claims, err := a.identify(r)
	if err != nil {
		return nil, err
	}
	edge.SetCaller(r.Context(), "agent:"+claims.Session)
	if err := a.floods.Allow(claims.Session); err != nil {
		return nil, err
	}
	stale := problem.New(api.CodeUnauthenticated, "The sandbox is not the session's own any more.")
	err = a.cfg.Live.Session(r.Context(), claims.Tenant, claims.Session, func(s *session.State) error {
		if !current(claims, s) {
			return stale
		}
		return nil
	})
	if p := problem.From(err); p != nil && p.Code == api.CodeNotFound {
		return nil, stale
	}
	if err != nil {
		return nil, err
	}
	return context.WithValue(r.Context(), claimsKey{}, claims), nil
}

// identify says whose token a request bears, unless its address has presented too many that
// were nobody's.
func (a *Agents) identify(r *http.Request) (sandboxtoken.Claims, error) {
	from := addressOf(r)
	if err := a.strangers.Spent(from); err != nil {
		return sandboxtoken.Claims{}, err
	}
	token, ok := auth.Bearer(r.Header.Get("Authorization"))
	if !ok {
		return sandboxtoken.Claims{}, problem.New(api.CodeUnauthenticated, "This needs the token of a session's sandbox.")
	}
	claims, err := a.cfg.Verifier.Verify(token)
	if err != nil {
		_ = a.strangers.Allow(from) // a charge: it is refused in any case
		return sandboxtoken.Claims{}, problem.Wrap(api.CodeUnauthenticated, "The token is not valid.", err)
	}
	return claims, nil
}

// ask sends a command to the policy service, as the agent of the session, and
// decodes its result.
func (a *Agents) ask(ctx context.Context, verb string, body, out any) error {
	who := claimsOf(ctx)
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode %s: %w", verb, err)
	}
	reply, err := a.cfg.Commands.Do(ctx, events.ServicePolicy, who.Tenant, verb, command.Request{
		// Agents' commands are repeatable by what they say (the call's id, the nonce),
		// so each request is a command of its own.
		CommandID: events.RandomID(events.PrefixCommand),
		Actor:     events.Actor{Kind: events.ActorAgent, ID: who.Session},
		Session:   who.Session, Body: raw,
	})
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(reply.Result, out); err != nil {
		return fmt.Errorf("decode result of %s: %w", verb, err)
	}
	return nil
}
