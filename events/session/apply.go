package session

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/holdfast-io/holdfast/events"
)

// ErrNotASession is returned by Apply for a message of another kind of subject.
var ErrNotASession = errors.New("not a session's subject")

// Apply folds one message in. On an error the State is of no use any more: drop
// it. Errors are those of [Decode] and ErrNotASession.
func (s *State) Apply(m events.Message) error {
	if s.ID == "" {
		a, ok := events.ParseSubject(m.Subject)
		if !ok || a.Aggregate != events.AggregateSession {
			return fmt.Errorf("%w: %q", ErrNotASession, m.Subject)
		}
		s.Tenant, s.ID = a.Tenant, a.Key
	}
	for i, r := range m.Envelope.Events {
		p, err := Decode(r, m.Envelope.Service)
		if err != nil {
			return err
		}
		s.Evolve(m.MetaAt(i), p)
	}
	return nil
}

// Evolve folds one event in.
func (s *State) Evolve(meta events.Meta, p Payload) {
	s.N, s.Seq, s.UpdatedAt = meta.N, meta.Seq, meta.Time
	switch p := p.(type) {
	case Created, MessageReceived, ActivityNoted, SuspendRequested, ResumeRequested,
		Extended, Expired, Terminated, EndRequested, Ended:
		s.evolveLife(meta, p)
	case ClaimRequested, Claimed, Ready, Suspended, Resumed, Draining, Stayed, Lost, Failed, Released:
		s.evolveWorkload(meta, p)
	case RunStarted, RunTakenOver, RunMessageRecorded, RunCancelRequested, RunInterrupted, RunFinished, RunFailed:
		s.evolveRun(meta, p)
	case CallProposed, CallDecided, CallHumanConfirmRequired, CallVoteCast, CallAnswerRefused, CallApproved, CallDenied,
		CallExpired, CallCancelled, CallSuperseded, CallStarted, CallDelegated, CallCompleted, CallLapsed:
		s.evolveCall(meta, p)
	}
}

func (s *State) evolveLife(meta events.Meta, p Payload) {
	switch p := p.(type) {
	case Created:
		s.CreatedAt, s.CreatedBy, s.LastActivity = meta.Time, meta.Actor, meta.Time
		s.Owner, s.Runtime, s.Terms = p.Owner, p.Runtime, p.Terms
		s.Config, s.Labels, s.Parent, s.BodyHash = p.Config, maps.Clone(p.Labels), p.Parent, p.BodyHash
		if p.Terms.Max > 0 {
			s.MaxAt = meta.Time.Add(p.Terms.Max.D())
		}
		s.WantRunning, s.IntentN, s.WantedAt = true, meta.N, meta.Time
	case MessageReceived:
		s.enqueue(meta, p)
		s.LastActivity = meta.Time
	case ActivityNoted:
		if p.Until.IsZero() {
			delete(s.Holders, p.Holder)
		} else {
			s.Holders[p.Holder] = p.Until
		}
		s.LastActivity = meta.Time
	case SuspendRequested:
		s.WantRunning, s.Suspending, s.IntentN = false, true, meta.N
	case ResumeRequested:
		s.WantRunning, s.IntentN, s.WantedAt = true, meta.N, meta.Time
		s.LastActivity = meta.Time
	case Extended:
		if p.MaxAt != nil {
			s.MaxAt = *p.MaxAt
		}
		if p.Idle != nil {
			s.Terms.Idle = *p.Idle
		}
		s.LastActivity = meta.Time
	case Expired:
		s.end(meta, OutcomeExpired, "maximum age reached")
	case Terminated:
		s.end(meta, OutcomeTerminated, p.Reason)
	case EndRequested:
		s.end(meta, p.Outcome, p.Cause)
	case Ended:
		s.Ended = true
		s.EndOutcome, s.EndCause = p.Outcome, p.Cause
	default: // nothing else is of its concern
	}
}

// enqueue makes a run of a message, or adds it to the run that it shares with the
// one before it.
func (s *State) enqueue(meta events.Meta, p MessageReceived) {
	if last := len(s.Queue) - 1; last >= 0 && s.Queue[last].RunID == p.RunID {
		s.Queue[last].MessageID, s.Queue[last].N = p.MessageID, meta.N
		return
	}
	s.Queue = append(s.Queue, Queued{
		MessageID: p.MessageID, RunID: p.RunID, Requester: p.Requester, Tools: p.Tools, CancelOpen: p.CancelOpen, N: meta.N, At: meta.Time,
	})
	s.RunIDs[p.RunID] = RunQueued
}

func (s *State) end(meta events.Meta, outcome Outcome, cause string) {
	s.Ending, s.WantRunning, s.IntentN = true, false, meta.N
	s.EndOutcome, s.EndCause = outcome, cause
}

func (s *State) evolveWorkload(meta events.Meta, p Payload) {
	w := &s.Workload
	has := func(generation uint64, podUID string) bool {
		return w.Status == WorkloadReady && w.Generation == generation && w.PodUID == podUID
	}
	if p, ok := p.(Draining); ok {
		if has(p.Generation, p.PodUID) && w.DrainingAt.IsZero() {
			w.DrainingAt = meta.Time
		}
		return
	}
	if p, ok := p.(Stayed); ok {
		if has(p.Generation, p.PodUID) {
			w.DrainingAt = time.Time{}
		}
		return
	}
	w.Since, w.DrainingAt = meta.Time, time.Time{}
	switch p := p.(type) {
	case ClaimRequested:
		*w = Workload{
			Generation: p.Generation, Status: WorkloadRequested, ClaimDeadline: p.Deadline,
			WasReady: w.WasReady, Failures: w.Failures, Since: meta.Time,
		}
		s.IntentN = meta.N
	case Claimed:
		w.Status, w.SandboxUID, w.PodUID, w.Restarts = WorkloadClaimed, p.SandboxUID, p.PodUID, p.Restarts
		w.Path, w.Isolation, w.LayersMs = p.Path, p.Isolation, p.LayersMs
	case Ready:
		w.Status, w.SandboxUID, w.PodUID, w.Restarts = WorkloadReady, p.SandboxUID, p.PodUID, p.Restarts
		w.Path, w.Isolation, w.LayersMs, w.WasReady, w.Failures = p.Path, p.Isolation, p.LayersMs, true, 0
		s.LastActivity = meta.Time
	case Resumed:
		w.Status, w.PodUID, w.Restarts, w.Isolation, w.LayersMs = WorkloadReady, p.PodUID, p.Restarts, p.Isolation, p.LayersMs
		w.Failures = 0
		s.LastActivity = meta.Time
	case Suspended:
		w.Status, s.Suspending, w.PodUID = WorkloadSuspended, false, ""
		clear(s.Holders)
	case Lost:
		if w.Status != WorkloadReady {
			w.Failures++ // it was still on its way
		}
		// The restart is lazy: when a run is due.
		w.Status, w.Cause, s.Suspending, s.WantRunning, w.PodUID = WorkloadLost, p.Cause, false, false, ""
		clear(s.Holders)
	case Failed:
		w.Status, w.Cause, s.Suspending = WorkloadFailed, p.Cause, false
		w.Failures++
	case Released:
		w.Status, s.Suspending, w.PodUID = WorkloadReleased, false, ""
		clear(s.Holders)
	default: // nothing else is of its concern
	}
}

func (s *State) evolveRun(meta events.Meta, p Payload) {
	switch p := p.(type) {
	case RunStarted:
		root, resumes := p.RunID, []string(nil)
		tools := s.dequeue(p.RunID)
		if s.Interrupted != nil && s.Interrupted.RunID == p.ParentRunID {
			root, resumes, tools = s.Interrupted.Root, s.Interrupted.Calls, s.Interrupted.Tools
			s.RunIDs[p.ParentRunID] = RunContinued
			s.Interrupted = nil
		}
		s.Run = &Run{
			ID: p.RunID, Parent: p.ParentRunID, Root: root, Instance: p.Instance, Generation: p.Generation,
			PodUID: p.PodUID, Requester: p.Requester, StartedAt: meta.Time, StartN: meta.N, Tools: tools, Resumes: resumes,
			Recorded: map[string]bool{},
		}
		s.RunIDs[p.RunID] = RunRunning
	case RunTakenOver:
		if s.Run != nil && s.Run.ID == p.RunID {
			s.Run.Instance = p.Instance
		}
	case RunMessageRecorded:
		if s.Run != nil && s.Run.ID == p.RunID {
			s.Run.Recorded[p.MessageID] = true
		}
	case RunCancelRequested:
		if s.Run != nil && s.Run.ID == p.RunID {
			s.Run.CancelRequested = true
		}
	case RunInterrupted:
		if s.Run != nil && s.Run.ID == p.RunID {
			s.Interrupted = &Parked{
				RunID: p.RunID, Root: s.Run.Root, Requester: s.Run.Requester, Calls: p.Calls, Interrupts: p.Interrupts,
				Tools: s.Run.Tools, At: meta.Time, N: meta.N,
			}
		}
		s.closeRun(meta.Time, p.RunID, RunInterruptd)
	case RunFinished:
		state := RunSucceeded
		if p.Outcome == "cancelled" {
			state = RunCancelled
		}
		s.closeRun(meta.Time, p.RunID, state)
	case RunFailed:
		s.closeRun(meta.Time, p.RunID, RunFailedState)
	default: // nothing else is of its concern
	}
}

// closeRun ends the open run, or a queued or parked one that was cancelled.
func (s *State) closeRun(at time.Time, id string, state RunState) {
	if s.Run != nil && s.Run.ID == id {
		s.Run = nil
	}
	if s.Interrupted != nil && s.Interrupted.RunID == id && state != RunInterruptd {
		s.Interrupted = nil
	}
	s.dequeue(id)
	s.RunIDs[id] = state
	s.LastActivity = at
}

// dequeue takes a run out of the queue and gives the tools that came with it.
func (s *State) dequeue(runID string) []Tool {
	for i, q := range s.Queue {
		if q.RunID == runID {
			s.Queue = append(s.Queue[:i:i], s.Queue[i+1:]...)
			return q.Tools
		}
	}
	return nil
}
