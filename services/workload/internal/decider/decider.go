// Package decider decides what the workload service appends, and what it does
// next to a session's sandbox. Pure: state, observation and time in.
//
// [Plan] is the loop's head: it compares what the session wants with what is
// known of its sandbox. The steps below say what is appended once an effect has
// been carried out, and refuse with [ErrOvertaken] where the session has moved on
// meanwhile, so that the loop looks again.
package decider

import (
	"errors"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
)

// ErrOvertaken says that the session is no longer where the step assumed it.
var ErrOvertaken = errors.New("the session has moved on")

// Action is what to do next.
type Action string

// The actions. Verify looks whether a sandbox that should run still does; Clear
// removes what a lost one left, but its workspace, so that none stays behind.
const (
	Nothing Action = "nothing"
	Request Action = "request"
	Claim   Action = "claim"
	Ready   Action = "ready"
	Suspend Action = "suspend"
	Resume  Action = "resume"
	Release Action = "release"
	Verify  Action = "verify"
	Clear   Action = "clear"
)

// Plan gives the next action.
func Plan(s *session.State) Action {
	w := s.Workload.Status
	switch {
	case !s.Exists() || s.Ended || w == session.WorkloadFailed && !s.Ending:
		return Nothing
	case s.Ending:
		if w == session.WorkloadNone || w == session.WorkloadReleased {
			return Nothing
		}
		return Release
	case s.Suspending && w == session.WorkloadReady:
		return Suspend
	case w == session.WorkloadReady:
		return Verify
	case w == session.WorkloadLost && (!s.WantRunning || s.Terms.OnLoss == "end"):
		return Clear // under onLoss end the session service ends it, also where a message came first
	case !s.WantRunning:
		return Nothing
	}
	switch w {
	case session.WorkloadNone, session.WorkloadLost, session.WorkloadReleased:
		return Request
	case session.WorkloadRequested:
		return Claim
	case session.WorkloadClaimed:
		return Ready
	case session.WorkloadSuspended:
		return Resume
	case session.WorkloadReady, session.WorkloadFailed:
	}
	return Nothing
}

// Decide is a step that waits for a state of the session and the time: it gives
// the events to append, none where there is nothing to do, or refuses.
type Decide = func(*session.State, time.Time) ([]events.Record, error)

func records(payloads ...session.Payload) ([]events.Record, error) {
	return session.Records(events.ServiceWorkload, payloads...)
}

// at wraps a step that holds only while Plan still gives the same action for the
// same generation.
func at(action Action, generation uint64, payload func(now time.Time) session.Payload) Decide {
	return func(s *session.State, now time.Time) ([]events.Record, error) {
		if Plan(s) != action || s.Workload.Generation != generation {
			return nil, ErrOvertaken
		}
		return records(payload(now))
	}
}

// RequestNext asks for the next generation, before anything is created.
func RequestNext(s *session.State, now time.Time) ([]events.Record, error) {
	if Plan(s) != Request {
		return nil, ErrOvertaken
	}
	return records(session.ClaimRequested{Generation: s.Workload.Generation + 1, Deadline: now.Add(s.Terms.Claim.D())})
}

// Claimed records the sandbox that the driver gave: the generation's first, or a
// new incarnation where the claimed one died on its way.
func Claimed(p session.Claimed) Decide {
	return func(s *session.State, _ time.Time) ([]events.Record, error) {
		switch a := Plan(s); {
		case s.Workload.Generation != p.Generation, a != Claim && a != Ready:
			return nil, ErrOvertaken
		case a == Ready && s.Workload.PodUID == p.PodUID:
			return nil, nil
		}
		return records(p)
	}
}

// BecameReady records that the entrypoint of the claimed sandbox answered.
func BecameReady(p session.Ready) Decide {
	return func(s *session.State, _ time.Time) ([]events.Record, error) {
		if Plan(s) != Ready || s.Workload.Generation != p.Generation || s.Workload.PodUID != p.PodUID {
			return nil, ErrOvertaken
		}
		return records(p)
	}
}

// Resumed records that a suspended sandbox answers again.
func Resumed(p session.Resumed) Decide {
	return at(Resume, p.Generation, func(time.Time) session.Payload { return p })
}

// Suspended records that the processes are gone. It is a fact once the driver has
// done it, so it stands also where the session wants a resume by now.
func Suspended(generation uint64) Decide {
	return at(Suspend, generation, func(time.Time) session.Payload { return session.Suspended{Generation: generation} })
}

// Released records that nothing is left.
func Released(generation uint64) Decide {
	return at(Release, generation, func(time.Time) session.Payload { return session.Released{Generation: generation} })
}

// Failed records that a claim came to nothing; see fruitless. kept says whether the
// workspace of a session that had one outlives it.
func Failed(p session.Failed, kept bool) Decide {
	return func(s *session.State, _ time.Time) ([]events.Record, error) {
		if a := Plan(s); (a != Claim && a != Ready) || s.Workload.Generation != p.Generation {
			return nil, ErrOvertaken
		}
		return fruitless(s, p, kept)
	}
}

// maxFailures is how many claims and resumes in a row may come to nothing before a
// session that has worked is given up. Each is a loss first, so that a host that is
// in trouble for a while costs no session; but a run that is due asks for the next
// at once, so that losses without an end would be a loop.
const maxFailures = 3

// fruitless words a claim that came to nothing: the end of a session that never
// worked, and a loss for one that did, or whose place was at fault.
func fruitless(s *session.State, p session.Failed, kept bool) ([]events.Record, error) {
	if w := s.Workload; (w.WasReady || p.Cause == CausePlace) && w.Failures+1 < maxFailures {
		return records(session.Lost{Generation: p.Generation, Cause: p.Cause, WorkspaceKept: kept})
	}
	return records(p)
}

// KeepsWorkspace says that the session's end leaves its volume: it failed, so nobody
// wanted that end, and its files may be the only copy of somebody's work. Under
// onLoss end the runtime wanted it.
func KeepsWorkspace(s *session.State) bool {
	return s.EndOutcome == session.OutcomeFailed && s.Workload.WasReady && s.Terms.OnLoss != "end"
}

// Draining records that a ready sandbox's place is to be left.
func Draining(p session.Draining) Decide {
	return func(s *session.State, _ time.Time) ([]events.Record, error) {
		w := s.Workload
		if s.Ending || s.Ended || w.Status != session.WorkloadReady || w.Generation != p.Generation || w.PodUID != p.PodUID ||
			!w.DrainingAt.IsZero() {
			return nil, nil
		}
		return records(p)
	}
}

// Stayed records that a sandbox needn't leave its place any more.
func Stayed(p session.Stayed) Decide {
	return func(s *session.State, _ time.Time) ([]events.Record, error) {
		w := s.Workload
		if s.Ending || s.Ended || w.Status != session.WorkloadReady || w.Generation != p.Generation || w.PodUID != p.PodUID ||
			w.DrainingAt.IsZero() {
			return nil, nil
		}
		return records(p)
	}
}

// Overstayed gives up a sandbox that has to leave its place and that is in use although
// the grace for it is over.
func Overstayed(p session.Lost) Decide {
	return func(s *session.State, now time.Time) ([]events.Record, error) {
		if at, ok := s.DrainAt(); !ok || at.After(now) {
			return nil, nil
		}
		return Lost(p)(s, now)
	}
}

// Lost records that a sandbox is gone without our doing: one that ran (podUID as
// the session knows it), or one whose resume came to nothing (podUID empty). One
// that died on its way to ready is claimed again until the claim's deadline, so
// nothing is said of it.
func Lost(p session.Lost) Decide {
	return func(s *session.State, _ time.Time) ([]events.Record, error) {
		w := s.Workload
		if s.Ending || s.Ended || w.Generation != p.Generation || w.PodUID != p.PodUID {
			return nil, nil // not the one that the session has
		}
		switch w.Status {
		case session.WorkloadReady, session.WorkloadSuspended:
			return records(p)
		case session.WorkloadNone, session.WorkloadRequested, session.WorkloadClaimed, session.WorkloadLost, session.WorkloadFailed, session.WorkloadReleased:
		}
		return nil, nil
	}
}

// Causes of workload.failed and workload.lost, for machines.
const (
	CauseTimeout    = "claim-timeout"
	CauseDied       = "sandbox-died"
	CauseEntrypoint = "entrypoint-failed"
	CauseIsolation  = "isolation-unavailable"
	CauseInvalid    = "runtime-refused"
	CauseStart      = "start-failed"
	CauseBind       = "bind-refused"
	CauseWorkspace  = "workspace-gone"
	CauseForeign    = "sandbox-name-taken"
	// CausePlace is driver.CauseNode: another sandbox, elsewhere, may well start.
	CausePlace = "node-not-ready"
)

// Due decides the claim deadline; it is checked here again. A resume that came to
// nothing is a loss, a claim what fruitless says; kept says whether the workspace
// outlives it, cause and detail what it has waited for.
func Due(kept bool, cause, detail string) Decide {
	return func(s *session.State, now time.Time) ([]events.Record, error) {
		at, ok := s.ClaimAt()
		if !ok || s.Ending || s.Ended || at.After(now) {
			return nil, nil
		}
		w := s.Workload
		if w.Status == session.WorkloadSuspended {
			return records(session.Lost{Generation: w.Generation, Cause: cause, WorkspaceKept: kept})
		}
		late := "not ready in " + s.Terms.Claim.String()
		if detail != "" {
			late += ": " + detail
		}
		return fruitless(s, session.Failed{Generation: w.Generation, Cause: cause, Detail: late}, kept)
	}
}
