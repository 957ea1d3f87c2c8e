package session

import "slices"

// Phase is where a session is in its life; derived, never stored.
type Phase string

// The phases.
const (
	PhasePending    Phase = "pending"
	PhaseClaimed    Phase = "claimed"
	PhaseReady      Phase = "ready"
	PhaseSuspending Phase = "suspending"
	PhaseSuspended  Phase = "suspended"
	PhaseResuming   Phase = "resuming"
	PhaseEnding     Phase = "ending"
	PhaseEnded      Phase = "ended"
)

// Move is what a client can ask of a session's life.
type Move string

// The moves.
const (
	MoveMessage   Move = "message"
	MoveSuspend   Move = "suspend"
	MoveResume    Move = "resume"
	MoveExtend    Move = "extend"
	MoveTerminate Move = "terminate"
)

// Moves says which moves are legal in which phase; any other is refused with
// this list.
var Moves = map[Phase][]Move{
	PhasePending:    {MoveMessage, MoveExtend, MoveTerminate},
	PhaseClaimed:    {MoveMessage, MoveExtend, MoveTerminate},
	PhaseReady:      {MoveMessage, MoveSuspend, MoveExtend, MoveTerminate},
	PhaseSuspending: {MoveMessage, MoveResume, MoveExtend, MoveTerminate},
	PhaseSuspended:  {MoveMessage, MoveResume, MoveExtend, MoveTerminate},
	PhaseResuming:   {MoveMessage, MoveExtend, MoveTerminate},
	PhaseEnding:     {},
	PhaseEnded:      {},
}

// PhaseChanges says which phase may follow which from one message to the next.
// Staying is always legal.
var PhaseChanges = map[Phase][]Phase{
	"":              {PhasePending},
	PhasePending:    {PhaseClaimed, PhaseSuspended, PhaseEnding, PhaseEnded},
	PhaseClaimed:    {PhaseReady, PhaseSuspended, PhaseEnding},
	PhaseReady:      {PhaseSuspending, PhaseSuspended, PhaseResuming, PhaseEnding},
	PhaseSuspending: {PhaseSuspended, PhaseResuming, PhaseEnding},
	PhaseSuspended:  {PhaseResuming, PhaseEnding, PhaseEnded},
	PhaseResuming:   {PhaseReady, PhaseSuspended, PhaseEnding},
	PhaseEnding:     {PhaseEnded},
	PhaseEnded:      {},
}

// Phase derives the phase; "" for a session that doesn't exist.
func (s *State) Phase() Phase {
	switch {
	case !s.Exists():
		return ""
	case s.Ended:
		return PhaseEnded
	case s.Ending:
		return PhaseEnding
	}
	switch s.Workload.Status {
	case WorkloadReady:
		if s.Suspending {
			return PhaseSuspending
		}
		return PhaseReady
	case WorkloadSuspended, WorkloadLost, WorkloadReleased:
		if s.WantRunning {
			return PhaseResuming
		}
		return PhaseSuspended
	case WorkloadFailed:
		return PhaseEnding
	case WorkloadClaimed:
		if s.resuming() {
			return PhaseResuming
		}
		return PhaseClaimed
	case WorkloadNone, WorkloadRequested:
		if s.resuming() {
			return PhaseResuming
		}
		return PhasePending
	}
	return PhasePending
}

// resuming says that a sandbox on its way is not the session's first: one was
// ready before, or an earlier generation was lost on its own way.
func (s *State) resuming() bool { return s.Workload.WasReady || s.Workload.Generation > 1 }

// May says whether a move is legal now.
func (s *State) May(m Move) bool {
	return slices.Contains(Moves[s.Phase()], m)
}
