package decider

import (
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

// MaxQueue is how many messages may wait for their runs.
const MaxQueue = 100

// MaxHolderAhead bounds how far ahead a holder may claim the sandbox.
const MaxHolderAhead = time.Hour

func records(payloads ...session.Payload) ([]events.Record, error) {
	return session.Records(events.ServiceSession, payloads...)
}

// Decide starts the session. The command's id is bound to the session's, so a
// session that exists under it was made by the same key: with another body it is
// refused.
func (c Create) Decide(s *session.State, _ time.Time) ([]events.Record, error) {
	if s.Exists() {
		if s.BodyHash != c.BodyHash {
			return nil, problem.New(api.CodeIdempotencyConflict,
				"this Idempotency-Key made a session from another body; use a new key for a new session")
		}
		return nil, nil
	}
	payloads := []session.Payload{session.Created{
		Owner: c.Owner, Runtime: c.Runtime, Terms: c.Terms, Config: c.Config,
		Labels: c.Labels, Parent: c.Parent, BodyHash: c.BodyHash,
	}}
	if c.Message != nil {
		payloads = append(payloads, c.Message.received()...)
	}
	return records(payloads...)
}

func (c Send) received() []session.Payload {
	payloads := make([]session.Payload, len(c.Messages))
	for i, m := range c.Messages {
		received := session.MessageReceived{
			MessageID: m.ID, RunID: c.RunID, Content: m.Content, Requester: c.Requester,
			CancelOpen: c.WhenBusy == CancelFirst, BodyHash: c.BodyHash,
		}
		if i == 0 {
			received.Tools = c.Tools // once for the run
		}
		payloads[i] = received
	}
	return payloads
}

// Decide queues the message and, where no sandbox is wanted, wants one in the
// same envelope.
func (c Send) Decide(s *session.State, _ time.Time) ([]events.Record, error) {
	if err := legal(s, session.MoveMessage); err != nil {
		return nil, err
	}
	if c.WhenBusy == Reject && (s.Run != nil || len(s.Queue) > 0 || s.Interrupted != nil) {
		return nil, problem.New(api.CodeRunBusy, "a run is open or waits; send with whenBusy queue, or wait for it to end")
	}
	if len(s.Queue) >= MaxQueue {
		return nil, problem.Newf(api.CodeQuotaExceeded, "%d messages wait for their runs already; wait for one to start", MaxQueue)
	}
	if _, used := s.RunIDs[c.RunID]; used {
		return nil, problem.Newf(api.CodeIdempotencyConflict, "run %q was there before with other messages; use a new id for a new run", c.RunID)
	}
	payloads := c.received()
	if !s.WantRunning {
		payloads = append(payloads, session.ResumeRequested{Cause: "message"})
	}
	return records(payloads...)
}

// Decide refuses while the sandbox is in use.
func (Suspend) Decide(s *session.State, now time.Time) ([]events.Record, error) {
	if err := legal(s, session.MoveSuspend); err != nil {
		return nil, err
	}
	if !s.Terms.Suspends {
		return nil, problem.New(api.CodeIllegalTransition,
			"the runtime has no workspace and isn't stateless, so suspending would lose its state; terminate it instead").
			In(string(s.Phase()), movesOf(s, session.MoveSuspend)...)
	}
	if err := unused(s, now); err != nil {
		return nil, err
	}
	return records(session.SuspendRequested{Cause: "request"})
}

func unused(s *session.State, now time.Time) error {
	used, until := s.InUse(now)
	switch {
	case !used:
		return nil
	case until.IsZero():
		return problem.New(api.CodeSessionInUse, "a run is open; cancel it or wait for it to end")
	}
	return problem.Newf(api.CodeSessionInUse, "calls or streams use the sandbox until %s; try again then", until.Format(time.RFC3339))
}

// Decide wants the sandbox back, also while it is still being put away.
func (Resume) Decide(s *session.State, _ time.Time) ([]events.Record, error) {
	if err := legal(s, session.MoveResume); err != nil {
		return nil, err
	}
	if s.WantRunning {
		return nil, nil // asked already, while it was being suspended
	}
	return records(session.ResumeRequested{Cause: "request"})
}

// Decide moves deadlines later, never earlier.
func (c Extend) Decide(s *session.State, now time.Time) ([]events.Record, error) {
	if err := legal(s, session.MoveExtend); err != nil {
		return nil, err
	}
	var p session.Extended
	if c.Max != nil {
		at := now.Add(c.Max.D())
		if s.MaxAt.IsZero() {
			return nil, problem.New(api.CodeInvalidRequest, "the session has no maximum age to extend")
		}
		if at.Before(s.MaxAt) {
			return nil, problem.Newf(api.CodeInvalidRequest, "the maximum age is already %s; extend only moves it later", s.MaxAt.Format(time.RFC3339))
		}
		p.MaxAt = &at
	}
	if c.Idle != nil {
		if s.Terms.Idle == 0 {
			return nil, problem.New(api.CodeInvalidRequest, "the session has no idle timeout to extend")
		}
		if *c.Idle < s.Terms.Idle {
			return nil, problem.Newf(api.CodeInvalidRequest, "the idle timeout is already %s; extend only makes it longer", s.Terms.Idle)
		}
		p.Idle = c.Idle
	}
	if p.MaxAt == nil && p.Idle == nil {
		return nil, problem.New(api.CodeInvalidRequest, "say what to extend: the maximum age, the idle timeout, or both")
	}
	return records(p)
}

// Decide ends the session; one that ends or has ended stays as it is.
func (c Terminate) Decide(s *session.State, _ time.Time) ([]events.Record, error) {
	if !s.Exists() {
		return nil, notFound()
	}
	if s.Ending || s.Ended {
		return nil, nil
	}
	return records(session.Terminated{Reason: c.Reason})
}

// Decide notes use of a sandbox that is ready and not being put away.
func (c NoteActivity) Decide(s *session.State, now time.Time) ([]events.Record, error) {
	if !s.Exists() {
		return nil, notFound()
	}
	if c.Until.IsZero() {
		if _, held := s.Holders[c.Holder]; !held {
			return nil, nil
		}
		return records(session.ActivityNoted{Holder: c.Holder})
	}
	if s.Phase() != session.PhaseReady {
		return nil, problem.New(api.CodeIllegalTransition, "the sandbox can be used only while it is ready; resume the session and wait").
			In(string(s.Phase()), movesOf(s, "")...)
	}
	if !c.Until.After(now) {
		return nil, nil // it came too late to mean anything
	}
	until := c.Until
	if limit := now.Add(MaxHolderAhead); until.After(limit) {
		until = limit
	}
	if !until.After(s.Holders[c.Holder]) {
		return nil, nil
	}
	return records(session.ActivityNoted{Holder: c.Holder, Until: until})
}

// legal refuses a move that the session's phase doesn't have.
func legal(s *session.State, move session.Move) error {
	switch {
	case !s.Exists():
		return notFound()
	case s.May(move):
		return nil
	case s.Phase() == session.PhaseEnding || s.Phase() == session.PhaseEnded: // a failed workload ends it too
		return problem.New(api.CodeSessionEnded, "the session is over; create a new one").In(string(s.Phase()))
	}
	return problem.Newf(api.CodeIllegalTransition, "a %s session can't %s", s.Phase(), move).
		In(string(s.Phase()), movesOf(s, move)...)
}

// movesOf lists the legal moves but one.
func movesOf(s *session.State, but session.Move) []string {
	var moves []string
	for _, m := range session.Moves[s.Phase()] {
		if m != but {
			moves = append(moves, string(m))
		}
	}
	return moves
}

func notFound() error {
	return problem.New(api.CodeNotFound, "there is no such session in this tenant")
}
