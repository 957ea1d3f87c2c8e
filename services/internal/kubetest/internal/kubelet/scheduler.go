package kubelet

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	listersv1 "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// defaultScheduler is the only name that Pods may ask for.
const defaultScheduler = "default-scheduler"

// scheduler binds Pods to nodes. It looks at all that wait whenever a Pod, a node or a
// volume claim changes.
type scheduler struct {
	k      *Kubelet
	pods   listersv1.PodLister
	nodes  listersv1.NodeLister
	claims listersv1.PersistentVolumeClaimLister
	wake   chan struct{}
	// bound are Pods that the informer may still show as waiting.
	bound map[types.UID]string
}

func newScheduler(k *Kubelet) *scheduler {
	core := k.informers.Core().V1()
	return &scheduler{
		k: k, pods: core.Pods().Lister(), nodes: core.Nodes().Lister(), claims: core.PersistentVolumeClaims().Lister(),
		wake: make(chan struct{}, 1), bound: map[types.UID]string{},
	}
}

func (s *scheduler) handler() cache.ResourceEventHandler {
	look := func() {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { look() }, UpdateFunc: func(_, _ any) { look() }, DeleteFunc: func(any) { look() },
	}
}

func (s *scheduler) run() {
	for {
		select {
		case <-s.wake:
			s.schedule()
		case <-s.k.ctx.Done():
			return
		}
	}
}

// schedule binds what can be bound.
func (s *scheduler) schedule() {
	pods, err := s.pods.List(labels.Everything())
	if err != nil {
		return
	}
	used := map[string][]*corev1.Pod{}
	var waiting []*corev1.Pod
	present := map[types.UID]bool{}
	for _, pod := range pods {
		present[pod.UID] = true
		node := pod.Spec.NodeName
		if node == "" {
			node = s.bound[pod.UID]
		} else {
			delete(s.bound, pod.UID)
		}
		switch over := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed; {
		case over:
		case node != "":
			used[node] = append(used[node], pod)
		case pod.DeletionTimestamp == nil && pod.Spec.SchedulerName == defaultScheduler && len(pod.Spec.SchedulingGates) == 0:
			waiting = append(waiting, pod)
		}
	}
	for uid := range s.bound {
		if !present[uid] {
			delete(s.bound, uid)
		}
	}
	slices.SortFunc(waiting, func(a, b *corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	for _, pod := range waiting {
		if node := s.place(pod, used); node != "" {
			used[node] = append(used[node], pod)
		}
	}
}

// place binds one Pod to the first node that takes it, or says why none does.
func (s *scheduler) place(pod *corev1.Pod, used map[string][]*corev1.Pod) string {
	why, settled := s.volumesMissing(pod)
	if !settled {
		return "" // a claim's change wakes the scheduler
	}
	if why == "" {
		nodes, err := s.nodes.List(labels.Everything())
		if err != nil {
			return ""
		}
		slices.SortFunc(nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
		reasons := map[string]int{}
		for _, node := range nodes {
			reason := refusal(node, pod, used[node.Name])
			if reason == "" {
				s.bind(pod, node.Name)
				return node.Name
			}
			reasons[reason]++
		}
		why = fmt.Sprintf("0/%d nodes are available: %s.", len(nodes), counted(reasons))
	}
	s.refuse(pod, why)
	return ""
}

// volumesMissing says what claim keeps the Pod from being placed; it isn't settled
// while a claim has yet to be bound.
func (s *scheduler) volumesMissing(pod *corev1.Pod) (why string, settled bool) {
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim == nil {
			continue
		}
		name := volume.PersistentVolumeClaim.ClaimName
		claim, err := s.claims.PersistentVolumeClaims(pod.Namespace).Get(name)
		switch {
		case err != nil:
			return fmt.Sprintf("persistentvolumeclaim %q not found", name), true
		case claim.Status.Phase != corev1.ClaimBound && claim.Annotations[provisionFailed] != "":
			return "pod has unbound immediate PersistentVolumeClaims", true
		case claim.Status.Phase != corev1.ClaimBound:
			return "", false
		}
	}
	return "", true
}

func (s *scheduler) bind(pod *corev1.Pod, node string) {
	err := s.k.client.CoreV1().Pods(pod.Namespace).Bind(s.k.ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{})
	if err == nil {
		s.bound[pod.UID] = node
	} // else it is gone or bound, which the informer is about to say
}

// refuse says on the Pod that it can't be placed, once for each reason.
func (s *scheduler) refuse(pod *corev1.Pod, why string) {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Message == why {
			return
		}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status": map[string]any{"conditions": []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: why,
			LastTransitionTime: metav1.Now(),
		}}},
	})
	if err != nil {
		return
	}
	if _, err := s.k.client.CoreV1().Pods(pod.Namespace).
		Patch(s.k.ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err == nil {
		s.k.recorder.Event(pod, corev1.EventTypeWarning, "FailedScheduling", why)
	}
}

// refusal is why the node doesn't take the Pod, in the scheduler's words; empty if it does.
func refusal(node *corev1.Node, pod *corev1.Pod, beside []*corev1.Pod) string {
	if node.DeletionTimestamp != nil || node.Spec.Unschedulable {
		return "node(s) were unschedulable"
	}
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if taint.Effect != corev1.TaintEffectPreferNoSchedule && !tolerated(taint, pod.Spec.Tolerations) {
			return fmt.Sprintf("node(s) had untolerated taint(s) {%s: %s}", taint.Key, taint.Value)
		}
	}
	for key, value := range pod.Spec.NodeSelector {
		if node.Labels[key] != value {
			return "node(s) didn't match Pod's node affinity/selector"
		}
	}
	if room := node.Status.Allocatable.Pods(); int64(len(beside)) >= room.Value() {
		return "Too many pods"
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		sum := requested(pod, name)
		for _, other := range beside {
			sum.Add(requested(other, name))
		}
		if sum.Cmp(node.Status.Allocatable[name]) > 0 {
			return "Insufficient " + string(name)
		}
	}
	return ""
}

// tolerated has no need of the operators Lt and Gt.
func tolerated(taint *corev1.Taint, tolerations []corev1.Toleration) bool {
	return slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool {
		return (t.Effect == "" || t.Effect == taint.Effect) &&
			(t.Key == "" && t.Operator == corev1.TolerationOpExists || t.Key == taint.Key) &&
			(t.Operator == corev1.TolerationOpExists || t.Value == taint.Value)
	})
}

// requested is the sum over the containers that run side by side.
func requested(pod *corev1.Pod, name corev1.ResourceName) resource.Quantity {
	var sum resource.Quantity
	for _, c := range pod.Spec.Containers {
		sum.Add(c.Resources.Requests[name])
	}
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sum.Add(c.Resources.Requests[name])
		}
	}
	return sum
}

// counted is "1 Insufficient cpu, 2 node(s) were unschedulable".
func counted(reasons map[string]int) string {
	out := make([]string, 0, len(reasons))
	for reason, n := range reasons {
		out = append(out, fmt.Sprintf("%d %s", n, reason))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
