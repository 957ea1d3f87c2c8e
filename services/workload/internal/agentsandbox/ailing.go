package agentsandbox

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// nodeSilent is how long after its grace a Pod that was asked to go may still be there:
// then nobody on its node tells any more how it is, and it isn't waited for.
const nodeSilent = 30 * time.Second

// readyOf is a node's Ready condition; nil before its kubelet has said anything.
func readyOf(node *corev1.Node) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == corev1.NodeReady {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

// unheard says that a node's kubelet isn't heard of any more: Kubernetes says so of one
// that hasn't renewed its lease for a while, 40 s where nobody set another.
func unheard(node *corev1.Node) bool {
	ready := readyOf(node)
	return ready != nil && ready.Status == corev1.ConditionUnknown
}

// ailed hears of a change of a node, and has those looked at again whose Pod is on one
// that has come to be ready, or isn't any more: nothing of theirs changes by it. Its loss
// is a nil now.
func (d *Driver) ailed(before, now any) {
	if gone, ok := before.(cache.DeletedFinalStateUnknown); ok {
		before = gone.Obj
	}
	was, ok := before.(*corev1.Node)
	if !ok {
		return
	}
	if is, ok := now.(*corev1.Node); ok && status(is) == status(was) {
		return
	}
	for _, s := range d.scopes {
		for _, pod := range indexed[corev1.Pod](s.pods, byNode, was.Name) {
			if key, ok := claimBehind(s, pod); ok {
				d.notices.tell(key)
			}
		}
	}
}

func status(node *corev1.Node) corev1.ConditionStatus {
	if ready := readyOf(node); ready != nil {
		return ready.Status
	}
	return ""
}

// nodeOf is the node that a Pod is on, as far as nodes are watched; nil for none.
func (d *Driver) nodeOf(pod *corev1.Pod) *corev1.Node {
	if d.nodes == nil || pod.Spec.NodeName == "" {
		return nil
	}
	o, ok, err := d.nodes.GetStore().GetByKey(pod.Spec.NodeName)
	node, is := o.(*corev1.Node)
	if err != nil || !ok || !is {
		return nil
	}
	return node
}

// placeTrouble is what ails the node that the Pod of a claim is on. Of one that isn't
// heard of nothing more is to come: whatever the Pod is like there, another is made
// elsewhere. One that says itself that it isn't ready may soon be.
func (s sight) placeTrouble() *driver.StartError {
	if len(s.pods) != 1 {
		return nil
	}
	name := s.pods[0].Spec.NodeName
	if s.node != nil {
		ready := readyOf(s.node)
		if ready == nil || ready.Status == corev1.ConditionTrue {
			return nil
		}
		return &driver.StartError{
			Cause: driver.CauseNode, Final: unheard(s.node),
			Detail: fmt.Sprintf("node %s: %s", name, cmp.Or(ready.Message, ready.Reason, "it isn't ready")),
		}
	}
	if s.silent() {
		return &driver.StartError{Cause: driver.CauseNode, Detail: "node " + name + " doesn't say that the Pod, which was asked to go, has ended", Final: true}
	}
	return nil
}

// goneAt is when a Pod that was asked to go is taken for over, whatever its node says.
func goneAt(pod *corev1.Pod) time.Time {
	return pod.DeletionTimestamp.Add(nodeSilent) // which is when its grace is over
}

// silent says that what is left of a claim is a Pod of which nobody tells that it ended:
// its node isn't heard of, or should have told long ago.
func (s sight) silent() bool {
	away := s.node != nil && unheard(s.node)
	for _, pod := range s.pods {
		if pod.DeletionTimestamp == nil || !away && time.Now().Before(goneAt(pod)) {
			return false
		}
	}
	return len(s.pods) > 0
}

// hopeless is why what was handed out won't answer any more: its agent has failed, or its
// node isn't heard of. It is nil while it may.
func (d *Driver) hopeless(ref driver.Ref) error {
	if err := d.failedAgent(ref); err != nil {
		return err
	}
	key, err := d.keyFor(ref)
	if err != nil {
		return err
	}
	if t := d.sight(key).placeTrouble(); t != nil && t.Final {
		return t
	}
	return nil
}
