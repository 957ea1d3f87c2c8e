// Package correlate carries what belongs together through contexts into log lines:
// the id of the client's request and its W3C trace. The gateway gives both to a
// request, package command takes them along to the service that decides, and
// [Handler] adds them to every line that is written with their context:
//
//	request=req-… trace_id=0af7651916cd43dd8448eb211c80319c
//
// The trace stands on the events, too (Envelope.Trace), so that a line of a log, an
// answer's X-Request-ID and an event of the audit lead to each other.
package correlate

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"regexp"
)

// IDs name one request of a client. Both may be empty.
type IDs struct {
	// Request is the id that the gateway gave it.
	Request string
	// Trace is a W3C traceparent.
	Trace string
}

type key struct{}

// With gives a context that carries the ids.
func With(ctx context.Context, ids IDs) context.Context { return context.WithValue(ctx, key{}, ids) }

// Of are the ids that a context carries; none outside a request.
func Of(ctx context.Context) IDs {
	ids, _ := ctx.Value(key{}).(IDs)
	return ids
}

var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}$`)

// ValidTrace says whether a header's value is a W3C traceparent.
func ValidTrace(s string) bool { return traceparent.MatchString(s) }

// NewTrace begins a trace, for a request that brings none. It isn't sampled: nobody
// collects spans, but its id ties lines and events together.
func NewTrace() string {
	var b [24]byte
	_, _ = rand.Read(b[:]) // never fails
	return "00-" + hex.EncodeToString(b[:16]) + "-" + hex.EncodeToString(b[16:]) + "-00"
}

// TraceID is the part of a traceparent that names the trace; "" without one.
func (ids IDs) TraceID() string {
	if m := traceparent.FindStringSubmatch(ids.Trace); m != nil {
		return m[1]
	}
	return ""
}

// Handler adds the ids of the context to what it hands on.
func Handler(next slog.Handler) slog.Handler { return handler{next} }

type handler struct{ slog.Handler }

// Handle implements slog.Handler.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	ids := Of(ctx)
	if ids.Request != "" {
		r.AddAttrs(slog.String("request", ids.Request))
	}
	if id := ids.TraceID(); id != "" {
		r.AddAttrs(slog.String("trace_id", id))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h handler) WithGroup(name string) slog.Handler { return handler{h.Handler.WithGroup(name)} }
