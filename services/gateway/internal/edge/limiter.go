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
	r := l.bucket(key).Reserve()
	wait := r.Delay()
	if wait <= 0 {
		return nil
	}
	r.Cancel()
	return tooMany(wait)
}

// Spent is Allow without taking anything: what is charged afterwards, and only where it
// deserves it, is refused beforehand once there is nothing left.
func (l *Limiter) Spent(key string) error {
	missing := 1 - l.bucket(key).Tokens()
	if missing <= 0 {
		return nil
	}
	return tooMany(time.Duration(missing / float64(l.perSecond) * float64(time.Second)))
}

func (l *Limiter) bucket(key string) *rate.Limiter {
	if bucket, ok := l.buckets.Get(key); ok {
		return bucket
	}
	fresh := rate.NewLimiter(l.perSecond, l.burst)
	if before, raced, _ := l.buckets.PeekOrAdd(key, fresh); raced {
		return before
	}
	return fresh
}

func tooMany(wait time.Duration) error {
	p := problem.New(api.CodeQuotaExceeded, "Too many requests; slow down.")
	p.RetryAfter = max(wait, time.Second)
	return p
}
