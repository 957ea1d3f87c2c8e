package kubelet

import (
	"slices"
	"syscall"
	"time"
)

// defaultGrace is Kubernetes' default for terminationGracePeriodSeconds.
const defaultGrace = 30 * time.Second

// ending is how far a Pod's termination has come.
type ending struct {
	since    time.Time // zero: not ending
	asked    map[*containerRun]bool
	shutdown bool // SIGKILL was sent to all
}

// end stops what runs, the containers first, then the sidecars from the last to the
// first; what still runs after the grace is killed. It returns true when nothing runs.
func (w *worker) end() bool {
	if w.ending.since.IsZero() {
		w.ending = ending{since: time.Now(), asked: map[*containerRun]bool{}}
	}
	deadline := w.ending.since.Add(w.grace())
	if late := !time.Now().Before(deadline); late && !w.ending.shutdown {
		w.ending.shutdown = true
		for _, c := range w.all() {
			if c.process != nil {
				c.process.kill(syscall.SIGKILL)
			}
		}
	}
	if w.stopAll(w.main) {
		return w.stopInReverse()
	}
	w.wakeAtDeadline(deadline)
	return false
}

func (w *worker) stopInReverse() bool {
	for i := range slices.Backward(w.init) {
		if !w.stopAll(w.init[i : i+1]) {
			w.wakeAtDeadline(w.ending.since.Add(w.grace()))
			return false
		}
	}
	return true
}

func (w *worker) wakeAtDeadline(deadline time.Time) {
	if !w.ending.shutdown {
		w.wakeAt(deadline)
	}
}

// stopAll asks containers to stop, once, and says whether all have.
func (w *worker) stopAll(containers []*containerRun) bool {
	all := true
	for _, c := range containers {
		c.settle()
		if c.process == nil {
			continue
		}
		all = false
		if !w.ending.asked[c] {
			w.ending.asked[c] = true
			c.stopProbes()
			c.process.kill(syscall.SIGTERM)
		}
	}
	return all
}

// grace is how long the Pod may take to end. A deletion may have shortened it since.
func (w *worker) grace() time.Duration {
	switch {
	case w.k.graceless(w.key.Namespace):
		return 0
	case w.pod.DeletionGracePeriodSeconds != nil:
		return time.Duration(*w.pod.DeletionGracePeriodSeconds) * time.Second
	case w.pod.Spec.TerminationGracePeriodSeconds != nil:
		return time.Duration(*w.pod.Spec.TerminationGracePeriodSeconds) * time.Second
	}
	return defaultGrace
}
