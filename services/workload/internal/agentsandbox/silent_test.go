package agentsandbox

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// silentRef is the session of silent.
var silentRef = driver.Ref{Tenant: "default", Session: "s-1", Generation: 1}

// silent is a driver that sees a session whose Pod was asked to go, and is taken for over
// after a while.
func silent(t *testing.T, after time.Duration) (*Driver, *extensionsv1beta1.SandboxClaim, *corev1.Pod) {
	t.Helper()
	key := types.NamespacedName{Namespace: "ns", Name: claimName(silentRef)}
	of := driver.RuntimeSpec{Name: "default.coder", Revision: 1}
	claim := newClaim(driver.Claim{Ref: silentRef, Intent: 1, Epoch: "e", Runtime: of}, key, "pool")
	claim.UID, claim.ManagedFields = "claim-1", []metav1.ManagedFieldsEntry{{Manager: FieldManager}}
	maps.Copy(claim.Annotations, record{sandbox: "sandbox-1", incarnation: "pod-1"}.annotations(claim.UID))
	d := &Driver{
		cfg: Config{Namespace: func(string) string { return "ns" }},
		ext: extfake.NewSimpleClientset(claim.DeepCopy()), sandboxes: sandboxfake.NewSimpleClientset(), kube: kubefake.NewClientset(),
		scopes: map[string]*scope{}, events: driver.NewQueue(),
		writes: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstAgain, lastAgain)),
	}
	d.ctx = t.Context()
	t.Cleanup(func() { d.writes.ShutDown(); d.tasks.Wait(); d.events.Close() })
	s, err := d.newScope("ns")
	must(t, err)
	d.scopes["ns"] = s
	yes := true
	box := &agentsv1beta1.Sandbox{ObjectMeta: metav1.ObjectMeta{
		Name: "box", Namespace: "ns", UID: "sandbox-1",
		OwnerReferences: []metav1.OwnerReference{{Kind: extensionsv1beta1.SandboxClaimKind, Name: claim.Name, UID: claim.UID, Controller: &yes}},
	}}
	asked := metav1.NewTime(time.Now().Add(after - nodeSilent))
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
	return d, claim, pod
}

// A Pod that was asked to go, on a node that says nothing any more, is a loss once its
// grace is long over: nobody changes anything then, and it is told all the same.
func TestPodOfASilentNodeIsLost(t *testing.T) {
	t.Parallel()
	d, claim, pod := silent(t, time.Second)
	d.tasks.Go(d.write)
	d.judge(d.sight(keyOf(claim)))
	if e := <-d.events.Out(); !e.Draining || e.Cause != driver.CausePodDeleted {
		t.Errorf("told %+v", e)
	}
	select {
	case e := <-d.events.Out():
		if e.Draining || e.Cause != driver.CausePodDeleted || e.PodUID != "pod-1" || e.Ref != silentRef {
			t.Errorf("told %+v", e)
		}
	case <-time.After(deadline):
		t.Fatal("no loss")
	}
	if time.Now().Before(goneAt(pod)) {
		t.Error("told before its grace was long over")
	}
}

// Neither the next generation nor the end of a session waits for such a Pod, but for one
// that may still end.
func TestPodOfASilentNodeIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		after  time.Duration
		waited bool
	}{"silent": {-time.Second, false}, "ending": {time.Hour, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, claim, _ := silent(t, c.after)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := d.remove(ctx, silentRef, d.sight(keyOf(claim)), 2, false)
			if waited := errors.Is(err, context.DeadlineExceeded); waited != c.waited || err != nil && !waited {
				t.Errorf("removed: %v", err)
			}
			_, err = d.ext.ExtensionsV1beta1().SandboxClaims("ns").Get(t.Context(), claim.Name, metav1.GetOptions{})
			if !apierrors.IsNotFound(err) {
				t.Errorf("its claim isn't deleted: %v", err)
			}
		})
	}
}
