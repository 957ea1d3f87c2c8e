// Package decider decides what the runner appends: the turns of an agent. Pure:
// state, command and time in, events or a refusal out. A step of a run that is
// not open any more, or that another instance drives now, is refused with
// [ErrNotMine], and its driver stops.
package decider

import (
	"errors"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

// ErrNotMine says that the run is over or driven by another instance.
var ErrNotMine = errors.New("the run is not this instance's")

// Decide is a step that waits for a state of the session and the time: it gives
// the events to append, none where there is nothing to do, or refuses.
type Decide = func(*session.State, time.Time) ([]events.Record, error)

func records(payloads ...session.Payload) ([]events.Record, error) {
	return session.Records(events.ServiceRunner, payloads...)
}

// Settle decides the next step of a session's turns:
//
//   - the session ends: what is queued or parked is cancelled, the open run is
//     asked to stop, and is over when its sandbox is;
//   - the sandbox that the open run was started in is gone: the run failed;
//   - a message wants the run before it cancelled;
//   - a run is due and the sandbox is ready: it starts, a continuation first.
func Settle(instance string) Decide {
	return func(s *session.State, _ time.Time) ([]events.Record, error) {
		switch {
		case !s.Exists() || s.Ended:
			return nil, nil
		case s.Ending:
			return ending(s)
		case s.Run != nil:
			return open(s)
		case s.Interrupted != nil && cancelWanted(s):
			return records(session.RunFinished{RunID: s.Interrupted.RunID, Outcome: Cancelled})
		case s.RunDue() && s.Phase() == session.PhaseReady:
			return records(next(s, instance))
		}
		return nil, nil
	}
}

// Outcomes of run.finished.
const (
	Success   = "success"
	Cancelled = "cancelled"
)

// Causes of run.failed.
const (
	CauseWorkloadLost = "workload-lost"
	CauseAgent        = "agent-error"
	CauseProtocol     = "protocol-error"
)

func ending(s *session.State) ([]events.Record, error) {
	var payloads []session.Payload
	if s.Interrupted != nil {
		payloads = append(payloads, session.RunFinished{RunID: s.Interrupted.RunID, Outcome: Cancelled})
	}
	for _, q := range s.Queue {
		payloads = append(payloads, session.RunFinished{RunID: q.RunID, Outcome: Cancelled})
	}
	switch {
	case s.Run == nil:
	case sandboxGone(s):
		payloads = append(payloads, session.RunFinished{RunID: s.Run.ID, Outcome: Cancelled})
	case !s.Run.CancelRequested:
		payloads = append(payloads, session.RunCancelRequested{RunID: s.Run.ID})
	}
	if len(payloads) == 0 {
		return nil, nil
	}
	return records(payloads...)
}

func open(s *session.State) ([]events.Record, error) {
	switch {
	case sandboxGone(s):
		return records(session.RunFailed{
			RunID: s.Run.ID, Cause: CauseWorkloadLost, Detail: "the sandbox that the run was in is gone: " + s.Workload.Cause,
		})
	case cancelWanted(s) && !s.Run.CancelRequested:
		return records(session.RunCancelRequested{RunID: s.Run.ID})
	}
	return nil, nil
}

// sandboxGone says that the open run's sandbox is not the session's any more.
func sandboxGone(s *session.State) bool {
	return s.Workload.PodUID != s.Run.PodUID || s.Workload.Generation != s.Run.Generation ||
		s.Workload.Status != session.WorkloadReady
}

func cancelWanted(s *session.State) bool {
	return slices.ContainsFunc(s.Queue, func(q session.Queued) bool { return q.CancelOpen })
}

// next is the run that is due: the continuation of the parked one, else the
// longest queued.
func next(s *session.State, instance string) session.RunStarted {
	started := session.RunStarted{Instance: instance, Generation: s.Workload.Generation, PodUID: s.Workload.PodUID}
	if p := s.Interrupted; p != nil {
		started.RunID = events.HashID(events.PrefixRun, s.ID, p.RunID, "continuation")
		started.ParentRunID, started.Requester = p.RunID, p.Requester
		return started
	}
	started.RunID, started.Requester = s.Queue[0].RunID, s.Queue[0].Requester
	return started
}

// TakeOver gives an open run of an instance that is gone to this one.
func TakeOver(run, from, instance string) Decide {
	return func(s *session.State, _ time.Time) ([]events.Record, error) {
		if s.Run == nil || s.Run.ID != run || s.Run.Instance != from {
			return nil, nil // somebody else was faster
		}
		return records(session.RunTakenOver{RunID: run, Instance: instance})
	}
}

// mine refuses what isn't a step of this instance's open run.
func mine(s *session.State, run, instance string) error {
	if s.Run == nil || s.Run.ID != run || s.Run.Instance != instance {
		return ErrNotMine
	}
	return nil
}

// Record keeps a completed message, once.
func Record(instance string, m session.RunMessageRecorded) Decide {
	return func(s *session.State, _ time.Time) ([]events.Record, error) {
		if err := mine(s, m.RunID, instance); err != nil {
			return nil, err
		}
		if s.Run.Recorded[m.MessageID] {
			return nil, nil
		}
		return records(m)
	}
}

// Interrupt parks the run on its calls. An interrupt that names no call of the
// session is a broken protocol: nobody could answer it.
func Interrupt(instance string, p session.RunInterrupted) Decide {
	return func(s *session.State, _ time.Time) ([]events.Record, error) {
		if err := mine(s, p.RunID, instance); err != nil {
			return nil, err
		}
		for _, id := range p.Calls {
			if s.Calls[id] == nil {
				return records(session.RunFailed{
					RunID: p.RunID, LastK: p.LastK, Cause: CauseProtocol,
					Detail: "the run was interrupted for something that was never proposed as a call",
				})
			}
		}
		if len(p.Calls) == 0 {
			return records(session.RunFailed{
				RunID: p.RunID, LastK: p.LastK, Cause: CauseProtocol, Detail: "the run was interrupted for nothing",
			})
		}
		if s.Run.CancelRequested {
			return records(session.RunFinished{RunID: p.RunID, LastK: p.LastK, Outcome: Cancelled, State: p.State})
		}
		return records(p)
	}
}

// Finish ends the run.
func Finish(instance string, p session.RunFinished) Decide {
	return func(s *session.State, _ time.Time) ([]events.Record, error) {
		if err := mine(s, p.RunID, instance); err != nil {
			return nil, err
		}
		return records(p)
	}
}

// Fail ends the run for a reason.
func Fail(instance string, p session.RunFailed) Decide {
	return func(s *session.State, _ time.Time) ([]events.Record, error) {
		if err := mine(s, p.RunID, instance); err != nil {
			return nil, err
		}
		return records(p)
	}
}

// Cancel is a client's wish: an open run is asked to stop, a queued or parked one
// is over at once.
func Cancel(run string) Decide {
	return func(s *session.State, _ time.Time) ([]events.Record, error) {
		state, known := s.RunIDs[run]
		switch {
		case !s.Exists() || !known:
			return nil, problem.New(api.CodeNotFound, "there is no such session or run in this tenant")
		case s.Run != nil && s.Run.ID == run:
			if s.Run.CancelRequested {
				return nil, nil
			}
			return records(session.RunCancelRequested{RunID: run})
		case state == session.RunQueued, s.Interrupted != nil && s.Interrupted.RunID == run:
			return records(session.RunFinished{RunID: run, Outcome: Cancelled})
		case state == session.RunCancelled:
			return nil, nil
		}
		return nil, problem.Newf(api.CodeIllegalTransition, "the run is over: %s", state).In(string(state))
	}
}
