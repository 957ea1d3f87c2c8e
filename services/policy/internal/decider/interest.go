package decider

import "github.com/holdfast-io/holdfast/events/session"

// Interested says whether a message may leave calls behind that can't go on.
func Interested(types []string) bool {
	for _, t := range types {
		switch t {
		case session.TypeRunFinished, session.TypeRunFailed, session.TypeExpired, session.TypeTerminated, session.TypeEndRequested:
			return true
		}
	}
	return false
}
