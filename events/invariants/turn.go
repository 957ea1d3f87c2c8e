package invariants

import "github.com/holdfast-io/holdfast/events/session"

// runState is how far a run is.
type runState int

const (
	runUnknown runState = iota
	runQueued
	runOpen
	runParked
	runOver
)

// turn tracks a session's runs.
type turn struct {
	runs         map[string]runState
	open, parked string // run ids; "" for none
	lastK        uint64
	recorded     map[string]bool
}

func (t *turn) judge(p session.Payload, s *sessionTracker, found report) {
	switch p := p.(type) {
	case session.MessageReceived:
		// Messages that come together share a run.
		if was := t.runs[p.RunID]; was != runUnknown && was != runQueued {
			found(Turn, "run %s was queued after it had begun", p.RunID)
		}
	case session.RunStarted:
		t.judgeStart(p, s, found)
	case session.RunTakenOver:
		if t.open != p.RunID {
			found(Turn, "run %s was taken over, but %q is open", p.RunID, t.open)
		}
	case session.RunMessageRecorded:
		t.judgeRecorded(p, found)
	case session.RunInterrupted:
		t.judgeEnd(p.RunID, p.LastK, true, found)
		if t.open != p.RunID {
			found(Turn, "run %s was interrupted, but %q is open", p.RunID, t.open)
		}
	case session.RunFinished:
		t.judgeEnd(p.RunID, p.LastK, p.Outcome != "cancelled", found)
		if t.open != p.RunID && p.Outcome != "cancelled" {
			found(Turn, "run %s finished, but %q is open", p.RunID, t.open)
		}
	case session.RunFailed:
		t.judgeEnd(p.RunID, p.LastK, false, found)
	case session.Ended:
		if t.open != "" {
			found(Turn, "ended while run %s is open", t.open)
		}
	default: // nothing else is of its concern
	}
}

func (t *turn) judgeStart(p session.RunStarted, s *sessionTracker, found report) {
	if t.open != "" {
		found(Turn, "run %s started while %s is open", p.RunID, t.open)
	}
	switch {
	case p.ParentRunID == "" && t.runs[p.RunID] != runQueued:
		found(Turn, "run %s started, but no message waits for it", p.RunID)
	case p.ParentRunID == "" && t.parked != "":
		found(Turn, "run %s started before the continuation of %s", p.RunID, t.parked)
	case p.ParentRunID != "" && p.ParentRunID != t.parked:
		found(Turn, "run %s continues %s, but %q is parked", p.RunID, p.ParentRunID, t.parked)
	case p.ParentRunID != "" && t.runs[p.RunID] != runUnknown:
		found(Turn, "run %s was there before it continued %s", p.RunID, p.ParentRunID)
	}
	switch w := s.workload; {
	case s.life.ending || s.life.ended:
		found(Turn, "run %s started in a session that ends", p.RunID)
	case w.status != session.WorkloadReady || s.life.suspending:
		found(Use, "run %s started without a ready sandbox", p.RunID)
	case w.pod != p.PodUID || w.generation != p.Generation:
		found(Owner, "run %s started in pod %s of generation %d, but the session has %s of %d", p.RunID, p.PodUID, p.Generation, w.pod, w.generation)
	}
}

func (t *turn) judgeRecorded(p session.RunMessageRecorded, found report) {
	switch {
	case t.open != p.RunID:
		found(Turn, "a message of run %s was recorded, but %q is open", p.RunID, t.open)
	case t.recorded[p.MessageID]:
		found(Turn, "message %s of run %s was recorded twice", p.MessageID, p.RunID)
	case p.K < t.lastK || p.K == 0:
		found(Turn, "message %s of run %s was recorded at k %d after k %d", p.MessageID, p.RunID, p.K, t.lastK)
	}
}

// judgeEnd judges what ends a run or parks it. The last k is not known where the
// sandbox went away, so only an agent's own end has to name it.
func (t *turn) judgeEnd(run string, lastK uint64, own bool, found report) {
	switch t.runs[run] {
	case runUnknown, runOver:
		found(Turn, "run %s ended, but it is not open, parked or queued", run)
	case runOpen:
		if lastK < t.lastK && (own || lastK != 0) {
			found(Turn, "run %s ended at k %d after k %d", run, lastK, t.lastK)
		}
	case runQueued, runParked:
	}
}

func (t *turn) move(p session.Payload) {
	switch p := p.(type) {
	case session.MessageReceived:
		t.runs[p.RunID] = runQueued
	case session.RunStarted:
		if p.ParentRunID != "" && p.ParentRunID == t.parked {
			t.end(p.ParentRunID, runOver)
		}
		t.open, t.lastK, t.recorded = p.RunID, 0, map[string]bool{}
		t.runs[p.RunID] = runOpen
	case session.RunMessageRecorded:
		if t.open == p.RunID {
			t.lastK = max(t.lastK, p.K)
			t.recorded[p.MessageID] = true
		}
	case session.RunInterrupted:
		if t.open == p.RunID {
			t.end(p.RunID, runParked)
			t.parked = p.RunID
		}
	case session.RunFinished:
		t.end(p.RunID, runOver)
	case session.RunFailed:
		t.end(p.RunID, runOver)
	default: // nothing else is of its concern
	}
}

func (t *turn) end(run string, to runState) {
	if t.open == run {
		t.open = ""
	}
	if t.parked == run {
		t.parked = ""
	}
	t.runs[run] = to
}
