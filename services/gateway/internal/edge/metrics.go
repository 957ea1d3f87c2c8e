package edge

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics count requests. Labels are bounded: routes are patterns and methods
// are those that some route has.
type Metrics struct {
	took *prometheus.HistogramVec
	open prometheus.Gauge
}

// NewMetrics registers the metrics of one listener: "public" or "agent".
func NewMetrics(reg prometheus.Registerer, listener string) (*Metrics, error) {
	labels := prometheus.Labels{"listener": listener}
	m := &Metrics{
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "holdfast_gateway_request_seconds", Help: "How long requests took, by route, method and status.",
			ConstLabels: labels, Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"route", "method", "status"}),
		open: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "holdfast_gateway_open_requests", Help: "Requests being served, streams too.", ConstLabels: labels,
		}),
	}
	for _, c := range []prometheus.Collector{m.took, m.open} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Metrics) observe(route, method string, status int, took time.Duration) {
	if route == "none" {
		method = "any" // anybody can send any method to no route
	}
	m.took.WithLabelValues(route, method, strconv.Itoa(status)).Observe(took.Seconds())
}
