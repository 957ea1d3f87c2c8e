package decider

import (
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
)

// Settle compares what a session wants with what is observed and decides the
// next step that is the session service's to take; nothing when it is settled.
//
//   - Everything of an ending session is gone → ended.
//   - The workload failed, or was lost under onLoss end → ending, failed.
//   - A run is due and no sandbox is wanted → wanted.
func Settle(s *session.State, _ time.Time) ([]events.Record, error) {
	switch {
	case !s.Exists() || s.Ended:
		return nil, nil
	case s.Ending:
		if !gone(s) {
			return nil, nil
		}
		return records(session.Ended{Outcome: s.EndOutcome, Cause: s.EndCause})
	case s.Workload.Status == session.WorkloadFailed:
		return records(session.EndRequested{Outcome: session.OutcomeFailed, Cause: "workload failed: " + s.Workload.Cause})
	case s.Workload.Status == session.WorkloadLost && s.Terms.OnLoss == "end":
		return records(session.EndRequested{Outcome: session.OutcomeFailed, Cause: "workload lost: " + s.Workload.Cause})
	case s.RunDue() && !s.WantRunning:
		cause := "run"
		if s.Interrupted != nil {
			cause = "answer"
		}
		return records(session.ResumeRequested{Cause: cause})
	}
	return nil, nil
}

// gone says that nothing of an ending session is left: no sandbox, no run that
// is open, parked or queued, no call without its end.
func gone(s *session.State) bool {
	w := s.Workload.Status
	return (w == session.WorkloadNone || w == session.WorkloadReleased) && s.Run == nil && s.Interrupted == nil &&
		len(s.Queue) == 0 && s.OpenCalls() == 0
}

// Due decides a deadline of the session service that has passed. It is checked
// here again: one that was moved since decides nothing.
func Due(kind session.DeadlineKind) func(*session.State, time.Time) ([]events.Record, error) {
	return func(s *session.State, now time.Time) ([]events.Record, error) {
		switch kind {
		case session.DeadlineMax:
			return dueMax(s, now)
		case session.DeadlineIdle:
			return dueIdle(s, now)
		case session.DeadlineWaiting:
			return dueWaiting(s, now)
		case session.DeadlineClaim, session.DeadlineDrain, session.DeadlineApproval, session.DeadlineExecution:
			return nil, nil // another service's
		}
		return nil, nil
	}
}

func dueMax(s *session.State, now time.Time) ([]events.Record, error) {
	if !s.Exists() || s.Ending || s.Ended || s.MaxAt.IsZero() || s.MaxAt.After(now) {
		return nil, nil
	}
	return records(session.Expired{MaxAt: s.MaxAt})
}

func dueIdle(s *session.State, now time.Time) ([]events.Record, error) {
	at, ok := s.IdleAt()
	if used, _ := s.InUse(now); !ok || used || at.After(now) {
		return nil, nil
	}
	if !s.Workload.DrainingAt.IsZero() && s.Terms.Suspends {
		return records(session.SuspendRequested{Cause: "draining"})
	}
	if s.Terms.OnIdle == "end" && !s.Awaits() {
		return records(session.EndRequested{Outcome: session.OutcomeCompleted, Cause: "idle"})
	}
	return records(session.SuspendRequested{Cause: "idle"})
}

func dueWaiting(s *session.State, now time.Time) ([]events.Record, error) {
	at, ok := s.WaitingAt()
	if used, _ := s.InUse(now); !ok || used || at.After(now) {
		return nil, nil
	}
	return records(session.SuspendRequested{Cause: "waiting"})
}
