package agentside

import (
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/sandboxtoken"
)

// current says whether a token's sandbox is the session's own now: same
// generation, same incarnation, and neither lost nor put away.
func current(c sandboxtoken.Claims, s *session.State) bool {
	if !s.Exists() || s.Ended || s.Workload.Generation != c.Generation || s.Workload.PodUID != c.PodUID {
		return false
	}
	switch s.Workload.Status {
	case session.WorkloadClaimed, session.WorkloadReady:
		return true
	case session.WorkloadNone, session.WorkloadRequested, session.WorkloadSuspended, session.WorkloadLost,
		session.WorkloadFailed, session.WorkloadReleased:
		return false
	}
	return false
}
