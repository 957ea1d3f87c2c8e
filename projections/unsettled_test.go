package projections

import (
	"slices"
	"testing"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
)

func TestUnsettled(t *testing.T) {
	t.Parallel()
	type services = []events.Service
	const sess, work, runner = events.ServiceSession, events.ServiceWorkload, events.ServiceRunner
	claimed := session.Workload{Generation: 1, Status: session.WorkloadClaimed}
	ready := session.Workload{Generation: 1, Status: session.WorkloadReady, WasReady: true}
	suspended := session.Workload{Generation: 1, Status: session.WorkloadSuspended, WasReady: true}
	released := session.Workload{Generation: 1, Status: session.WorkloadReleased, WasReady: true}
	lost := session.Workload{Generation: 1, Status: session.WorkloadLost, WasReady: true}
	failed := session.Workload{Generation: 1, Status: session.WorkloadFailed}
	queue := []session.Queued{{RunID: "r"}}
	for _, tt := range []struct {
		name   string
		change func(*session.State)
		want   services
	}{
		{"new", func(st *session.State) { st.WantRunning = true }, services{work}},
		{"being claimed", func(st *session.State) { st.WantRunning, st.Workload = true, claimed }, services{work}},
		{"ready", func(st *session.State) { st.WantRunning, st.Workload = true, ready }, services{work}},
		{"ready with a message", func(st *session.State) { st.WantRunning, st.Workload, st.Queue = true, ready, queue }, services{work, runner}},
		{"running", func(st *session.State) { st.WantRunning, st.Workload, st.Run = true, ready, &session.Run{ID: "r"} }, services{work, runner}},
		{"being put away", func(st *session.State) { st.Suspending, st.Workload = true, ready }, services{work}},
		{"asleep", func(st *session.State) { st.Workload = suspended }, nil},
		{"asleep with a message", func(st *session.State) { st.Workload, st.Queue = suspended, queue }, services{sess}},
		{"to be woken", func(st *session.State) { st.WantRunning, st.Workload, st.Queue = true, suspended, queue }, services{work}},
		{"lost", func(st *session.State) { st.Workload = lost }, nil},
		{"lost for good", func(st *session.State) { st.Workload, st.Terms.OnLoss = lost, "end" }, services{sess}},
		{"failed", func(st *session.State) { st.WantRunning, st.Workload = true, failed }, services{sess}},
		{"ending with a sandbox", func(st *session.State) { st.Ending, st.Workload = true, ready }, services{work}},
		{"ending with none", func(st *session.State) { st.Ending, st.Workload = true, released }, services{sess}},
		{"ending with a queue", func(st *session.State) { st.Ending, st.Workload, st.Queue = true, released, queue }, services{runner}},
		{"ended", func(st *session.State) { st.Ending, st.Ended, st.Workload = true, true, released }, nil},
	} {
		st := session.New()
		st.N = 1
		tt.change(st)
		if got := unsettled(st); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// What a dead run left is the policy service's.
func TestUnsettledCalls(t *testing.T) {
	t.Parallel()
	log := newLog()
	s := newScribe(t, log)
	s.create(sid(1))
	s.ready(sid(1))
	s.ask(sid(1))
	policyDue := func() bool {
		st := newStory()
		for seq := uint64(2); ; seq++ {
			m, err := log.Get(t.Context(), seq)
			if err != nil {
				return slices.Contains(unsettled(st.State), events.ServicePolicy)
			}
			if err := st.Apply(m); err != nil {
				t.Fatal(err)
			}
		}
	}
	if policyDue() {
		t.Error("a question that waits has nothing for the policy service to do")
	}
	s.say(sid(1), events.ServiceRunner, session.RunFinished{RunID: sid(1) + "-r1", Outcome: "cancelled"})
	if !policyDue() {
		t.Error("nobody would cancel the call of a cancelled run")
	}
}
