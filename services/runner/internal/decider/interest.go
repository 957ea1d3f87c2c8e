package decider

import (
	"strings"

	"github.com/holdfast-io/holdfast/events/session"
)

// Interested says whether a message may make a run due, or concern the open one.
func Interested(types []string) bool {
	for _, t := range types {
		switch t {
		case session.TypeMessageReceived, session.TypeReady, session.TypeResumed, session.TypeLost, session.TypeFailed,
			session.TypeReleased, session.TypeSuspended, session.TypeExpired, session.TypeTerminated, session.TypeEndRequested,
			session.TypeRunCancelRequested, session.TypeRunFinished, session.TypeRunFailed, session.TypeRunInterrupted:
			return true
		}
		switch {
		case t == session.TypeCallProposed || t == session.TypeCallStarted || t == session.TypeCallDecided:
		case strings.HasPrefix(t, "call."):
			return true
		}
	}
	return false
}
