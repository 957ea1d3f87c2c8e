package kubelet

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// report tells the API server what the Pod is like, if that has changed.
func (w *worker) report() {
	patch, err := json.Marshal(map[string]any{
		// Another Pod of the same name is not this one.
		"metadata": map[string]any{"uid": w.uid},
		"status":   w.status(),
	})
	if err != nil || string(patch) == w.reported {
		return
	}
	_, err = w.k.client.CoreV1().Pods(w.key.Namespace).
		Patch(w.ctx, w.key.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		w.reported = string(patch)
	default:
		w.wakeAt(time.Now().Add(again))
	}
}

// status is the part of a Pod's status that its kubelet writes. Conditions are maps:
// in a merge a reason that isn't there any more must be null to go.
func (w *worker) status() map[string]any {
	status := map[string]any{
		"phase":                 w.phase(),
		"startTime":             metav1.NewTime(w.started),
		"hostIP":                w.k.HostIP(),
		"hostIPs":               []corev1.HostIP{{IP: w.k.HostIP()}},
		"initContainerStatuses": w.statuses(w.init),
		"containerStatuses":     w.statuses(w.main),
		"conditions":            w.conditions(),
		"observedGeneration":    w.pod.Generation,
	}
	if w.podIP != "" {
		status["podIP"], status["podIPs"] = w.podIP, []corev1.PodIP{{IP: w.podIP}}
	}
	return status
}

func (w *worker) conditions() []map[string]any {
	initialized := w.initialized && w.sidecarsStarted()
	waitingFor := "ContainersNotReady"
	if w.phase() == corev1.PodSucceeded {
		initialized, waitingFor = true, "PodCompleted"
	}
	ready := initialized && !w.over
	for _, c := range w.all() {
		if c.sidecar || !c.init {
			ready = ready && c.ready
		}
	}
	return []map[string]any{
		condition("PodReadyToStartContainers", w.mounts != nil, ""),
		condition(corev1.PodInitialized, initialized, "ContainersNotInitialized"),
		condition(corev1.ContainersReady, ready, waitingFor),
		condition(corev1.PodReady, ready, waitingFor),
	}
}

func (w *worker) sidecarsStarted() bool {
	for _, c := range w.init {
		if c.sidecar && !c.started && !w.initialized {
			return false
		}
	}
	return true
}

func condition(kind corev1.PodConditionType, is bool, otherwise string) map[string]any {
	out := map[string]any{"type": kind, "status": corev1.ConditionTrue, "reason": nil, "message": nil}
	if !is {
		out["status"] = corev1.ConditionFalse
		if otherwise != "" {
			out["reason"] = otherwise
		}
	}
	return out
}

// phase is by the rules of a kubelet's getPhase.
func (w *worker) phase() corev1.PodPhase {
	if !w.initialized {
		if w.over {
			return corev1.PodFailed
		}
		return corev1.PodPending
	}
	var waiting, running, stopped, succeeded int
	for _, c := range w.main {
		switch {
		case c.process != nil:
			running++
		case c.terminated != nil || c.last != nil:
			stopped++
			if c.succeeded() {
				succeeded++
			}
		default:
			waiting++
		}
	}
	switch {
	case waiting > 0:
		return corev1.PodPending
	case running > 0 || !w.over && !w.terminal():
		return corev1.PodRunning
	case stopped == succeeded:
		return corev1.PodSucceeded
	}
	return corev1.PodFailed
}

func (w *worker) statuses(containers []*containerRun) []corev1.ContainerStatus {
	out := make([]corev1.ContainerStatus, 0, len(containers))
	for _, c := range containers {
		s := corev1.ContainerStatus{
			Name: c.spec.Name, Image: c.spec.Image,
			RestartCount: int32(max(c.attempts-1, 0)),
			Ready:        c.ready || c.init && !c.sidecar && c.succeeded(),
			Started:      &c.started,
		}
		if c.last != nil {
			s.LastTerminationState.Terminated = c.last
		}
		switch {
		case c.process != nil:
			s.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(c.process.started)}
			s.ContainerID, s.ImageID = c.id(), "processes://"+c.spec.Image
		case c.terminated != nil:
			s.State.Terminated = c.terminated
			s.ContainerID = c.id()
		default:
			s.State.Waiting = c.waiting
		}
		out = append(out, s)
	}
	return out
}

// event records a warning about the Pod.
func (w *worker) event(reason, message string) {
	w.k.recorder.Event(w.pod, corev1.EventTypeWarning, reason, message)
}

// nodeEvent records a warning about the node, where a kubelet records it.
func (w *worker) nodeEvent(reason, message string) {
	w.k.recorder.Event(&corev1.ObjectReference{Kind: "Node", Name: w.nodeName, UID: types.UID(w.nodeName)},
		corev1.EventTypeWarning, reason, message)
}
