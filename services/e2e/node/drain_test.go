//go:build node

package node_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
	"github.com/holdfast-io/holdfast/services/e2e/node/onenode"
)

// TestDrain: the node is cordoned and the eviction of the sandbox's Pod asked for until it
// is gone, as `kubectl drain` does it. The session is put away, and goes on with its file
// where the node takes Pods again.
func TestDrain(t *testing.T) {
	w := newWorld(t)
	w.runtime("drained", 0, keeping)
	s := w.create("drained", "")
	w.answered(s.ID, "echo still-here > /workspace/kept && sync")

	cordon(t, true)
	t.Cleanup(func() { cordon(t, false) })
	for _, p := range w.pods(s.ID) {
		eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
		harness.Eventually(t, "the drain gets through", func() bool {
			err := cluster.Client.SubResource("eviction").Create(harness.Context(t), &p, eviction)
			if err != nil && !apierrors.IsTooManyRequests(err) && !apierrors.IsNotFound(err) {
				t.Fatal(err)
			}
			return apierrors.IsNotFound(err)
		})
	}
	w.until(s.ID, "it has no sandbox", func(s *api.Session) bool { return s.Phase != api.SessionPhaseReady })
	cordon(t, false)
	said, _ := w.answered(s.ID, "cat /workspace/kept")
	if !strings.Contains(said, "still-here") {
		t.Errorf("the file didn't survive: %s", said)
	}
	w.end(s.ID)
	nothingLeft(t, s.ID)
}

// cordon says whether the node takes no more Pods.
func cordon(t *testing.T, on bool) {
	t.Helper()
	ctx := harness.Context(t)
	var node corev1.Node
	if err := cluster.Client.Get(ctx, client.ObjectKey{Name: onenode.NodeName}, &node); err != nil {
		t.Fatal(err)
	}
	patch := client.MergeFrom(node.DeepCopy())
	node.Spec.Unschedulable = on
	if err := cluster.Client.Patch(ctx, &node, patch); err != nil {
		t.Fatal(err)
	}
}
