package projections

import (
	"slices"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
)

// unsettled lists the services that have something to do for a session: where what
// is observed isn't what is desired. Their sweeps enqueue it, so that a lost
// notification delays and never strands. It may name one too many, never one too
// few: a reactor that finds nothing to do does nothing.
func unsettled(st *session.State) []events.Service {
	var services []events.Service
	for _, s := range []struct {
		service events.Service
		acts    func(*session.State) bool
	}{
		{events.ServiceSession, sessionActs},
		{events.ServiceWorkload, workloadActs},
		{events.ServicePolicy, policyActs},
		{events.ServiceRunner, runnerActs},
	} {
		if st.Exists() && !st.Ended && s.acts(st) {
			services = append(services, s.service)
		}
	}
	return services
}

// sessionActs: a run is due without a sandbox wanted, a sandbox failed or is lost
// for good, or all of an ending session is put away.
func sessionActs(st *session.State) bool {
	w := st.Workload.Status
	if st.Ending {
		return gone(w) && st.Run == nil && st.Interrupted == nil && len(st.Queue) == 0 && st.OpenCalls() == 0
	}
	return st.RunDue() && !st.WantRunning || w == session.WorkloadFailed ||
		w == session.WorkloadLost && st.Terms.OnLoss == "end"
}

// workloadActs: a sandbox is wanted and isn't there, or is there and isn't wanted,
// or is on its way.
func workloadActs(st *session.State) bool {
	switch w := st.Workload.Status; {
	case st.Ending:
		return !gone(w)
	case st.Suspending, w == session.WorkloadRequested, w == session.WorkloadClaimed:
		return true
	case w == session.WorkloadReady:
		return true // it may have gone together with its host, which then tells nobody
	case w == session.WorkloadFailed:
		return false // the session service ends it first
	default:
		return st.WantRunning
	}
}

// gone says that nothing of a sandbox exists.
func gone(w session.WorkloadStatus) bool {
	return w == session.WorkloadNone || w == session.WorkloadReleased
}

// runnerActs: a run could start, or one is open and has to be driven, taken over or
// closed, or a parked one is to be cancelled, or an ending session has some left.
func runnerActs(st *session.State) bool {
	return st.Run != nil || st.Phase() == session.PhaseReady && st.RunDue() ||
		st.Interrupted != nil && slices.ContainsFunc(st.Queue, func(q session.Queued) bool { return q.CancelOpen }) ||
		st.Ending && (st.Interrupted != nil || len(st.Queue) > 0)
}

// policyActs: a call is open that no run can start or wait for any more.
func policyActs(st *session.State) bool {
	if st.OpenCalls() == 0 {
		return false
	}
	for _, c := range st.Calls {
		if !c.State.Final() && (st.Ending || !st.ChainOpen(c.Root)) {
			return true
		}
	}
	return false
}
