package invoke

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/services/internal/command"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
)

// maxRoutes is how many sandboxes' addresses are kept.
const maxRoutes = 4096

// target is a session's sandbox: its generation and incarnation are part of the
// key, so that an address found for one is never used for another.
type target struct {
	tenant, session string
	generation      uint64
	podUID          string
}

// routes are the addresses of sandboxes that were called lately.
type routes struct {
	commands *command.Client
	known    *lru.Cache[target, route]
}

// route is the way to a sandbox, and until when new connections may be made by it;
// zero is for ever.
type route struct {
	*sandboxapi.Client
	until time.Time
}

// renewAhead is how long before its end a route is asked for anew: a request that
// has begun must not find it closed.
const renewAhead = time.Minute

// good says whether the route may still be taken.
func (r route) good(now time.Time) bool {
	return r.until.IsZero() || now.Before(r.until.Add(-renewAhead))
}

func newRoutes(commands *command.Client) *routes {
	known, err := lru.NewWithEvict(maxRoutes, func(_ target, r route) { r.Close() })
	if err != nil {
		panic(err) // the size is a constant
	}
	return &routes{commands: commands, known: known}
}

// find gives the way to a sandbox, asking the workload service where it isn't
// known. What that answers for another incarnation is not taken.
func (r *routes) find(ctx context.Context, to target) (*sandboxapi.Client, error) {
	if found, ok := r.known.Get(to); ok && found.good(time.Now()) {
		return found.Client, nil
	}
	body, err := json.Marshal(verbs.LocateBody{Generation: to.generation})
	if err != nil {
		return nil, fmt.Errorf("encode locate: %w", err)
	}
	reply, err := r.commands.Do(ctx, events.ServiceWorkload, to.tenant, verbs.Locate, command.Request{
		Actor: gateway, Session: to.session, Body: body,
	})
	if err != nil {
		return nil, err
	}
	var found verbs.LocateResult
	if err := json.Unmarshal(reply.Result, &found); err != nil {
		return nil, fmt.Errorf("decode locate: %w", err)
	}
	if found.Generation != to.generation || found.PodUID != to.podUID {
		return nil, unreachable(nil)
	}
	c, err := sandboxapi.NewClientAt(sandboxapi.Endpoint{URL: found.Endpoint, Access: found.Access}, to.session, to.generation)
	if err != nil {
		return nil, fmt.Errorf("locate %s: %w", to.session, err)
	}
	r.known.Add(to, route{Client: c, until: found.AccessUntil})
	return c, nil
}

// drop forgets one address.
func (r *routes) drop(to target) { r.known.Remove(to) }

// dropSession forgets every address of a session.
func (r *routes) dropSession(tenant, session string) {
	for _, key := range r.known.Keys() {
		if key.tenant == tenant && key.session == session {
			r.known.Remove(key)
		}
	}
}

// viaRoute is a transport to one sandbox. Where the way there turns out to be
// wrong it is looked up once more, if the request can be sent again.
type viaRoute struct {
	routes *routes
	to     target
}

// RoundTrip implements http.RoundTripper.
func (v viaRoute) RoundTrip(req *http.Request) (*http.Response, error) {
	for attempt := 0; ; attempt++ {
		client, err := v.routes.find(req.Context(), v.to)
		if err != nil {
			return nil, err
		}
		resp, err := client.InvokeTransport().RoundTrip(req)
		if err == nil && resp.StatusCode != http.StatusMisdirectedRequest {
			return resp, nil
		}
		v.routes.drop(v.to)
		if attempt == 0 && repeatable(req) && req.Context().Err() == nil {
			if resp != nil {
				_ = resp.Body.Close() // not read
			}
			continue
		}
		if err == nil {
			_ = resp.Body.Close()
		}
		return nil, unreachable(err)
	}
}

// repeatable says that sending a request twice does no harm.
func repeatable(req *http.Request) bool {
	return (req.Body == nil || req.Body == http.NoBody) && (req.Method == http.MethodGet || req.Method == http.MethodHead)
}

func unreachable(cause error) error {
	return problem.Wrap(api.CodeSandboxUnreachable, "The sandbox does not answer.", cause)
}
