package invariants

import (
	"slices"

	"github.com/holdfast-io/holdfast/events/session"
)

// pods says, over the whole log, which incarnation a Pod UID serves.
type pods map[string]incarnation

type incarnation struct {
	subject    string
	generation uint64
}

// workload tracks a session's sandboxes.
type workload struct {
	subject    string
	pods       pods
	generation uint64
	status     session.WorkloadStatus
	pod        string
	everReady  bool
}

// step is what a workload event says, whatever its type.
type step struct {
	generation uint64
	pod        string // "" where the event names none
	from       []session.WorkloadStatus
	to         session.WorkloadStatus
}

// stepOf is the table of the workload's moves; ok is false for other events.
func stepOf(p session.Payload) (step, bool) {
	const (
		none, requested, claimed = session.WorkloadNone, session.WorkloadRequested, session.WorkloadClaimed
		ready, suspended, lost   = session.WorkloadReady, session.WorkloadSuspended, session.WorkloadLost
		failed, released         = session.WorkloadFailed, session.WorkloadReleased
	)
	type statuses = []session.WorkloadStatus
	switch p := p.(type) {
	case session.ClaimRequested:
		return step{generation: p.Generation, from: statuses{none, lost, failed, released}, to: requested}, true
	case session.Claimed:
		return step{generation: p.Generation, pod: p.PodUID, from: statuses{requested, claimed}, to: claimed}, true
	case session.Ready:
		return step{generation: p.Generation, pod: p.PodUID, from: statuses{claimed}, to: ready}, true
	case session.Resumed:
		return step{generation: p.Generation, pod: p.PodUID, from: statuses{suspended}, to: ready}, true
	case session.Suspended:
		return step{generation: p.Generation, from: statuses{ready}, to: suspended}, true
	case session.Lost:
		return step{generation: p.Generation, from: statuses{requested, claimed, ready, suspended}, to: lost}, true
	case session.Failed:
		return step{generation: p.Generation, from: statuses{requested, claimed, suspended}, to: failed}, true
	case session.Released:
		return step{generation: p.Generation, from: statuses{requested, claimed, ready, suspended, lost, failed}, to: released}, true
	default: // nothing else is of its concern
	}
	return step{}, false
}

func (w *workload) judge(p session.Payload, over bool, found report) {
	if _, ended := p.(session.Ended); ended {
		if w.status != session.WorkloadNone && w.status != session.WorkloadReleased {
			found(Owner, "ended while generation %d is %s: nothing says that it was released", w.generation, w.status)
		}
		return
	}
	st, ok := stepOf(p)
	if !ok {
		return
	}
	name := session.TypeOf(p)
	if _, claim := p.(session.ClaimRequested); claim {
		if st.generation != w.generation+1 {
			found(Owner, "generation %d was requested after %d", st.generation, w.generation)
		}
		if over {
			found(Owner, "a sandbox was requested for a session that ends")
		}
	} else if st.generation != w.generation {
		found(Owner, "%s of generation %d while %d is the session's", name, st.generation, w.generation)
		return
	}
	if !slices.Contains(st.from, w.status) {
		found(Owner, "%s of a workload that is %q", name, w.status)
	}
	if st.pod == "" {
		return
	}
	if _, ready := p.(session.Ready); ready && st.pod != w.pod {
		found(Owner, "%s in pod %s, but %q was claimed", name, st.pod, w.pod)
	}
	at := incarnation{w.subject, st.generation}
	if owner, taken := w.pods[st.pod]; taken && owner != at {
		found(Owner, "%s: pod %s serves generation %d of %s", name, st.pod, owner.generation, owner.subject)
	}
}

func (w *workload) move(p session.Payload) {
	st, ok := stepOf(p)
	if !ok || st.generation < w.generation {
		return
	}
	w.generation, w.status = st.generation, st.to
	switch st.to {
	case session.WorkloadReady, session.WorkloadClaimed:
		w.pod = st.pod
		w.everReady = w.everReady || st.to == session.WorkloadReady
		if _, taken := w.pods[st.pod]; !taken {
			w.pods[st.pod] = incarnation{w.subject, st.generation}
		}
	default:
		w.pod = ""
	}
}
