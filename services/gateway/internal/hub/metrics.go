package hub

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-io/holdfast/api"
)

// metrics count what viewers meet. Their labels are the codes of closes and the
// reasons of gaps: few, and not chosen by clients.
type metrics struct {
	closed *prometheus.CounterVec
	gaps   *prometheus.CounterVec
}

// newMetrics makes the metrics, and registers them where there is a registry.
func newMetrics(reg prometheus.Registerer, h *Hub) (*metrics, error) {
	m := &metrics{
		closed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_hub_closed_total", Help: "Connections of viewers that the gateway closed, by reason.",
		}, []string{"reason"}),
		gaps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_hub_gaps_total", Help: "Ranges that could not be delivered, by reason; one that all live viewers meet counts once.",
		}, []string{"reason"}),
	}
	if reg == nil {
		return m, nil
	}
	count := func(name, help string, of func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			h.mu.Lock()
			defer h.mu.Unlock()
			return float64(of())
		})
	}
	for _, c := range []prometheus.Collector{
		m.closed, m.gaps,
		count("holdfast_hub_connections", "Connections of viewers.", func() int { return len(h.conns) }),
		count("holdfast_hub_topics", "Sessions that are watched.", func() int { return len(h.topics) }),
		count("holdfast_hub_ring_bytes", "Recent output that is kept for those who attach.", func() int { return h.recent.bytes }),
	} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// left counts a connection that ended; one that its client ended counts nowhere.
func (m *metrics) left(code api.CloseCode) {
	if code != 0 && code != gone {
		m.closed.WithLabelValues(code.String()).Inc()
	}
}

func (m *metrics) gap(reason gapReason) { m.gaps.WithLabelValues(string(reason)).Inc() }
