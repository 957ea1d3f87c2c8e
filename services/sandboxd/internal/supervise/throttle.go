package supervise

import (
	"net/http"

	"golang.org/x/time/rate"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
)

// What one agent may ask of Holdfast, so that a flood is its own sandbox's trouble
// and never reaches the gateway, which all share. An agent that pushes its output
// sends some 25 batches a second; each that holds keeps one request open for a call.
const (
	relayRate  = 100 // requests a second, for long
	relayBurst = 200 // requests at once, after a rest
	relayOpen  = 64  // requests under way
)

// throttle refuses what is over its bounds.
type throttle struct {
	rate *rate.Limiter
	open chan struct{}
}

// newThrottle lets so many requests a second through, so many at once after a rest, and
// has so many under way.
func newThrottle(perSecond rate.Limit, burst, open int) *throttle {
	return &throttle{rate: rate.NewLimiter(perSecond, burst), open: make(chan struct{}, open)}
}

// enter lets a request in; leave has then to be called. It has answered with 429
// where ok is false.
func (t *throttle) enter(w http.ResponseWriter) (leave func(), ok bool) {
	if !t.rate.Allow() {
		refuseFlood(w, "too many requests: wait, and ask less often")
		return nil, false
	}
	select {
	case t.open <- struct{}{}:
		return func() { <-t.open }, true
	default:
		refuseFlood(w, "too many requests under way: wait for the answer of one")
		return nil, false
	}
}

func refuseFlood(w http.ResponseWriter, detail string) {
	w.Header().Set("Retry-After", "1")
	sandboxapi.NewProblem(http.StatusTooManyRequests, sandboxapi.CodeQuotaExceeded, detail).Write(w)
}
