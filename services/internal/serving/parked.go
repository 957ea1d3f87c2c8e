package serving

import (
	"context"
	"errors"
	"maps"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/services/internal/command"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/reactor"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
)

// parked answers for what a service gave up on. Each service answers for its own
// part of PARKED, so that the gateway, which forwards what an operator asks, needs no
// right to the bucket, and the tenant is the command's.
type parked struct {
	js      jetstream.JetStream
	service events.Service
}

// with gives a service's handlers and these.
func (p parked) with(handlers map[string]command.Handler) map[string]command.Handler {
	all := map[string]command.Handler{}
	maps.Copy(all, handlers)
	all[verbs.ParkedList], all[verbs.ParkedRetry] = p.list, p.retry
	return all
}

func (p parked) list(ctx context.Context, tenant string, _ command.Request) (command.Reply, error) {
	found, err := reactor.ListOf(ctx, p.js, p.service, tenant)
	if err != nil {
		return command.Reply{}, err
	}
	out := verbs.ParkedListResult{Items: make([]verbs.Parked, len(found))}
	for i, f := range found {
		out.Items[i] = verbs.Parked{Session: f.Session, Reason: f.Reason, Failures: f.Failures, At: f.At}
	}
	return command.Result(0, 0, false, out)
}

func (p parked) retry(ctx context.Context, tenant string, req command.Request) (command.Reply, error) {
	err := reactor.Retry(ctx, p.js, p.service, reactor.Key{Tenant: tenant, Session: req.Session})
	if errors.Is(err, reactor.ErrNotParked) {
		return command.Reply{}, problem.Wrap(api.CodeNotFound, "The "+string(p.service)+" service has not parked this session.", err)
	}
	return command.Reply{}, err
}
