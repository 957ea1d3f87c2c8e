package simulation

import (
	"errors"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/workload/workloadtest"
)

// box is a sandbox that exists.
type box struct {
	pod     string
	running bool
}

// driver runs sandboxes as the driver's contract says: it refuses older intents,
// starts one that died as a new incarnation, and never runs two generations.
type driver struct {
	boxes  map[uint64]*box
	intent uint64
}

var errOlderIntent = errors.New("older intent")

func (d *driver) admit(intent uint64) error {
	if intent < d.intent {
		return errOlderIntent
	}
	d.intent = intent
	return nil
}

// effect is what the workload service decided to carry out and hasn't reported yet.
type effect struct {
	action     workloadtest.Action
	generation uint64
	pod        string
	status     session.WorkloadStatus
	intent     uint64
}

// fault is what goes wrong with an effect.
type fault int

const (
	none    fault = iota
	fails         // the driver says that it can't be done, for good
	crashes       // the process dies after the effect and before its event
)

// work begins an effect, or finishes the one under way.
func (w *world) work(onlyBegin bool) {
	if w.effect == nil {
		st := w.state()
		e := &effect{
			action: workloadtest.Plan(st), generation: st.Workload.Generation, pod: st.Workload.PodUID,
			status: st.Workload.Status, intent: st.IntentN,
		}
		w.dirty[events.ServiceWorkload] = false // what is heard from now on means another look
		if e.action == workloadtest.Nothing {
			return
		}
		w.effect = e
	}
	if !onlyBegin {
		w.finish(none)
	}
}

// finish carries out the effect under way and reports it.
func (w *world) finish(f fault) {
	e := w.effect
	if e == nil {
		return
	}
	w.effect = nil
	step, err := w.effectOn(e, f == fails)
	if err == nil && step != nil && f != crashes {
		err = w.do(events.ServiceWorkload, own(events.ServiceWorkload), step)
	}
	last := e.action == workloadtest.Verify || e.action == workloadtest.Clear
	if !last || f == crashes || err != nil { // overtaken, refused by the driver, or not the last step
		w.dirty[events.ServiceWorkload] = true
	}
}

// effectOn does what the app does with the driver, and gives what is to be
// appended.
func (w *world) effectOn(e *effect, fail bool) (decide, error) {
	b := w.driver.boxes[e.generation]
	switch e.action {
	case workloadtest.Request:
		if e.status == session.WorkloadLost {
			if err := w.remove(e); err != nil {
				return nil, err
			}
		}
		return workloadtest.RequestNext, nil
	case workloadtest.Claim:
		return w.claim(e, fail)
	case workloadtest.Ready:
		if b == nil || !b.running {
			return w.claim(e, fail)
		}
		if fail {
			return workloadtest.Failed(session.Failed{Generation: e.generation, Cause: "entrypoint-failed"}, true), nil
		}
		return workloadtest.BecameReady(session.Ready{Generation: e.generation, SandboxUID: "box", PodUID: e.pod, Path: "cold"}), nil
	case workloadtest.Suspend:
		if err := w.driver.admit(e.intent); err != nil {
			return nil, err
		}
		b.running = false
		return workloadtest.Suspended(e.generation), nil
	case workloadtest.Resume:
		if err := w.driver.admit(e.intent); err != nil {
			return nil, err
		}
		if !b.running {
			b.running, b.pod = true, w.id("pod")
		}
		if fail { // its entrypoint doesn't come up: the process runs on
			return workloadtest.Lost(session.Lost{Generation: e.generation, Cause: "entrypoint-failed", WorkspaceKept: true}), nil
		}
		return workloadtest.Resumed(session.Resumed{Generation: e.generation, PodUID: b.pod}), nil
	case workloadtest.Release:
		return workloadtest.Released(e.generation), w.remove(e)
	case workloadtest.Clear:
		return nil, w.remove(e)
	case workloadtest.Verify:
		if b == nil || !b.running || b.pod != e.pod {
			return workloadtest.Lost(session.Lost{Generation: e.generation, PodUID: e.pod, Cause: "gone"}), nil
		}
	case workloadtest.Nothing:
	}
	return nil, nil
}

func (w *world) claim(e *effect, fail bool) (decide, error) {
	if err := w.driver.admit(e.intent); err != nil {
		return nil, err
	}
	if fail {
		return workloadtest.Failed(session.Failed{Generation: e.generation, Cause: "isolation-unavailable"}, true), nil
	}
	for generation, other := range w.driver.boxes {
		switch {
		case generation == e.generation:
		case other.running:
			w.t.Fatalf("generation %d is claimed while %d runs: %s", e.generation, generation, w.describe())
		default:
			delete(w.driver.boxes, generation)
		}
	}
	b := w.driver.boxes[e.generation]
	if b == nil || !b.running {
		b = &box{pod: w.id("pod"), running: true}
		w.driver.boxes[e.generation] = b
	}
	return workloadtest.Claimed(session.Claimed{Generation: e.generation, SandboxUID: "box", PodUID: b.pod, Path: "cold", Isolation: "none"}), nil
}

func (w *world) remove(e *effect) error {
	if err := w.driver.admit(e.intent); err != nil {
		return err
	}
	delete(w.driver.boxes, e.generation)
	return nil
}

// die ends a running sandbox; the driver tells.
func (w *world) die() {
	for generation, b := range w.driver.boxes {
		if !b.running {
			continue
		}
		b.running = false
		w.dirty[events.ServiceWorkload] = true // the app enqueues the session in any case
		w.must(w.do(events.ServiceWorkload, own(events.ServiceWorkload),
			workloadtest.Lost(session.Lost{Generation: generation, PodUID: b.pod, Cause: "died"})))
	}
}
