package agentsandbox

import (
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/util/workqueue"
	agentsv1beta1 "sigs.k8s.io/agent-sandbox/api/v1beta1"
	sandboxfake "sigs.k8s.io/agent-sandbox/clients/k8s/clientset/versioned/fake"
	extfake "sigs.k8s.io/agent-sandbox/clients/k8s/extensions/clientset/versioned/fake"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// A Pod that was asked to go, on a node that says nothing any more, is a loss once its
// grace is long over: nobody changes anything then, and it is told all the same.
func TestPodOfASilentNodeIsLost(t *testing.T) {
	t.Parallel()
	d := &Driver{
		cfg: Config{Namespace: func(string) string { return "ns" }},
		ext: extfake.NewSimpleClientset(), sandboxes: sandboxfake.NewSimpleClientset(), kube: kubefake.NewClientset(),
		scopes: map[string]*scope{}, events: driver.NewQueue(),
		writes: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstAgain, lastAgain)),
	}
	d.ctx = t.Context()
	s, err := d.newScope("ns")
	must(t, err)
	d.scopes["ns"] = s
	ref := driver.Ref{Tenant: "default", Session: "s-1", Generation: 1}
	key := types.NamespacedName{Namespace: "ns", Name: claimName(ref)}
	claim := newClaim(driver.Claim{Ref: ref, Intent: 1, Epoch: "e", Runtime: driver.RuntimeSpec{Name: "default.coder", Revision: 1}}, key, "pool")
	claim.UID, claim.ManagedFields = "claim-1", []metav1.ManagedFieldsEntry{{Manager: FieldManager}}
	maps.Copy(claim.Annotations, record{sandbox: "sandbox-1", incarnation: "pod-1"}.annotations(claim.UID))
	yes := true
	box := &agentsv1beta1.Sandbox{ObjectMeta: metav1.ObjectMeta{
		Name: "box", Namespace: "ns", UID: "sandbox-1",
		OwnerReferences: []metav1.OwnerReference{{Kind: extensionsv1beta1.SandboxClaimKind, Name: claim.Name, UID: claim.UID, Controller: &yes}},
	}}
	asked := metav1.NewTime(time.Now().Add(time.Second - nodeSilent)) // over in a second
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "box", Namespace: "ns", UID: "pod-1", DeletionTimestamp: &asked,
			OwnerReferences: []metav1.OwnerReference{{Kind: "Sandbox", Name: box.Name, UID: box.UID, Controller: &yes}},
		},
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: "agent"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	must(t, s.claims.GetStore().Add(claim))
	must(t, s.sandboxes.GetStore().Add(box))
	must(t, s.pods.GetStore().Add(pod))
	d.tasks.Go(d.write)
	t.Cleanup(func() { d.writes.ShutDown(); d.tasks.Wait(); d.events.Close() })

	d.judge(d.sight(key))
	if e := <-d.events.Out(); !e.Draining || e.Cause != driver.CausePodDeleted {
		t.Errorf("told %+v", e)
	}
	select {
	case e := <-d.events.Out():
		if e.Draining || e.Cause != driver.CausePodDeleted || e.PodUID != "pod-1" || e.Ref != ref {
			t.Errorf("told %+v", e)
		}
	case <-time.After(deadline):
		t.Fatal("no loss")
	}
	if time.Now().Before(goneAt(pod)) {
		t.Error("told before its grace was long over")
	}
}
