package rest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiserver"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
)

// listTimeout bounds the question to one service: on the day on which this list is
// needed, one of them may be what doesn't work.
const listTimeout = 3 * time.Second

// reacting are the services that park sessions.
var reacting = []events.Service{events.ServiceSession, events.ServiceWorkload, events.ServicePolicy, events.ServiceRunner}

// ListParked asks every service what it gave up on; who doesn't answer is named.
func (a *API) ListParked(ctx context.Context, _ apiserver.ListParkedRequestObject) (apiserver.ListParkedResponseObject, error) {
	var (
		found  = make([]verbs.ParkedListResult, len(reacting))
		failed = make([]error, len(reacting))
		asking sync.WaitGroup
	)
	for i, service := range reacting {
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, listTimeout)
			defer cancel()
			_, failed[i] = a.send(ctx, write{service: service, verb: verbs.ParkedList, body: struct{}{}}, &found[i])
		})
	}
	asking.Wait()
	out := api.ParkedList{Items: []api.Parked{}}
	for i, service := range reacting {
		if failed[i] != nil {
			out.Silent = append(out.Silent, api.ParkingService(service))
		}
		for _, p := range found[i].Items {
			out.Items = append(out.Items, api.Parked{
				Service: api.ParkingService(service), Session: p.Session, Reason: p.Reason, Failures: p.Failures, At: p.At,
			})
		}
	}
	if len(out.Silent) == len(reacting) {
		return nil, problem.From(failed[0])
	}
	slices.SortStableFunc(out.Items, func(a, b api.Parked) int { return a.At.Compare(b.At) })
	return apiserver.ListParked200JSONResponse(out), nil
}

// RetryParked has a service try a session again that it gave up on.
func (a *API) RetryParked(ctx context.Context, req apiserver.RetryParkedRequestObject) (apiserver.RetryParkedResponseObject, error) {
	_, err := a.send(ctx, write{service: events.Service(req.Service), verb: verbs.ParkedRetry, session: req.ID, body: struct{}{}}, nil)
	return apiserver.RetryParked204Response{}, err
}
