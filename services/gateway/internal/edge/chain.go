package edge

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/services/internal/correlate"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

// HeaderRequestID names a request in answers and logs.
const HeaderRequestID = "X-Request-ID"

type requestKey struct{}

// request is what becomes known of a request while it is served. Caller is filled
// in by Guard, for the log line that is written when it is over.
type request struct {
	caller string
}

// SetCaller says who the request turned out to be from, for the log.
func SetCaller(ctx context.Context, caller string) { of(ctx).caller = caller }

func of(ctx context.Context) *request {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		return r
	}
	return &request{}
}

// Identify gives the request an id of ours: one that a client chose would let it
// write what it likes into our logs. A trace is the client's, where it sends a W3C
// traceparent, else a new one.
func Identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ids := correlate.IDs{Request: events.RandomID("req"), Trace: r.Header.Get("Traceparent")}
		if !correlate.ValidTrace(ids.Trace) {
			ids.Trace = correlate.NewTrace()
		}
		w.Header().Set(HeaderRequestID, ids.Request)
		ctx := correlate.With(r.Context(), ids)
		next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, requestKey{}, &request{})))
	})
}

// contentPolicy lets the console load what is its own, and nothing else.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; " +
	"connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Headers sets what keeps an answer from being used for anything else in a browser.
func Headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=(), payment=()")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// Recover turns a panic into a problem and a log line, and keeps the process.
func (p Problems) Recover(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		defer func() { //nolint:contextcheck // the request has its own, which Write takes
			cause := recover()
			if cause == nil {
				return
			}
			if cause == http.ErrAbortHandler { //nolint:errorlint // the very value is the contract of net/http
				panic(cause)
			}
			p.Logger.ErrorContext(r.Context(), "request panicked", "panic", cause, "stack", string(debug.Stack()))
			if ww.Status() != 0 {
				panic(http.ErrAbortHandler) // half an answer must not look like a whole one
			}
			p.Write(ww, r, problem.From(fmt.Errorf("panic: %v", cause)))
		}()
		next.ServeHTTP(ww, r)
	})
}

// Observe writes a log line and counts, when the request is over.
func Observe(logger *slog.Logger, metrics *Metrics) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			begin := time.Now()
			ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
			metrics.open.Inc()
			defer func() { //nolint:contextcheck // the request has its own
				metrics.open.Dec()
				took, status := time.Since(begin), ww.Status()
				if status == 0 {
					status = http.StatusOK
				}
				route := routeOf(r)
				metrics.observe(route, r.Method, status, took)
				logger.LogAttrs(r.Context(), level(r, status), "request",
					slog.String("method", r.Method), slog.String("route", route),
					slog.Int("status", status), slog.Int("bytes", ww.BytesWritten()), slog.Duration("took", took),
					slog.String("caller", of(r.Context()).caller))
			}()
			next.ServeHTTP(ww, r)
		})
	}
}

// routeOf is the pattern that matched: a bounded set of words, unlike paths.
func routeOf(r *http.Request) string {
	if c := chi.RouteContext(r.Context()); c != nil && c.RoutePattern() != "" {
		return c.RoutePattern()
	}
	return "none"
}

// level keeps reads out of an ordinary log and shows what went wrong. That it isn't
// ready yet is readyz' very answer, and whoever asks it asks often.
func level(r *http.Request, status int) slog.Level {
	switch {
	case routeOf(r) == "/readyz":
		return slog.LevelDebug
	case status >= http.StatusInternalServerError:
		return slog.LevelWarn
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		return slog.LevelDebug
	}
	return slog.LevelInfo
}
