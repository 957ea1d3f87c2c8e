package brake

import "github.com/prometheus/client_golang/prometheus"

// Metrics of the brake, one for a process: its services measure the same storage.
type Metrics struct {
	used    *prometheus.GaugeVec
	braking prometheus.Gauge
	refused prometheus.Counter
}

// NewMetrics makes and registers the metrics. It panics when they are registered
// already: make them once for a process.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := newMetrics()
	reg.MustRegister(m.used, m.braking, m.refused)
	return m
}

func newMetrics() *Metrics {
	const namespace, subsystem = "holdfast", "storage"
	return &Metrics{
		used: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "used_ratio",
			Help: "How much of the log's storage is used, 1 for all of it, by what limits it; 0 without a limit.",
		}, []string{"what"}),
		braking: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "braking",
			Help: "1 while only what ends something is appended because storage is low.",
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "refused_total",
			Help: "Appends refused because storage is low.",
		}),
	}
}
