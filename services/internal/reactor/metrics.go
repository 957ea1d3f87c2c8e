package reactor

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-io/holdfast/events"
)

// Metrics of all reactors of a process, labelled by service.
type Metrics struct {
	keys, parked     *prometheus.GaugeVec
	messages         *prometheus.CounterVec
	settled, failed  *prometheus.CounterVec
	parkings         *prometheus.CounterVec
	secondsPerSettle *prometheus.HistogramVec
}

// NewMetrics makes and registers the metrics. It panics when they are registered
// already: make them once for a process.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := newMetrics()
	reg.MustRegister(m.keys, m.parked, m.messages, m.settled, m.failed, m.parkings, m.secondsPerSettle)
	return m
}

func newMetrics() *Metrics {
	label := []string{"service"}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "holdfast", Subsystem: "reactor", Name: name, Help: help}, label)
	}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "holdfast", Subsystem: "reactor", Name: name, Help: help}, label)
	}
	return &Metrics{
		keys:     gauge("keys", "Sessions that wait to be settled, are being settled, or back off."),
		parked:   gauge("parked", "Sessions that are parked until somebody retries them."),
		messages: counter("messages_total", "Messages of interest that were taken."),
		settled:  counter("settled_total", "Times that a session was settled."),
		failed:   counter("failed_total", "Times that settling a session failed."),
		parkings: counter("parked_total", "Times that a session was parked."),
		secondsPerSettle: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "holdfast", Subsystem: "reactor", Name: "settle_seconds",
			Help: "Time to settle a session once.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}, label),
	}
}

// serviceMetrics are one reactor's.
type serviceMetrics struct {
	keys, parked                        prometheus.Gauge
	messages, settled, failed, parkings prometheus.Counter
	seconds                             prometheus.Observer
}

// of gives one service's metrics; without Metrics, ones that nobody reads.
func (m *Metrics) of(service events.Service) serviceMetrics {
	if m == nil {
		m = newMetrics()
	}
	s := string(service)
	return serviceMetrics{
		keys: m.keys.WithLabelValues(s), parked: m.parked.WithLabelValues(s),
		messages: m.messages.WithLabelValues(s), settled: m.settled.WithLabelValues(s),
		failed: m.failed.WithLabelValues(s), parkings: m.parkings.WithLabelValues(s),
		seconds: m.secondsPerSettle.WithLabelValues(s),
	}
}
