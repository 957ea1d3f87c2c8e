package agentsandbox

import (
	"log/slog"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	sandboxfake "sigs.k8s.io/agent-sandbox/clients/k8s/clientset/versioned/fake"
	extfake "sigs.k8s.io/agent-sandbox/clients/k8s/extensions/clientset/versioned/fake"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// A claim goes together with its Sandbox while its volume is made to outlive them: nobody
// else would ever remove that volume.
func TestVolumeOfWhatWentIsTakenBack(t *testing.T) {
	t.Parallel()
	ref := driver.Ref{Tenant: "default", Session: "s-1", Generation: 1}
	for name, c := range map[string]struct {
		kept, before bool // left on purpose; the session's since before, with its files
		left         bool
	}{"nobody left it": {}, "left on purpose": {kept: true, left: true}, "it has files": {before: true, left: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			volume := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
				Name: "workspace-x", Namespace: "ns", UID: "u-volume", Labels: sessionLabels(ref.Key()), Annotations: map[string]string{},
			}}
			if c.kept {
				volume.Annotations[annKept] = "1"
			}
			kube := kubefake.NewClientset(volume)
			d := &Driver{
				cfg:  Config{Namespace: func(string) string { return "ns" }, Log: slog.New(slog.DiscardHandler)},
				kube: kube, ext: extfake.NewSimpleClientset(), sandboxes: sandboxfake.NewSimpleClientset(),
				scopes: map[string]*scope{}, events: driver.NewQueue(),
			}
			t.Cleanup(d.events.Close)
			s, err := d.newScope("ns")
			must(t, err)
			d.scopes["ns"] = s
			at := types.NamespacedName{Namespace: "ns", Name: claimName(ref)}
			claim := newClaim(driver.Claim{Ref: ref, Intent: 1, Epoch: "e", Runtime: driver.RuntimeSpec{Name: "default.coder", Revision: 1, HasVolume: true}}, at, "pool")
			claim.UID = "u-claim"
			claim.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: FieldManager, Operation: metav1.ManagedFieldsOperationUpdate}}
			before := record{"u-box", "u-pod-before", volume.UID}
			if c.before {
				maps.Copy(claim.Annotations, before.annotations(claim.UID))
			}
			must(t, s.claims.GetStore().Add(claim))
			d.memos.change(claim.UID, func(m *memo) {
				m.handed, m.handedBy, m.over, m.seen = record{"u-box", "u-pod", volume.UID}, 1, []record{before}, "u-pod"
			})

			must(t, d.writeDown(t.Context(), at)) // the claim isn't there any more, its Sandbox isn't shown
			_, err = kube.CoreV1().PersistentVolumeClaims("ns").Get(t.Context(), volume.Name, metav1.GetOptions{})
			if there := !apierrors.IsNotFound(err); there != c.left {
				t.Errorf("the volume is there: %t", there)
			}
		})
	}
}
