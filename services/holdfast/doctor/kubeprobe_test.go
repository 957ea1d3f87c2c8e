package doctor

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kuberuntime "k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	extfake "sigs.k8s.io/agent-sandbox/clients/k8s/extensions/clientset/versioned/fake"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"

	"github.com/holdfast-io/holdfast/services/internal/clusterfile"
)

// A doctor who is killed leaves a claim that ends by itself, and whose end takes along
// whatever else it made.
func TestProbeOfAKilledDoctorGoes(t *testing.T) {
	t.Parallel()
	ext := extfake.NewSimpleClientset()
	ext.PrependReactor("create", "sandboxclaims", func(a clienttesting.Action) (bool, kuberuntime.Object, error) {
		claim, ok := a.(clienttesting.CreateAction).GetObject().(*extensionsv1beta1.SandboxClaim)
		if ok {
			claim.UID = "claim-1" // as the API server does
		}
		return false, nil, nil
	})
	k := &kube{sandboxes: ext, file: clusterfile.File{Namespace: "own", Instance: "x", Image: "holdfast:1"}}
	if err := k.make(t.Context(), "ns", "probe", "", "[]"); err != nil {
		t.Fatal(err)
	}
	client := ext.ExtensionsV1beta1()
	claim, err := client.SandboxClaims("ns").Get(t.Context(), "probe", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if l := claim.Spec.Lifecycle; l == nil || l.ShutdownTime == nil || l.ShutdownPolicy != extensionsv1beta1.ShutdownPolicyDelete {
		t.Errorf("it never ends: %+v", l)
	}
	template, err := client.SandboxTemplates("ns").Get(t.Context(), "probe", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := client.SandboxWarmPools("ns").Get(t.Context(), "probe", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]metav1.Object{"template": template, "pool": pool} {
		if owners := o.GetOwnerReferences(); len(owners) != 1 || owners[0].UID != claim.UID || owners[0].Kind != "SandboxClaim" {
			t.Errorf("the %s is owned by %+v", name, owners)
		}
	}
}
