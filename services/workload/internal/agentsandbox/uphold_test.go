package agentsandbox

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver/drivertest"
)

// Somebody removes the template of a sandbox that runs, or that sleeps, and with it its
// network policy: both are made again.
func TestRemovedTemplateIsMadeAgain(t *testing.T) {
	t.Parallel()
	b := set(t)
	c := b.claim("s-1")
	drivertest.Start(t, b, c)
	name := templateName(c.Runtime.Name, c.Runtime.Revision)
	templates := b.ext.ExtensionsV1beta1().SandboxTemplates(b.ns)
	policies := func() int {
		list, err := b.kube.NetworkingV1().NetworkPolicies(b.ns).List(t.Context(), metav1.ListOptions{})
		must(t, err)
		return len(list.Items)
	}
	drivertest.Eventually(t, "a network policy", func() bool { return policies() == 1 })
	remove := func() {
		t.Helper()
		must(t, templates.Delete(t.Context(), name, metav1.DeleteOptions{}))
		drivertest.Eventually(t, "no network policy", func() bool { return policies() == 0 })
		drivertest.Eventually(t, "the informer shows it", func() bool {
			return len(b.scopes[b.ns].templates.GetStore().ListKeys()) == 0
		})
	}
	there := func() bool {
		_, err := templates.Get(t.Context(), name, metav1.GetOptions{})
		return !apierrors.IsNotFound(err) && policies() == 1
	}
	remove()
	must(t, b.Uphold(b.within(), c))
	drivertest.Eventually(t, "made again under one that runs", there)
	if at, err := b.Locate(t.Context(), c.Ref); err != nil {
		t.Errorf("located %+v, %v", at, err)
	}

	must(t, b.Suspend(b.within(), c.Ref, 6))
	remove()
	c.Intent = 7
	if _, err := b.Resume(b.within(), c); err != nil {
		t.Fatal(err)
	}
	drivertest.Eventually(t, "made again for one that wakes", there)

	other := c
	other.Ref = driver.Ref{Tenant: "default", Session: "s-nobody", Generation: 1}
	must(t, b.Uphold(b.within(), other)) // there is nothing to uphold
}
