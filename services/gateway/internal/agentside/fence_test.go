package agentside

import (
	"testing"

	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/sandboxtoken"
)

func TestCurrent(t *testing.T) {
	t.Parallel()
	claims := sandboxtoken.Claims{Tenant: "default", Session: "s-k3v5d2m7q4x6z2b7c5aa", Generation: 2, PodUID: "pod-1"}
	state := func(change func(*session.State)) *session.State {
		s := session.New()
		s.N = 5
		s.Workload = session.Workload{Generation: 2, PodUID: "pod-1", Status: session.WorkloadReady}
		change(s)
		return s
	}
	for _, test := range []struct {
		name   string
		change func(*session.State)
		want   bool
	}{
		{"ready", func(*session.State) {}, true},
		{"claimed, not ready yet", func(s *session.State) { s.Workload.Status = session.WorkloadClaimed }, true},
		{"ending: results still count", func(s *session.State) { s.Ending = true }, true},
		{"no such session", func(s *session.State) { s.N = 0 }, false},
		{"ended", func(s *session.State) { s.Ended = true }, false},
		{"a newer generation", func(s *session.State) { s.Workload.Generation = 3 }, false},
		{"resumed elsewhere", func(s *session.State) { s.Workload.PodUID = "pod-2" }, false},
		{"suspended", func(s *session.State) { s.Workload.Status = session.WorkloadSuspended }, false},
		{"lost", func(s *session.State) { s.Workload.Status = session.WorkloadLost }, false},
		{"released", func(s *session.State) { s.Workload.Status = session.WorkloadReleased }, false},
	} {
		if got := current(claims, state(test.change)); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}
