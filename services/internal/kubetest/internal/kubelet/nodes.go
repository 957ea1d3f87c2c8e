package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// gate lets the work of a node through, or holds it while the node is paused.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // closed while work may go on
}

func newGate() *gate {
	g := &gate{open: make(chan struct{})}
	close(g.open)
	return g
}

// opened is closed while, or as soon as, work may go on.
func (g *gate) opened() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
		g.open = make(chan struct{})
	default:
	}
}

func (g *gate) unlock() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
	default:
		close(g.open)
	}
}

// AddNode registers a node as a kubelet does, with room for a few hundred Pods.
func (k *Kubelet) AddNode(ctx context.Context, name string, labels map[string]string, taints ...corev1.Taint) error {
	all := map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64"}
	maps.Copy(all, labels)
	room := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("1000"),
		corev1.ResourceMemory:           resource.MustParse("4Ti"),
		corev1.ResourceEphemeralStorage: resource.MustParse("4Ti"),
		corev1.ResourcePods:             resource.MustParse("2000"),
	}
	k.mu.Lock()
	k.nodes[name] = newGate()
	k.mu.Unlock()
	_, err := k.client.CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: all},
		Status: corev1.NodeStatus{
			Capacity: room, Allocatable: room,
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: k.HostIP()}, {Type: corev1.NodeHostName, Address: name}},
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
				LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
			}},
			NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1.36.3", OperatingSystem: "linux", Architecture: "amd64", ContainerRuntimeVersion: "processes://1"},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	// Admission marks a new node as not ready, which a controller takes back in a cluster.
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"taints": taints}})
	if err != nil {
		return err
	}
	_, err = k.client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// Pause makes a node's kubelet do and say nothing, as one that hangs, until the
// returned function is called. Its processes go on.
func (k *Kubelet) Pause(node string) (resume func(), err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	gate := k.nodes[node]
	if gate == nil {
		return nil, fmt.Errorf("there is no node %s", node)
	}
	gate.shut()
	return gate.unlock, nil
}

// The taints of a node that isn't heard of.
var unreachable = []corev1.Taint{
	{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute},
}

// Unheard says of a node what a cluster's node controller says once the kubelet there
// hasn't been heard of for its 40 seconds: it isn't known how the node is, no Pod may come
// there, and those that are there aren't ready. Its Pods aren't deleted, which that
// controller begins with five minutes later.
func (k *Kubelet) Unheard(ctx context.Context, node string) error {
	now := metav1.Now()
	ready := corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown", Message: "Kubelet stopped posting node status.",
		LastHeartbeatTime: now, LastTransitionTime: now,
	}
	if err := k.describeNode(ctx, node, ready, func(taints []corev1.Taint) []corev1.Taint { return append(taints, unreachable...) }); err != nil {
		return err
	}
	pods, err := k.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return err
	}
	const notReady = `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`
	for _, pod := range pods.Items {
		if !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady }) {
			continue // the controller adds none
		}
		_, err := k.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, []byte(notReady), metav1.PatchOptions{}, "status")
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// Heard takes back what Unheard said.
func (k *Kubelet) Heard(ctx context.Context, node string) error {
	now := metav1.Now()
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: now, LastTransitionTime: now}
	return k.describeNode(ctx, node, ready, func(taints []corev1.Taint) []corev1.Taint {
		return slices.DeleteFunc(taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnreachable })
	})
}

// describeNode sets a node's Ready condition, and its taints.
func (k *Kubelet) describeNode(ctx context.Context, name string, ready corev1.NodeCondition, taints func([]corev1.Taint) []corev1.Taint) error {
	nodes := k.client.CoreV1().Nodes()
	node, err := nodes.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	node.Spec.Taints = taints(node.Spec.Taints)
	if node, err = nodes.Update(ctx, node, metav1.UpdateOptions{}); err != nil {
		return err
	}
	node.Status.Conditions = []corev1.NodeCondition{ready}
	_, err = nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

// nodeHandler ends what ran on a node that was deleted.
func (k *Kubelet) nodeHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		node, ok := obj.(*corev1.Node)
		if !ok {
			return
		}
		k.mu.Lock()
		delete(k.nodes, node.Name)
		var lost []*worker
		for _, w := range k.workers {
			if w.nodeName == node.Name {
				lost = append(lost, w)
			}
		}
		k.mu.Unlock()
		for _, w := range lost {
			k.running.Go(func() { k.collect(w) })
		}
	}}
}

// collect does what becomes of a Pod whose node is gone: its processes are gone with
// the node, and the collector of Pods deletes it, saying why.
func (k *Kubelet) collect(w *worker) {
	w.cancel()
	<-w.done
	patch := fmt.Sprintf(`{"metadata":{"uid":%q},"status":{"phase":"Failed","conditions":[{"type":"DisruptionTarget","status":"True","reason":"DeletionByPodGC","message":"PodGC: node no longer exists"}]}}`, w.uid)
	pods := k.client.CoreV1().Pods(w.key.Namespace)
	_, err := pods.Patch(k.ctx, w.key.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	if err == nil {
		err = pods.Delete(k.ctx, w.key.Name, deleteNow(w.uid))
	}
	if err != nil && k.ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		w.event("FailedKillPod", err.Error())
	}
}

// deleteNow removes exactly this Pod, without grace.
func deleteNow(uid types.UID) metav1.DeleteOptions {
	return metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &uid}}
}
