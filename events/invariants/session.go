package invariants

import (
	"maps"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
)

// sessionTracker hands each event of a session to its trackers. They look at
// each other only through what is asked here.
type sessionTracker struct {
	life     life
	workload workload
	use      use
	turn     turn
	calls    calls
}

func newSessionTracker(subject string, owners pods) *sessionTracker {
	return &sessionTracker{
		workload: workload{subject: subject, pods: owners},
		use:      use{until: map[string]time.Time{}},
		turn:     turn{runs: map[string]runState{}},
		calls:    calls{byID: map[string]*call{}},
	}
}

func (s *sessionTracker) message(m events.Message, found report) {
	before := s.phase()
	for i, r := range m.Envelope.Events {
		p, err := session.Decode(r, m.Envelope.Service)
		if err != nil {
			found(Types, "event %d: %v", i, err)
			continue
		}
		s.event(m.MetaAt(i), p, found)
	}
	if after := s.phase(); !mayFollow(before, after) {
		found(Life, "phase %q can't follow %q", after, before)
	}
}

// event judges by the trackers as they stood before it, then moves them on.
func (s *sessionTracker) event(meta events.Meta, p session.Payload, found report) {
	s.life.judge(p, found)
	s.workload.judge(p, s.life.ending || s.life.ended, found)
	s.use.judge(meta, p, s.turn.open != "", s.workload.status == session.WorkloadReady && !s.life.suspending, found)
	s.turn.judge(p, s, found)
	s.calls.judge(meta, p, s.turn.open, s.life.ending || s.life.ended, found)

	s.life.move(p)
	s.workload.move(p)
	s.use.move(p)
	s.turn.move(p)
	s.calls.move(p)
}

func mayFollow(before, after session.Phase) bool {
	return before == after || slices.Contains(session.PhaseChanges[before], after)
}

// phase derives the phase from the trackers, as the design draws it.
func (s *sessionTracker) phase() session.Phase {
	switch {
	case !s.life.created:
		return ""
	case s.life.ended:
		return session.PhaseEnded
	case s.life.ending || s.workload.status == session.WorkloadFailed:
		return session.PhaseEnding
	}
	again := s.workload.everReady || s.workload.generation > 1
	switch s.workload.status {
	case session.WorkloadReady:
		if s.life.suspending {
			return session.PhaseSuspending
		}
		return session.PhaseReady
	case session.WorkloadSuspended, session.WorkloadLost, session.WorkloadReleased:
		if s.life.wanted {
			return session.PhaseResuming
		}
		return session.PhaseSuspended
	case session.WorkloadClaimed:
		if !again {
			return session.PhaseClaimed
		}
	case session.WorkloadNone, session.WorkloadRequested:
		if !again {
			return session.PhasePending
		}
	case session.WorkloadFailed: // said above
	}
	return session.PhaseResuming
}

// life tracks the desired life.
type life struct {
	created, wanted, suspending bool
	ending, ended               bool
	outcome                     session.Outcome
}

func (l *life) judge(p session.Payload, found report) {
	name := session.TypeOf(p)
	if _, isCreated := p.(session.Created); isCreated == l.created {
		found(Life, "%s: created is the first event and no other", name)
	}
	if l.ended {
		if _, refused := p.(session.CallAnswerRefused); !refused {
			found(Life, "%s after the end", name)
		}
		return
	}
	switch p := p.(type) {
	case session.MessageReceived, session.SuspendRequested, session.ResumeRequested, session.Extended,
		session.Expired, session.Terminated, session.EndRequested:
		if l.ending {
			found(Life, "%s while ending", name)
		}
	case session.Ended:
		if !l.ending || p.Outcome != l.outcome {
			found(Life, "ended as %s, but what was wanted is %q", p.Outcome, l.outcome)
		}
	default: // nothing else is of its concern
	}
}

func (l *life) move(p session.Payload) {
	switch p := p.(type) {
	case session.Created:
		l.created, l.wanted = true, true
	case session.SuspendRequested:
		l.wanted, l.suspending = false, true
	case session.ResumeRequested:
		l.wanted = true
	case session.Expired:
		l.end(session.OutcomeExpired)
	case session.Terminated:
		l.end(session.OutcomeTerminated)
	case session.EndRequested:
		l.end(p.Outcome)
	case session.Ended:
		l.ended = true
	case session.Suspended, session.Released, session.Failed:
		l.suspending = false
	case session.Lost:
		l.suspending, l.wanted = false, false // the restart is lazy
	default: // nothing else is of its concern
	}
}

func (l *life) end(outcome session.Outcome) {
	l.ending, l.wanted, l.outcome = true, false, outcome
}

// use tracks who uses the sandbox until when.
type use struct{ until map[string]time.Time }

func (u *use) judge(meta events.Meta, p session.Payload, runOpen, ready bool, found report) {
	if _, ok := p.(session.SuspendRequested); !ok {
		return
	}
	if !ready {
		found(Use, "suspend decided of a sandbox that isn't ready, or twice")
	}
	if runOpen {
		found(Use, "suspend decided while a run is open")
	}
	for _, holder := range slices.Sorted(maps.Keys(u.until)) {
		if until := u.until[holder]; until.After(meta.Time) {
			found(Use, "suspend decided at %s while %s uses the sandbox until %s",
				meta.Time.Format(time.RFC3339Nano), holder, until.Format(time.RFC3339Nano))
		}
	}
}

func (u *use) move(p session.Payload) {
	switch p := p.(type) {
	case session.ActivityNoted:
		u.until[p.Holder] = p.Until
	case session.Suspended, session.Lost, session.Released:
		clear(u.until) // what was in use is gone
	default: // nothing else is of its concern
	}
}
