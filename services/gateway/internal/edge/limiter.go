package edge

import (
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

// maxLimited is how many keys are remembered; whoever was quiet longest is
// forgotten first, and begins with a full bucket.
const maxLimited = 10_000

// Limiter keeps floods out, by a token bucket for each key.
type Limiter struct {
	perSecond rate.Limit
	burst     int
	buckets   *lru.Cache[string, *rate.Limiter]
}

// NewLimiter allows each key so many requests a second, and a burst.
func NewLimiter(perSecond float64, burst int) *Limiter {
	buckets, err := lru.New[string, *rate.Limiter](maxLimited)
	if err != nil {
		panic(err) // the size is a constant
	}
	return &Limiter{perSecond: rate.Limit(perSecond), burst: burst, buckets: buckets}
}

// Allow takes one request of the key's, or refuses it with a problem that says
// when the next may come.
func (l *Limiter) Allow(key string) error {
	bucket, ok := l.buckets.Get(key)
	if !ok {
		fresh := rate.NewLimiter(l.perSecond, l.burst)
		if before, raced, _ := l.buckets.PeekOrAdd(key, fresh); raced {
			bucket = before
		} else {
			bucket = fresh
		}
	}
	r := bucket.Reserve()
	wait := r.Delay()
	if wait <= 0 {
		return nil
	}
	r.Cancel()
	p := problem.New(api.CodeQuotaExceeded, "Too many requests; slow down.")
	p.RetryAfter = max(wait, time.Second)
	return p
}
