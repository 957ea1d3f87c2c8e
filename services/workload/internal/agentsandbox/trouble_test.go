package agentsandbox

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// What waiting mends is waited for; what it doesn't fails at once.
func TestPodTrouble(t *testing.T) {
	t.Parallel()
	waiting := func(reason string) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "agent", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}},
		}}}
	}
	for name, tc := range map[string]struct {
		status corev1.PodStatus
		cause  string
		final  bool
	}{
		"starting":              {status: waiting("ContainerCreating")},
		"without its image":     {waiting("ImagePullBackOff"), driver.CauseImage, true},
		"without its ConfigMap": {waiting("CreateContainerConfigError"), driver.CauseMisconfigured, true},
		"without a node": {corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable},
		}}, driver.CauseUnschedulable, false},
		"evicted": {corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}, driver.CausePodFailed, true},
	} {
		got := podTrouble(&corev1.Pod{Status: tc.status})
		switch {
		case got == nil && tc.cause == "":
		case got == nil || got.Cause != tc.cause || got.Final != tc.final:
			t.Errorf("%s: %+v, want %s, final %t", name, got, tc.cause, tc.final)
		}
	}
}
