package chart_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/services/e2e/harness"
	"github.com/holdfast-io/holdfast/services/internal/kubetest"
)

// Namespaces differ in what they admit and close, so each tenant's is tried, or those that
// are named.
func TestDoctorProbesEachTenant(t *testing.T) {
	c := apiServer(t)
	sandboxd := harness.Sandboxd(t)
	const name = "holdfast-placed:test"
	c.Image(name, kubetest.Image{Argv: func(run kubetest.Container) ([]string, error) { return onlyHere(sandboxd, run) }})
	agents := c.listener(t)
	full := c.Namespace(t)
	p := install(t, func(file string) string {
		lines := strings.Split(file, "\n")
		for i, line := range lines {
			switch key, _, _ := strings.Cut(line, ":"); key {
			case "agentsURL", "apiURL":
				lines[i] = key + ": http://" + agents
			case "image":
				lines[i] = "image: " + name
			}
		}
		return strings.Join(lines, "\n")
	}, ",tenants[1].name=full,tenants[1].namespace="+full)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "none", Namespace: full}}
	quota.Spec.Hard = corev1.ResourceList{"count/sandboxclaims.extensions.agents.x-k8s.io": resource.MustParse("0")}
	p.ensure(t, quota)
	p.Eventually(t, "the quota is in force", func(ctx context.Context) (bool, error) {
		err := p.Get(ctx, client.ObjectKeyFromObject(quota), quota)
		return len(quota.Status.Used) == 1, err
	})

	found, _ := p.examine(t, p.access, "--probe")
	wants(t, found, "kube.network.default", "broken", "ill: ", "the gateway's API")
	wants(t, found, "kube.probe.default", "broken", "full: ", "exceeded quota")
	wants(t, found, "kube.verified", "warning", "nothing is proven")

	found, _ = p.examine(t, p.access, "--probe", "--tenant", "ill")
	wants(t, found, "kube.network.default", "broken", "the gateway's API")
	wants(t, found, "kube.verified", "warning", "proven for ill alone: nothing")
	if slices.ContainsFunc(found, func(f finding) bool { return f.Name == "kube.probe.default" }) {
		t.Error("a tenant that isn't named is tried")
	}
	found, _ = p.examine(t, p.access, "--probe", "--tenant", "nobody")
	wants(t, found, "kube.probe", "broken", `no tenant "nobody"`, "full, ill")
}
