package rest

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiserver"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

// readWithin bounds a read, what it waits for minSeq included. A Postgres that is slow
// or hangs must not hold on to its callers; commands have a deadline of their own.
const readWithin = 10 * time.Second

// boundReads gives each read its time and words what didn't come within it.
func boundReads(next apiserver.StrictHandlerFunc, _ string) apiserver.StrictHandlerFunc {
	return func(ctx context.Context, w http.ResponseWriter, r *http.Request, request any) (any, error) {
		if r.Method != http.MethodGet {
			return next(ctx, w, r, request)
		}
		within, cancel := context.WithTimeout(ctx, readWithin)
		defer cancel()
		out, err := next(within, w, r, request)
		if err != nil && ctx.Err() == nil && errors.Is(within.Err(), context.DeadlineExceeded) {
			p := problem.Wrap(api.CodeHistoryUnavailable, "It could not be read in time; commands work.", err)
			p.RetryAfter = readWithin
			return nil, p
		}
		return out, err
	}
}
