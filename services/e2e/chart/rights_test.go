package chart_test

import (
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-io/holdfast/services/internal/kuberights"
)

// What the API server says each service account may do, everything that it serves asked
// about: the workload service exactly the list, in its tenants' namespaces and not in
// others', and the other services and sandboxes nothing.
func TestRights(t *testing.T) {
	c := apiServer(t)
	const own, tenant, foreign = "holdfast-rights", "rights-tenant", "rights-foreign"
	c.ensureNamespace(t, own, nil)
	c.ensureNamespace(t, foreign, nil)
	objects := renderIn(t, own, "--set", "tenants[0].name=rights,tenants[0].namespace="+tenant+",tenants[0].create=true")
	for _, o := range objects {
		c.apply(t, o)
	}
	accounts := 0
	for _, o := range objects {
		account, ok := o.(*corev1.ServiceAccount)
		if !ok {
			continue
		}
		accounts++
		wanted := map[string][]kuberights.Right{}
		if strings.HasSuffix(account.Name, "-workload") {
			wanted = map[string][]kuberights.Right{
				"":     append(kuberights.Rights(kuberights.Cluster), kuberights.Rights(kuberights.Nodes)...),
				own:    kuberights.Rights(kuberights.Installation),
				tenant: kuberights.Rights(kuberights.Tenant),
			}
		}
		as := c.as(t, account.Namespace, account.Name)
		for _, namespace := range []string{"", own, tenant, foreign, "kube-system"} {
			// What a ClusterRole gives holds in every namespace, too.
			allowed := slices.Concat(wanted[namespace], wanted[""])
			for _, right := range everything() {
				got := may(t, as, namespace, right)
				if want := slices.Contains(allowed, right); got != want {
					t.Errorf("%s in %q: may %s: %v, and should be %v", account.Name, namespace, right, got, want)
				}
			}
		}
	}
	if accounts < 8 {
		t.Errorf("only %d service accounts were asked about", accounts)
	}
}

// as speaks as a service account, by a token of its own.
func (c *cluster) as(t *testing.T, namespace, name string) *kubernetes.Clientset {
	t.Helper()
	as, err := kubernetes.NewForConfig(c.ServiceAccount(t, namespace, name))
	if err != nil {
		t.Fatal(err)
	}
	return as
}

// everything is every verb on all that could matter: what the list names, what it must
// never name, and the rest of what an installation is made of.
func everything() []kuberights.Right {
	verbs := []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
	all := kuberights.Never()
	for group, resources := range map[string][]string{
		"":                           {"pods", "pods/status", "pods/log", "events", "secrets", "configmaps", "services", "persistentvolumeclaims", "resourcequotas", "serviceaccounts", "namespaces", "nodes"},
		"apps":                       {"deployments", "statefulsets"},
		"agents.x-k8s.io":            {"sandboxes", "sandboxes/status"},
		"extensions.agents.x-k8s.io": {"sandboxclaims", "sandboxclaims/status", "sandboxtemplates", "sandboxwarmpools"},
		"coordination.k8s.io":        {"leases"},
		"networking.k8s.io":          {"networkpolicies"},
		"rbac.authorization.k8s.io":  {"roles", "rolebindings", "clusterroles", "clusterrolebindings"},
		"authentication.k8s.io":      {"tokenreviews"},
		"node.k8s.io":                {"runtimeclasses"},
	} {
		for _, resource := range resources {
			for _, verb := range verbs {
				all = append(all, kuberights.Right{Group: group, Resource: resource, Verb: verb})
			}
		}
	}
	return all
}

func may(t *testing.T, as *kubernetes.Clientset, namespace string, r kuberights.Right) bool {
	t.Helper()
	resource, sub, _ := strings.Cut(r.Resource, "/")
	review, err := as.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: r.Verb, Group: r.Group, Resource: resource, Subresource: sub,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed
}
