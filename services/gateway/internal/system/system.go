// Package system answers for the gateway's own state: /healthz says that the
// process can answer, /readyz whether every part it needs works and which doesn't,
// /metrics counts.
package system

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfast-io/holdfast/api"
)

const (
	// checkTimeout is how long one part has to say that it works.
	checkTimeout = 2 * time.Second
	// rememberFor keeps a flood of probes from becoming a flood of checks.
	rememberFor = 500 * time.Millisecond
)

// Check says why a part doesn't work; nil while it does. Its words are public.
type Check func(ctx context.Context) error

// Part is a part that the gateway needs, with its check.
type Part struct {
	Name string
	// Check may be nil for a part that always works.
	Check Check
	// Degraded says what somebody has to do something about though the part works, ""
	// for nothing; may be nil. It must not wait. Its words are public.
	Degraded func() string
}

// Readiness asks all parts, at the same time.
type Readiness struct {
	parts []Part

	mu   sync.Mutex
	last api.Readiness
	at   time.Time
}

// NewReadiness makes a Readiness of the parts, which are shown in this order.
func NewReadiness(parts ...Part) *Readiness { return &Readiness{parts: parts} }

// Now asks every part, or gives an answer of a moment ago.
func (r *Readiness) Now(ctx context.Context) api.Readiness {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.at.IsZero() && time.Since(r.at) < rememberFor {
		return r.last
	}
	// A probe that is given up must not be remembered as parts that don't work.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
	defer cancel()
	out := api.Readiness{Ready: true, Parts: make([]api.Part, len(r.parts))}
	var asking sync.WaitGroup
	for i, part := range r.parts {
		asking.Go(func() { out.Parts[i] = ask(ctx, part) })
	}
	asking.Wait()
	for _, p := range out.Parts {
		out.Ready = out.Ready && p.Ready
	}
	r.last, r.at = out, time.Now()
	return out
}

func ask(ctx context.Context, part Part) api.Part {
	if part.Check == nil {
		return degraded(part)
	}
	answer := make(chan error, 1)
	go func() { answer <- part.Check(ctx) }()
	select {
	case err := <-answer:
		if err != nil {
			return api.Part{Name: part.Name, Detail: err.Error()}
		}
		return degraded(part)
	case <-ctx.Done():
		return api.Part{Name: part.Name, Detail: fmt.Sprintf("no answer in %s", checkTimeout)}
	}
}

// degraded is a part that works, with what there is to say all the same.
func degraded(part Part) api.Part {
	out := api.Part{Name: part.Name, Ready: true}
	if part.Degraded != nil {
		out.Detail = part.Degraded()
		out.Degraded = out.Detail != ""
	}
	return out
}

// ServeHTTP answers /readyz: 200 only when every part works.
func (r *Readiness) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	now := r.Now(req.Context())
	body, err := json.Marshal(now)
	if err != nil {
		panic(err) // strings and booleans always encode
	}
	w.Header().Set("Content-Type", "application/json")
	if !now.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = w.Write(append(body, '\n')) // the client may be gone; there is nobody left to tell
}

// Health answers /healthz.
func Health(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n")) // as above
}

// Metrics answers /metrics from a registry.
func Metrics(from prometheus.Gatherer, logger *slog.Logger) http.Handler {
	return promhttp.HandlerFor(from, promhttp.HandlerOpts{ErrorLog: errorLog{logger}})
}

// errorLog hands promhttp's lines to slog.
type errorLog struct{ log *slog.Logger }

// Println implements promhttp.Logger.
func (l errorLog) Println(v ...any) { l.log.Error("metrics not gathered", "err", fmt.Sprint(v...)) }
