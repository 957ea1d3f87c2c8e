package kubetest

import (
	"context"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/holdfast-io/holdfast/services/internal/kubetest/internal/kubelet"
)

// Image is what a container image is in this cluster; see package kubelet.
type Image = kubelet.Image

// Container is what an image learns of a container that is about to start.
type Container = kubelet.Container

// ErrNotRunning says that a container that was named has no process.
var ErrNotRunning = kubelet.ErrNotRunning

// OwnNode is the label by which Pods select a node of the test's own, its value the
// node's name; a taint of the same key keeps others away, so they tolerate it, too.
const OwnNode = "kubetest.holdfast.dev/own"

// Image says what containers of the image name run, in all namespaces, from now on. A
// container that waits for an image that was unknown finds it at its next try.
func (c *Cluster) Image(name string, image Image) { c.kubelet.SetImage(name, image) }

// Programs is an image with programs of this machine under the names of their files;
// entrypoint is the command of containers that name none.
func Programs(programs map[string]string, entrypoint ...string) Image {
	return Image{Programs: programs, Entrypoint: entrypoint}
}

// Holdfast is Holdfast's own image: sandboxd, the file, listens where it does by
// default, on the addresses that its Pod has here.
func Holdfast(sandboxd string) Image {
	return Image{
		Programs: map[string]string{"sandboxd": sandboxd},
		Env:      []string{"HOLDFAST_LISTEN=0.0.0.0:7778", "HOLDFAST_RELAY=127.0.0.1:7777"},
	}
}

// HostIP is the address of all nodes, one of this machine: what a test serves to Pods
// listens there, because 127.0.0.1 is a Pod's own.
func (c *Cluster) HostIP() string { return c.kubelet.HostIP() }

// Node adds a node for this test alone, to be cordoned, drained or deleted. It is
// deleted after the test. Pods get there by the selector and the toleration that
// [OnNode] gives.
func (c *Cluster) Node(t testing.TB) string {
	t.Helper()
	name := "node-" + rand.String(6)
	c.node(t, name, name)
	return name
}

// NodeBeside adds another node, which takes the Pods that a node of the test's takes.
func (c *Cluster) NodeBeside(t testing.TB, node string) string {
	t.Helper()
	name := "node-" + rand.String(6)
	c.node(t, name, node)
	return name
}

// node adds a node for Pods that select own, until the test ends.
func (c *Cluster) node(t testing.TB, name, own string) {
	t.Helper()
	err := c.kubelet.AddNode(t.Context(), name, map[string]string{OwnNode: own},
		corev1.Taint{Key: OwnNode, Value: own, Effect: corev1.TaintEffectNoSchedule})
	if err != nil {
		t.Fatalf("kubetest: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), settle)
		defer cancel()
		if err := c.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}); ignoreNotFound(err) != nil {
			t.Errorf("kubetest: delete node %s: %v", name, err)
		}
	})
}

// OnNode makes a Pod go to a test's own node.
func OnNode(spec *corev1.PodSpec, node string) {
	spec.NodeSelector = map[string]string{OwnNode: node}
	spec.Tolerations = append(spec.Tolerations, corev1.Toleration{Key: OwnNode, Value: node, Effect: corev1.TaintEffectNoSchedule})
}

// Cordon sets whether a node takes no more Pods.
func (c *Cluster) Cordon(t testing.TB, node string, unschedulable bool) {
	t.Helper()
	patch := `{"spec":{"unschedulable":false}}`
	if unschedulable {
		patch = `{"spec":{"unschedulable":true}}`
	}
	if _, err := c.client.CoreV1().Nodes().Patch(t.Context(), node, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatalf("kubetest: cordon %s: %v", node, err)
	}
}

// PauseKubelet makes a node's kubelet do and say nothing, as one that hangs, until the
// returned function is called or the test ends. The node's processes go on.
func (c *Cluster) PauseKubelet(t testing.TB, node string) (resume func()) {
	t.Helper()
	resume, err := c.kubelet.Pause(node)
	if err != nil {
		t.Fatalf("kubetest: %v", err)
	}
	t.Cleanup(resume)
	return resume
}

// FallSilent is PauseKubelet for a node that its cluster has noticed: the node's readiness
// is unknown, it is tainted as unreachable, and its Pods aren't ready, until the returned
// function is called. Nobody deletes its Pods.
func (c *Cluster) FallSilent(t testing.TB, node string) (resume func()) {
	t.Helper()
	resume = c.PauseKubelet(t, node)
	if err := c.kubelet.Unheard(t.Context(), node); err != nil {
		t.Fatalf("kubetest: node %s: %v", node, err)
	}
	return func() {
		t.Helper()
		if err := c.kubelet.Heard(t.Context(), node); err != nil {
			t.Errorf("kubetest: node %s: %v", node, err)
		}
		resume()
	}
}

// OOM kills a container's processes as the kernel does at the memory limit: the
// container ends with code 137 and reason OOMKilled. It fails with [ErrNotRunning].
func (c *Cluster) OOM(namespace, pod, container string) error {
	return c.kubelet.OOM(namespace, pod, container)
}

// Kill signals a container's processes. It fails with [ErrNotRunning].
func (c *Cluster) Kill(namespace, pod, container string, signal syscall.Signal) error {
	return c.kubelet.Kill(namespace, pod, container, signal)
}

// Log is what a container has written, all its restarts together.
func (c *Cluster) Log(pod *corev1.Pod, container string) (string, error) {
	return c.kubelet.Log(pod.UID, container)
}
