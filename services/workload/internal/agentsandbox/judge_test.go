package agentsandbox

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	agentsv1beta1 "sigs.k8s.io/agent-sandbox/api/v1beta1"
	sandboxfake "sigs.k8s.io/agent-sandbox/clients/k8s/clientset/versioned/fake"
	extfake "sigs.k8s.io/agent-sandbox/clients/k8s/extensions/clientset/versioned/fake"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"
)

// Where the informers show nothing, the API server says whether something is gone: also
// of a claim that names no Sandbox any more, as agent-sandbox leaves one whose Sandbox
// was taken from it.
func TestGone(t *testing.T) {
	t.Parallel()
	was := record{sandbox: "sandbox-1", incarnation: "pod-1"}
	for name, c := range map[string]struct {
		status, sandbox, pod string // the name in the claim's status, and UIDs; "" for none
		gone                 bool
	}{
		"all there":                 {"box", "sandbox-1", "pod-1", false},
		"another Pod":               {"box", "sandbox-1", "pod-2", true},
		"no Pod":                    {"box", "sandbox-1", "", true},
		"another Sandbox":           {"box", "sandbox-2", "pod-2", true},
		"no Sandbox":                {"box", "", "", true},
		"unnamed, and there":        {"", "sandbox-1", "pod-1", false},
		"unnamed, and another":      {"", "sandbox-2", "pod-2", true},
		"unnamed, and none at all":  {"", "", "", true},
		"unnamed, and its Pod gone": {"", "sandbox-1", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claim := &extensionsv1beta1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim", Namespace: "ns", UID: "claim-1"}}
			claim.Status.SandboxStatus.Name = c.status
			d := &Driver{ext: extfake.NewSimpleClientset(claim), sandboxes: sandboxfake.NewSimpleClientset(), kube: kubefake.NewClientset()}
			if c.sandbox != "" {
				box := &agentsv1beta1.Sandbox{}
				box.Name, box.Namespace, box.UID = "box", "ns", types.UID(c.sandbox)
				_, err := d.sandboxes.AgentsV1beta1().Sandboxes("ns").Create(t.Context(), box, metav1.CreateOptions{})
				must(t, err)
			}
			if c.pod != "" {
				pod := &corev1.Pod{}
				pod.Name, pod.Namespace, pod.UID = "box", "ns", types.UID(c.pod)
				_, err := d.kube.CoreV1().Pods("ns").Create(t.Context(), pod, metav1.CreateOptions{})
				must(t, err)
			}
			if gone, err := d.gone(t.Context(), claim, was); err != nil || gone != c.gone {
				t.Errorf("gone %t, %v", gone, err)
			}
		})
	}
}
