package projections

import (
	"errors"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/revisions"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/events/sweep"
	"github.com/holdfast-io/holdfast/projections/view"
)

// story is a session's fold for the read models: the State that deciders have, and
// what only views need, the details of runs and of former sandboxes.
type story struct {
	*session.State
	runs      map[string]*run
	workloads map[uint64]*workload
	// last is what the last message changed besides the session itself.
	last touched
}

// run is a row of runs.
type run struct {
	id, parent, requester, instance, cause, detail string
	state                                          view.RunState
	lastK                                          uint64
	calls                                          []string
	queuedAt, startedAt, endedAt                   time.Time
	n                                              uint64
}

// workload is a row of workloads.
type workload struct {
	session.Workload
	requestedAt, claimedAt, readyAt, releasedAt time.Time
	n                                           uint64
}

// touched names the rows that a message changed.
type touched struct {
	runs, calls []string
	generations []uint64
	messages    []view.Message
}

func newStory() *story {
	return &story{State: session.New(), runs: map[string]*run{}, workloads: map[uint64]*workload{}}
}

// foldError says that a fold refused a message for what it is, not for a failure to
// get it.
type foldError struct{ err error }

func (e *foldError) Error() string { return e.err.Error() }
func (e *foldError) Unwrap() error { return e.err }

// faulty says whether an error of following is the log's own fault. Anything else
// may work later.
func faulty(err error) bool {
	var fold *foldError
	var chain *eventlog.ChainError
	return errors.As(err, &fold) || errors.As(err, &chain) || errors.Is(err, eventlog.ErrNotFound)
}

// Apply folds a message in, or leaves the story as it was and gives a *foldError:
// the rows of the messages before must still be written.
func (s *story) Apply(m events.Message) error {
	payloads := make([]session.Payload, len(m.Envelope.Events))
	for i, r := range m.Envelope.Events {
		p, err := session.Decode(r, m.Envelope.Service)
		if err != nil {
			return &foldError{err}
		}
		payloads[i] = p
	}
	if s.ID == "" {
		a, ok := events.ParseSubject(m.Subject)
		if !ok || a.Aggregate != events.AggregateSession {
			return &foldError{session.ErrNotASession}
		}
		s.Tenant, s.ID = a.Tenant, a.Key
	}
	s.last = touched{}
	for i, p := range payloads {
		meta := m.MetaAt(i)
		s.Evolve(meta, p)
		s.note(meta, p)
	}
	return nil
}

// note keeps what the State doesn't.
func (s *story) note(meta events.Meta, p session.Payload) {
	switch p := p.(type) {
	case session.MessageReceived:
		s.run(meta, p.RunID, func(r *run) { r.state, r.requester, r.queuedAt = view.RunQueued, view.Person(p.Requester), meta.Time })
		m := view.Message{ID: p.MessageID, Session: s.ID, RunID: p.RunID, Role: "user", Requester: view.Person(p.Requester), Time: meta.Time, N: meta.N}
		m.SayText(view.ForSession(s.State), p.Content)
		s.last.messages = append(s.last.messages, m)
	case session.RunMessageRecorded:
		m := view.Message{ID: p.MessageID, Session: s.ID, RunID: p.RunID, Role: p.Role, Time: meta.Time, N: meta.N}
		m.Say(view.ForSession(s.State), p.Message)
		s.last.messages = append(s.last.messages, m)
	case session.RunStarted, session.RunTakenOver, session.RunInterrupted, session.RunFinished, session.RunFailed:
		s.noteRun(meta, p)
	case session.ClaimRequested, session.Claimed, session.Ready, session.Suspended, session.Resumed, session.Draining,
		session.Stayed, session.Lost, session.Failed, session.Released:
		s.noteWorkload(meta, p)
	default:
		if id, ok := callOf(p); ok {
			s.last.calls = append(s.last.calls, id)
		}
	}
}

func (s *story) noteRun(meta events.Meta, p session.Payload) {
	end := func(id string, state view.RunState, lastK uint64, cause string) {
		s.run(meta, id, func(r *run) { r.state, r.lastK, r.cause, r.endedAt, r.calls = state, lastK, cause, meta.Time, nil })
	}
	switch p := p.(type) {
	case session.RunStarted:
		s.run(meta, p.RunID, func(r *run) {
			r.state, r.parent, r.requester, r.instance, r.startedAt = view.RunStarted, p.ParentRunID, view.Person(p.Requester), p.Instance, meta.Time
		})
		if p.ParentRunID != "" {
			s.run(meta, p.ParentRunID, func(r *run) { r.calls = nil }) // it waits for nothing any more
		}
	case session.RunTakenOver:
		s.run(meta, p.RunID, func(r *run) { r.instance = p.Instance })
	case session.RunInterrupted:
		end(p.RunID, view.RunInterrupted, p.LastK, "")
		s.runs[p.RunID].calls = p.Calls
	case session.RunFinished:
		state := view.RunFinished
		if p.Outcome == "cancelled" {
			state = view.RunCancelled
		}
		end(p.RunID, state, p.LastK, "")
	case session.RunFailed:
		end(p.RunID, view.RunFailed, p.LastK, p.Cause)
		s.runs[p.RunID].detail = view.ForSession(s.State).Detail(p.Detail)
	default: // changes no run's row
	}
}

// run changes a run's row, making it where the log starts one that was not queued.
func (s *story) run(meta events.Meta, id string, change func(*run)) {
	r := s.runs[id]
	if r == nil {
		r = &run{id: id, queuedAt: meta.Time}
		s.runs[id] = r
	}
	change(r)
	r.n = meta.N
	s.last.runs = append(s.last.runs, id)
}

func (s *story) noteWorkload(meta events.Meta, p session.Payload) {
	generation := s.Workload.Generation
	w := s.workloads[generation]
	if w == nil {
		w = &workload{requestedAt: meta.Time}
		s.workloads[generation] = w
	}
	podUID := w.PodUID
	w.Workload, w.n = s.Workload, meta.N
	switch p.(type) {
	case session.Claimed:
		w.claimedAt = meta.Time
	case session.Ready, session.Resumed:
		w.readyAt = meta.Time
	case session.Released:
		w.releasedAt = meta.Time
	default: // has no time of its own
	}
	if w.PodUID == "" {
		w.PodUID = podUID // the last one it had stays to be searched for
	}
	s.last.generations = append(s.last.generations, generation)
}

// callOf names the call that an event is about.
func callOf(p session.Payload) (id string, ok bool) {
	switch p := p.(type) {
	case session.CallProposed:
		return p.CallID, true
	case session.CallDecided:
		return p.CallID, true
	case session.CallHumanConfirmRequired:
		return p.CallID, true
	case session.CallVoteCast:
		return p.CallID, true
	case session.CallApproved:
		return p.CallID, true
	case session.CallDenied:
		return p.CallID, true
	case session.CallExpired:
		return p.CallID, true
	case session.CallCancelled:
		return p.CallID, true
	case session.CallSuperseded:
		return p.CallID, true
	case session.CallStarted:
		return p.CallID, true
	case session.CallDelegated:
		return p.CallID, true
	case session.CallCompleted:
		return p.CallID, true
	case session.CallLapsed:
		return p.CallID, true
	default: // is about no call
	}
	return "", false // an answer that was refused changes no row
}

// swept is the fold of a sweep, with errors as a definition's.
type swept struct{ *sweep.State }

// Apply folds a message in, or gives a *foldError.
func (s swept) Apply(m events.Message) error {
	if err := s.State.Apply(m); err != nil {
		return &foldError{err}
	}
	return nil
}

// definition is the fold of a runtime or a policy, with errors that say whose fault
// they are.
type definition[S any] struct{ *revisions.State[S] }

// Apply folds a message in, or gives a *foldError.
func (d definition[S]) Apply(m events.Message) error {
	if err := d.State.Apply(m); err != nil {
		return &foldError{err}
	}
	return nil
}
