package agentsandbox

import (
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	sandboxfake "sigs.k8s.io/agent-sandbox/clients/k8s/clientset/versioned/fake"
	extfake "sigs.k8s.io/agent-sandbox/clients/k8s/extensions/clientset/versioned/fake"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// A template goes with its pool, but not from under a claim that the informers don't show
// yet: the Sandbox's network policy would go along. What a cut-off removal left goes later.
func TestDrain(t *testing.T) {
	t.Parallel()
	ours := driver.RuntimeSpec{Name: "default.coder", Revision: 2}
	old := driver.RuntimeSpec{Name: "default.coder", Revision: 1}
	for name, c := range map[string]struct {
		pool, claim    bool // what the API server has, the claim hidden from the informers
		age            time.Duration
		poolLeft, left bool
	}{
		"nobody pins it":                   {pool: true, age: time.Hour},
		"a claim that isn't shown pins it": {pool: true, claim: true, age: time.Hour, poolLeft: true, left: true},
		"its pool was removed":             {age: time.Hour},
		"its pool is about to be made":     {age: time.Second, left: true},
		"nobody pins it, however young":    {pool: true, age: time.Second},
		"a claim pins it, however young":   {pool: true, claim: true, age: time.Second, poolLeft: true, left: true},
		"a claim has lost its pool":        {claim: true, age: time.Hour, poolLeft: true, left: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := types.NamespacedName{Namespace: "ns", Name: templateName(old.Name, old.Revision)}
			ext := extfake.NewSimpleClientset()
			d := &Driver{ext: ext, sandboxes: sandboxfake.NewSimpleClientset(), kube: kubefake.NewClientset(), scopes: map[string]*scope{}}
			s, err := d.newScope("ns")
			must(t, err)
			d.scopes["ns"] = s
			template := &extensionsv1beta1.SandboxTemplate{ObjectMeta: ourMeta(key, nobody, old)}
			template.CreationTimestamp = metav1.NewTime(time.Now().Add(-c.age))
			must(t, s.templates.GetStore().Add(template))
			_, err = ext.ExtensionsV1beta1().SandboxTemplates("ns").Create(t.Context(), template, metav1.CreateOptions{})
			must(t, err)
			if c.pool {
				pool := newPool(key, nobody, old, 3)
				must(t, s.pools.GetStore().Add(pool))
				_, err := ext.ExtensionsV1beta1().SandboxWarmPools("ns").Create(t.Context(), pool, metav1.CreateOptions{})
				must(t, err)
			}
			if c.claim {
				ref := driver.Ref{Tenant: "default", Session: "s-1", Generation: 1}
				at := types.NamespacedName{Namespace: "ns", Name: claimName(ref)}
				claim := newClaim(driver.Claim{Ref: ref, Intent: 1, Epoch: "e", Runtime: old}, at, key.Name)
				_, err := ext.ExtensionsV1beta1().SandboxClaims("ns").Create(t.Context(), claim, metav1.CreateOptions{})
				must(t, err)
			}
			must(t, d.drain(t.Context(), ours, types.NamespacedName{Namespace: "ns", Name: templateName(ours.Name, ours.Revision)}, false))
			_, err = ext.ExtensionsV1beta1().SandboxTemplates("ns").Get(t.Context(), key.Name, metav1.GetOptions{})
			if left := !apierrors.IsNotFound(err); left != c.left {
				t.Errorf("template left: %t", left)
			}
			pool, err := ext.ExtensionsV1beta1().SandboxWarmPools("ns").Get(t.Context(), key.Name, metav1.GetOptions{})
			if left := !apierrors.IsNotFound(err); left != c.poolLeft {
				t.Errorf("pool left: %t", left)
			} else if left && *pool.Spec.Replicas != 0 {
				t.Errorf("%d replicas are kept", *pool.Spec.Replicas)
			}
		})
	}
}
