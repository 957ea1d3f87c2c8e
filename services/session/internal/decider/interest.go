package decider

import "github.com/holdfast-io/holdfast/events/session"

// Interested says whether a message may change what Settle decides: anything of
// a workload or a run, a call that came to its end, and the session's own ends.
func Interested(types []string) bool {
	for _, t := range types {
		switch t {
		case session.TypeReleased, session.TypeFailed, session.TypeLost, session.TypeSuspended,
			session.TypeRunFinished, session.TypeRunFailed, session.TypeRunInterrupted,
			session.TypeExpired, session.TypeTerminated, session.TypeEndRequested, session.TypeMessageReceived,
			session.TypeCallApproved, session.TypeCallDenied, session.TypeCallExpired, session.TypeCallCancelled,
			session.TypeCallSuperseded, session.TypeCallCompleted, session.TypeCallLapsed:
			return true
		}
	}
	return false
}
