package agentsandbox

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// Reasons of a claim's Ready condition that agent-sandbox has no names for.
const (
	reasonPool      = "WarmPoolNotFound"
	reasonTemplate  = "TemplateNotFound"
	reasonEnv       = "EnvVarsInjectionRejected"
	reasonVolumes   = "VolumeClaimTemplatesError"
	reasonMetadata  = "InvalidMetadata"
	reasonReconcile = "ReconcilerError"
)

// trouble is what keeps a claim from being ready, nil where nothing is known to: what
// ails the Pod's node first, then the Pod's own words, the Sandbox's, the claim's.
func (s sight) trouble() *driver.StartError {
	if t := s.placeTrouble(); t != nil {
		return t
	}
	if pod := s.pod(); pod != nil {
		if t := podTrouble(pod); t != nil {
			return t
		}
	}
	if s.sandbox != nil {
		if t := refusal(s.sandbox.Status.Conditions); t != nil {
			return t
		}
	}
	if s.claim == nil {
		return nil
	}
	ready := meta.FindStatusCondition(s.claim.Status.Conditions, "Ready")
	if ready == nil || ready.Status == metav1.ConditionTrue {
		return nil
	}
	switch ready.Reason {
	case reasonPool:
		return &driver.StartError{Cause: driver.CausePool, Detail: ready.Message}
	case reasonTemplate:
		return &driver.StartError{Cause: driver.CauseTemplate, Detail: ready.Message}
	case reasonEnv, reasonVolumes, reasonMetadata:
		return &driver.StartError{Cause: driver.CauseInjection, Detail: ready.Message, Final: true}
	}
	if s.sandbox != nil {
		return nil // what the claim says of it is a copy, and may be an old one
	}
	return refusal(s.claim.Status.Conditions)
}

// refusal is what the API server refused to a controller. It is told as text alone, in
// the words of the API server's own errors.
func refusal(conditions []metav1.Condition) *driver.StartError {
	ready := meta.FindStatusCondition(conditions, "Ready")
	if ready == nil || ready.Reason != reasonReconcile {
		return nil
	}
	return refused(ready.Message)
}

// refused words a refusal of the API server; nil where the message is none.
func refused(message string) *driver.StartError {
	switch {
	case strings.Contains(message, "exceeded quota"):
		return &driver.StartError{Cause: driver.CauseQuota, Detail: message, Final: true}
	case strings.Contains(message, "forbidden"), strings.Contains(message, "is invalid"), strings.Contains(message, "denied the request"):
		return &driver.StartError{Cause: driver.CauseAdmission, Detail: message, Final: true}
	}
	return nil
}

// refusedCall is refused for a call of our own; the error itself where it is no refusal.
func refusedCall(err error) error {
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		return err
	}
	if t := refused(err.Error()); t != nil && t.Cause == driver.CauseQuota {
		return t
	}
	return &driver.StartError{Cause: driver.CauseAdmission, Detail: err.Error()}
}

// waits says what a container's reason to wait means. A kubelet pulls again by itself,
// but what it couldn't pull once is seldom there a minute later, and people wait for it.
var waits = map[string]driver.StartError{
	"ErrImagePull":               {Cause: driver.CauseImage, Final: true},
	"ImagePullBackOff":           {Cause: driver.CauseImage, Final: true},
	"ErrImageNeverPull":          {Cause: driver.CauseImage, Final: true},
	"InvalidImageName":           {Cause: driver.CauseImage, Final: true},
	"ImageInspectError":          {Cause: driver.CauseImage, Final: true},
	"CreateContainerConfigError": {Cause: driver.CauseMisconfigured, Final: true},
	"CreateContainerError":       {Cause: driver.CauseMisconfigured},
	"RunContainerError":          {Cause: driver.CauseMisconfigured},
}

// podTrouble is what a Pod says of itself.
func podTrouble(pod *corev1.Pod) *driver.StartError {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, c := range list {
			if c.State.Waiting == nil {
				continue
			}
			if t, ok := waits[c.State.Waiting.Reason]; ok {
				t.Detail = "container " + c.Name + ": " + cmp.Or(c.State.Waiting.Message, c.State.Waiting.Reason)
				return &t
			}
		}
	}
	for _, c := range pod.Status.Conditions {
		// A node may be added, or somebody may leave one: it is waited for.
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return &driver.StartError{Cause: driver.CauseUnschedulable, Detail: c.Message}
		}
	}
	if pod.Status.Phase == corev1.PodFailed && !leftover(pod) { // evicted, or refused by its node: agent-sandbox makes no other in its place
		return &driver.StartError{
			Cause: driver.CausePodFailed, Detail: cmp.Or(pod.Status.Message, pod.Status.Reason, "the Pod failed"), Final: true,
		}
	}
	return nil
}

// leftover says that a Pod that failed is about to be removed by who took it from its node,
// and that agent-sandbox makes another then. A kubelet that ends one leaves it.
func leftover(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return c.Reason != corev1.PodReasonTerminationByKubelet
		}
	}
	return false
}
