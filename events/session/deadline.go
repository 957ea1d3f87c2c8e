package session

import (
	"time"

	"github.com/holdfast-io/holdfast/events"
)

// DeadlineKind names what is due.
type DeadlineKind string

// The kinds of deadline and what happens at each: suspend or end (idle),
// suspend (waiting), expire (max), fail (claim), give up the sandbox (drain), deny or
// allow (approval), lapse (execution).
const (
	DeadlineIdle      DeadlineKind = "idle"
	DeadlineWaiting   DeadlineKind = "waiting"
	DeadlineMax       DeadlineKind = "max"
	DeadlineClaim     DeadlineKind = "claim"
	DeadlineDrain     DeadlineKind = "drain"
	DeadlineApproval  DeadlineKind = "approval"
	DeadlineExecution DeadlineKind = "execution"
)

// Deadline is a time in the state that a sweep has to act on. Key is the call's
// id for approval and execution.
type Deadline struct {
	Kind    DeadlineKind
	Key     string
	Service events.Service
	At      time.Time
}

// Deadlines lists what is due and when, earliest first not guaranteed. It is a
// function of the state alone: nothing keeps a clock that could be lost.
func (s *State) Deadlines() []Deadline {
	if !s.Exists() || s.Ending || s.Ended {
		return nil
	}
	var ds []Deadline
	if !s.MaxAt.IsZero() {
		ds = append(ds, Deadline{Kind: DeadlineMax, Service: events.ServiceSession, At: s.MaxAt})
	}
	if at, ok := s.IdleAt(); ok {
		ds = append(ds, Deadline{Kind: DeadlineIdle, Service: events.ServiceSession, At: at})
	}
	if at, ok := s.WaitingAt(); ok {
		ds = append(ds, Deadline{Kind: DeadlineWaiting, Service: events.ServiceSession, At: at})
	}
	if at, ok := s.ClaimAt(); ok {
		ds = append(ds, Deadline{Kind: DeadlineClaim, Service: events.ServiceWorkload, At: at})
	}
	if at, ok := s.DrainAt(); ok {
		ds = append(ds, Deadline{Kind: DeadlineDrain, Service: events.ServiceWorkload, At: at})
	}
	return append(ds, s.callDeadlines()...)
}

func (s *State) callDeadlines() []Deadline {
	if s.open == 0 {
		return nil
	}
	var ds []Deadline
	for _, id := range s.CallOrder {
		c := s.Calls[id]
		switch c.State {
		case CallStatePending:
			if !c.Asked.Deadline.IsZero() {
				ds = append(ds, Deadline{Kind: DeadlineApproval, Key: id, Service: events.ServicePolicy, At: c.Asked.Deadline})
			}
		case CallStateAllowed, CallStateApproved, CallStateDelegated:
			if !c.ExecuteBy.IsZero() {
				ds = append(ds, Deadline{Kind: DeadlineExecution, Key: id, Service: events.ServicePolicy, At: c.ExecuteBy})
			}
		case CallStateProposed, CallStateDenied, CallStateExpired, CallStateCancelled, CallStateSuperseded,
			CallStateStarted, CallStateCompleted, CallStateLapsed:
		}
	}
	return ds
}

// ClaimAt is when a sandbox that is being claimed or resumed has to be ready.
func (s *State) ClaimAt() (time.Time, bool) {
	switch s.Workload.Status {
	case WorkloadRequested, WorkloadClaimed:
		return s.Workload.ClaimDeadline, true
	case WorkloadSuspended:
		if !s.WantRunning {
			return time.Time{}, false
		}
		from := s.WantedAt
		if s.Workload.Since.After(from) {
			from = s.Workload.Since // a suspend that was under way came first
		}
		return from.Add(s.Terms.Claim.D()), true
	case WorkloadNone, WorkloadReady, WorkloadLost, WorkloadFailed, WorkloadReleased:
	}
	return time.Time{}, false
}

// DrainAt is when a sandbox whose place is to be left is given up, whoever uses it. One
// that is being put away leaves by itself.
func (s *State) DrainAt() (time.Time, bool) {
	if s.Phase() != PhaseReady || s.Workload.DrainingAt.IsZero() || s.Terms.DrainGrace <= 0 {
		return time.Time{}, false
	}
	return s.Workload.DrainingAt.Add(s.Terms.DrainGrace.D()), true
}

// IdleAt is when an unused ready sandbox has been idle for too long; ok is false
// while it isn't ready, is being put away, or has a run open or due. Idleness
// never ends a session with questions open: it suspends it. Where its place is to be
// left, a sandbox that may be suspended has been idle for long enough at once.
func (s *State) IdleAt() (time.Time, bool) {
	if s.Phase() != PhaseReady || s.Terms.Idle <= 0 || s.Run != nil || s.RunDue() {
		return time.Time{}, false
	}
	if !s.Terms.Suspends && (s.Terms.OnIdle != "end" || s.Awaits()) {
		return time.Time{}, false // neither may it be suspended nor ended
	}
	from := s.LastActivity
	if until := s.inUseUntil(); until.After(from) {
		from = until
	}
	if at := s.Workload.DrainingAt; !at.IsZero() && s.Terms.Suspends {
		if until := s.inUseUntil(); until.After(at) {
			at = until
		}
		return at, true
	}
	return from.Add(s.Terms.Idle.D()), true
}

// WaitingAt is when a session that only waits for people is suspended.
func (s *State) WaitingAt() (time.Time, bool) {
	if s.Phase() != PhaseReady || s.Interrupted == nil || s.ContinuationDue() ||
		s.Terms.SuspendWhileWaiting <= 0 || !s.Terms.Suspends {
		return time.Time{}, false
	}
	from := s.Interrupted.At
	if s.Workload.Since.After(from) {
		from = s.Workload.Since
	}
	if until := s.inUseUntil(); until.After(from) {
		from = until
	}
	return from.Add(s.Terms.SuspendWhileWaiting.D()), true
}
