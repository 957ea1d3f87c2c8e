package agentsandbox

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	agentsv1beta1 "sigs.k8s.io/agent-sandbox/api/v1beta1"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
	"github.com/holdfast-io/holdfast/services/workload/internal/podtemplate"
)

// sight is what the informers show of one claim. Objects are shared: none is changed.
type sight struct {
	claim *extensionsv1beta1.SandboxClaim // nil for none
	// sandbox is the one that the claim controls, nil for none.
	sandbox *agentsv1beta1.Sandbox
	// pods are all that the sandbox controls, those on their way out too.
	pods []*corev1.Pod
	// node is the one that the only Pod is on, nil where that isn't known.
	node *corev1.Node
}

// pod is the Pod that serves: the only one, and not on its way out.
func (s sight) pod() *corev1.Pod {
	if len(s.pods) != 1 || s.pods[0].DeletionTimestamp != nil {
		return nil
	}
	return s.pods[0]
}

// agentContainer is the agent's: it is called agent, or is the first.
func agentContainer(pod *corev1.Pod) string {
	for _, c := range pod.Spec.Containers {
		if c.Name == podtemplate.AgentContainer {
			return c.Name
		}
	}
	return pod.Spec.Containers[0].Name
}

// statuses are those of sandboxd's and of the agent's container, as far as the kubelet
// has written any.
func statuses(pod *corev1.Pod) (sidecar, agent *corev1.ContainerStatus) {
	for i, c := range pod.Status.InitContainerStatuses {
		if c.Name == podtemplate.SidecarContainer {
			sidecar = &pod.Status.InitContainerStatuses[i]
		}
	}
	name := agentContainer(pod)
	for i, c := range pod.Status.ContainerStatuses {
		if c.Name == name {
			agent = &pod.Status.ContainerStatuses[i]
		}
	}
	return sidecar, agent
}

// incarnationOf is a Pod's, with the restarts of the two containers that know a session.
func incarnationOf(pod *corev1.Pod) string {
	sidecar, agent := statuses(pod)
	restarts := int32(0)
	for _, c := range []*corev1.ContainerStatus{sidecar, agent} {
		if c != nil {
			restarts += c.RestartCount
		}
	}
	if restarts == 0 {
		return string(pod.UID)
	}
	return fmt.Sprintf("%s.%d", pod.UID, restarts)
}

// podOf is the Pod of an incarnation.
func podOf(incarnation string) types.UID {
	uid, _, _ := strings.Cut(incarnation, ".")
	return types.UID(uid)
}

// suspended says that the Sandbox is to have no Pod.
func (s sight) suspended() bool {
	return s.sandbox != nil && s.sandbox.Spec.OperatingMode == agentsv1beta1.SandboxOperatingModeSuspended
}

// asleep says that it has none any more: the controller has seen to it.
func (s sight) asleep() bool {
	return s.suspended() && len(s.pods) == 0 && s.holds(agentsv1beta1.SandboxConditionSuspended)
}

// holds says whether a condition of the Sandbox is true of its present spec; what it
// said of an earlier one may still stand there.
func (s sight) holds(condition agentsv1beta1.ConditionType) bool {
	c := meta.FindStatusCondition(s.sandbox.Status.Conditions, string(condition))
	return c != nil && c.Status == "True" && c.ObservedGeneration == s.sandbox.Generation
}

// ready says whether the Sandbox is. An adoption changes its spec by labels only, so what
// its controller said before stands where nothing was handed out of the claim yet, and the
// Pod itself says the same: the controller says it of the new spec some time after the
// claim has it. What was handed out has been suspended since.
func (s sight) ready(first bool) bool {
	if !first {
		return s.holds(agentsv1beta1.SandboxConditionReady)
	}
	return meta.IsStatusConditionTrue(s.sandbox.Status.Conditions, string(agentsv1beta1.SandboxConditionReady)) && podReady(s.pod())
}

func podReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// bindable says whether the Sandbox's Pod can be bound: the Sandbox is ready, or all
// but the agent is, whose own failure is told when its entrypoint is waited for. first says
// that nothing was handed out of its claim before.
func (s sight) bindable(first bool) bool {
	pod := s.pod()
	if pod == nil || s.suspended() || pod.Status.Phase != corev1.PodRunning || pod.Status.PodIP == "" {
		return false
	}
	sidecar, _ := statuses(pod)
	if sidecar == nil || !sidecar.Ready {
		return false
	}
	if s.ready(first) {
		return true
	}
	_, over := agentEnd(pod)
	return over
}

// agentEnd is how the agent's container ended; over while it isn't running for that.
func agentEnd(pod *corev1.Pod) (end *corev1.ContainerStateTerminated, over bool) {
	_, agent := statuses(pod)
	switch {
	case agent == nil:
		return nil, false
	case agent.State.Terminated != nil:
		return agent.State.Terminated, true
	case agent.State.Waiting != nil && agent.State.Waiting.Reason == "CrashLoopBackOff":
		return agent.LastTerminationState.Terminated, true
	}
	return agent.LastTerminationState.Terminated, false
}

// state is a claim's, given what was handed out of it. Where nothing was yet it is
// running, as far as it goes.
func (s sight) state(was record) (driver.State, string) {
	switch {
	case was == record{} && s.suspended():
		return driver.StateSuspended, ""
	case was == record{}:
		return driver.StateRunning, ""
	case s.claim.DeletionTimestamp != nil:
		return driver.StateLost, driver.CauseClaimDeleted
	case s.sandbox == nil || s.sandbox.UID != was.sandbox || s.sandbox.DeletionTimestamp != nil:
		return driver.StateLost, driver.CauseSandboxDeleted
	case s.suspended(), s.sandbox.Annotations[annVoid] == was.incarnation:
		return driver.StateSuspended, "" // or on its way from there, as another incarnation
	case len(s.pods) > 1:
		return driver.StateLost, driver.CauseManyPods
	case len(s.pods) == 0:
		return driver.StateLost, driver.CausePodDeleted
	}
	pod := s.pods[0]
	switch cause := endOf(pod); {
	case cause != "":
		return driver.StateLost, cause
	case pod.UID != podOf(was.incarnation):
		return driver.StateLost, driver.CausePodDeleted // made again by agent-sandbox
	case incarnationOf(pod) != was.incarnation:
		return driver.StateLost, restartCause(pod)
	}
	return driver.StateRunning, ""
}

// leaving says why a Pod has to go that may still run; "" where it hasn't.
func leaving(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return driver.CauseEvicted
		}
	}
	if pod.DeletionTimestamp != nil {
		return driver.CausePodDeleted
	}
	return ""
}

// over says that one of the two containers that know a session has ended.
func over(pod *corev1.Pod) bool {
	sidecar, agent := statuses(pod)
	for _, c := range []*corev1.ContainerStatus{sidecar, agent} {
		if c != nil && c.State.Running == nil {
			return true
		}
	}
	return false
}

// endOf says why a Pod is over; "" while it isn't. One that was asked to go runs until its
// grace is over: what is under way in it may end well.
func endOf(pod *corev1.Pod) string {
	switch {
	case pod.Status.Reason == "Evicted":
		return driver.CauseEvicted
	case pod.Status.Phase == corev1.PodFailed && restartCause(pod) == driver.CauseOOM:
		return driver.CauseOOM
	case pod.Status.Phase == corev1.PodFailed:
		return driver.CausePodFailed
	case pod.Status.Phase == corev1.PodSucceeded:
		return driver.CausePodEnded
	case pod.DeletionTimestamp != nil && (over(pod) || time.Now().After(goneAt(pod))):
		return leaving(pod)
	}
	return ""
}

// restartCause says why a container was started again.
func restartCause(pod *corev1.Pod) string {
	sidecar, agent := statuses(pod)
	for _, c := range []*corev1.ContainerStatus{sidecar, agent} {
		if c == nil {
			continue
		}
		for _, end := range []*corev1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
			if end != nil && end.Reason == "OOMKilled" {
				return driver.CauseOOM
			}
		}
	}
	return driver.CauseRestarted
}

// path says whether the Sandbox was there before the claim: a cold one has its name.
func (s sight) path() driver.Path {
	if s.sandbox != nil && s.claim != nil && s.sandbox.Name != s.claim.Name {
		return driver.PathWarm
	}
	return driver.PathCold
}
