// Package metered counts and times what a deciding service does at its two edges:
// the commands that it answers and the envelopes that it appends. Names follow
// Prometheus' conventions: seconds as histograms, counters end in _total, labels
// have a bounded set of values.
package metered

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/services/internal/command"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

// Metrics are those of all services of a process.
type Metrics struct {
	commands, appends *prometheus.HistogramVec
}

// New makes and registers the metrics. It panics when they are registered already:
// make them once for a process.
func New(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		commands: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "holdfast", Subsystem: "command", Name: "seconds",
			Help: "How long commands took, by service, verb and outcome (ok, or the problem's code).", Buckets: buckets,
		}, []string{"service", "verb", "outcome"}),
		appends: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "holdfast", Subsystem: "log", Name: "append_seconds",
			Help: "How long appends to the log took, by service and outcome (ok, conflict, unknown or refused).", Buckets: buckets,
		}, []string{"service", "outcome"}),
	}
	reg.MustRegister(m.commands, m.appends)
	return m
}

// buckets span from an append in memory to a command's longest wait.
var buckets = prometheus.ExponentialBuckets(0.0005, 3, 10)

// Handlers times each command. Without Metrics they stay as they are.
func (m *Metrics) Handlers(service events.Service, handlers map[string]command.Handler) map[string]command.Handler {
	if m == nil {
		return handlers
	}
	out := make(map[string]command.Handler, len(handlers))
	for verb, handle := range handlers {
		out[verb] = func(ctx context.Context, tenant string, req command.Request) (command.Reply, error) {
			begin := time.Now()
			reply, err := handle(ctx, tenant, req)
			outcome := "ok"
			if err != nil {
				outcome = string(problem.From(err).Code)
			}
			m.commands.WithLabelValues(string(service), verb, outcome).Observe(time.Since(begin).Seconds())
			return reply, err
		}
	}
	return out
}

// Log times each append. Without Metrics it stays as it is.
func (m *Metrics) Log(service events.Service, log eventlog.Log) eventlog.Log {
	if m == nil {
		return log
	}
	return timedLog{Log: log, appends: m.appends, service: string(service)}
}

type timedLog struct {
	eventlog.Log

	appends *prometheus.HistogramVec
	service string
}

// Append implements eventlog.Log.
func (l timedLog) Append(ctx context.Context, subject string, env events.Envelope) (uint64, error) {
	begin := time.Now()
	seq, err := l.Log.Append(ctx, subject, env)
	l.appends.WithLabelValues(l.service, outcome(err)).Observe(time.Since(begin).Seconds())
	return seq, err
}

func outcome(err error) string {
	var (
		conflict *eventlog.ConflictError
		unknown  *eventlog.OutcomeUnknownError
	)
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &conflict):
		return "conflict"
	case errors.As(err, &unknown):
		return "unknown"
	}
	return "refused"
}
