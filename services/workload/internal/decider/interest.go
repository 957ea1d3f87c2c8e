package decider

import "github.com/holdfast-io/holdfast/events/session"

// Interested says whether a message may change what is wanted of a sandbox.
func Interested(types []string) bool {
	for _, t := range types {
		switch t {
		case session.TypeCreated, session.TypeSuspendRequested, session.TypeResumeRequested, session.TypeExpired,
			session.TypeTerminated, session.TypeEndRequested, session.TypeClaimRequested, session.TypeClaimed,
			session.TypeSuspended, session.TypeLost, session.TypeFailed:
			return true
		}
	}
	return false
}
