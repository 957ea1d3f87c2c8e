// Package throttle bounds what may be asked of sandboxd, so that a flood is its own
// sandbox's trouble and nobody else's.
package throttle

import (
	"net/http"

	"golang.org/x/time/rate"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
)

// Throttle refuses what is over its bounds. It is safe for concurrent use.
type Throttle struct {
	rate *rate.Limiter
	open chan struct{}
}

// New lets so many requests a second through, for long, so many at once after a rest,
// and has so many under way.
func New(perSecond rate.Limit, burst, open int) *Throttle {
	return &Throttle{rate: rate.NewLimiter(perSecond, burst), open: make(chan struct{}, open)}
}

// Enter lets a request in; leave has then to be called. It has answered with 429
// where ok is false.
func (t *Throttle) Enter(w http.ResponseWriter) (leave func(), ok bool) {
	if !t.rate.Allow() {
		refuse(w, "too many requests: wait, and ask less often")
		return nil, false
	}
	select {
	case t.open <- struct{}{}:
		return func() { <-t.open }, true
	default:
		refuse(w, "too many requests under way: wait for the answer of one")
		return nil, false
	}
}

func refuse(w http.ResponseWriter, detail string) {
	w.Header().Set("Retry-After", "1")
	sandboxapi.NewProblem(http.StatusTooManyRequests, sandboxapi.CodeQuotaExceeded, detail).Write(w)
}
