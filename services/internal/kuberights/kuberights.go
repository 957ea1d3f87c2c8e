// Package kuberights is what the workload service may do on Kubernetes, and nobody else
// of Holdfast: the rules of the chart (deploy/chart/templates/rbac.yaml), which a test
// compares with these, and what `holdfast doctor --kube` asks the API server about.
//
// They are as few as the driver's calls: it reads no Secret, enters no Pod, makes no Pod
// itself, and has rights in the tenants' namespaces alone but for what is about no
// namespace (who a token is of, which node is cordoned) and about its own (which replica
// takes care of what). Beside them is the one thing that the cluster does for it in each tenant's
// namespace: it refuses to evict sessions.
package kuberights

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// Scope is where rules hold.
type Scope string

// The scopes.
const (
	// Tenant is each tenant's namespace, by a Role.
	Tenant Scope = "tenant"
	// Installation is the namespace of Holdfast's own services, by a Role.
	Installation Scope = "installation"
	// Cluster is the whole, by a ClusterRole.
	Cluster Scope = "cluster"
	// Nodes is the whole, too, by a ClusterRole that an installation may leave out: then
	// nothing is done before a node is drained.
	Nodes Scope = "nodes"
)

// rules is the table.
var rules = map[Scope][]rbacv1.PolicyRule{
	Cluster: {
		rule("authentication.k8s.io", []string{"tokenreviews"}, "create"),
	},
	Nodes: {
		rule("", []string{"nodes"}, "list", "watch"),
	},
	Installation: {
		rule("coordination.k8s.io", []string{"leases"}, "list", "create", "patch", "delete"),
	},
	Tenant: {
		rule("extensions.agents.x-k8s.io", []string{"sandboxclaims", "sandboxtemplates", "sandboxwarmpools"},
			"get", "list", "watch", "create", "patch", "delete"),
		rule("agents.x-k8s.io", []string{"sandboxes"}, "get", "list", "watch", "patch"),
		rule("", []string{"pods"}, "get", "list", "watch"),
		rule("", []string{"events", "resourcequotas"}, "list"),
		rule("", []string{"persistentvolumeclaims"}, "get", "list", "patch", "delete"),
		rule("", []string{"namespaces"}, "get"),
	},
}

func rule(group string, resources []string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
}

// Rules are those of a scope, as its Role has them.
func Rules(s Scope) []rbacv1.PolicyRule { return slices.Clone(rules[s]) }

// Right is one verb on one kind of object.
type Right struct{ Group, Resource, Verb string }

// Rights are the rules of a scope, one verb at a time.
func Rights(s Scope) []Right {
	var all []Right
	for _, r := range rules[s] {
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					all = append(all, Right{Group: group, Resource: resource, Verb: verb})
				}
			}
		}
	}
	return all
}

// Never are rights that the workload service must not have in any namespace: with one of
// them, whoever took it over could read what agents may not know, or enter a sandbox.
func Never() []Right {
	return []Right{
		{Resource: "secrets", Verb: "get"},
		{Resource: "secrets", Verb: "list"},
		{Resource: "secrets", Verb: "watch"},
		{Resource: "pods", Verb: "create"},
		{Resource: "pods", Verb: "delete"},
		{Resource: "pods/exec", Verb: "create"},
		{Resource: "pods/attach", Verb: "create"},
		{Resource: "pods/portforward", Verb: "create"},
		{Resource: "serviceaccounts/token", Verb: "create"},
		{Group: "agents.x-k8s.io", Resource: "sandboxes", Verb: "create"},
		{Group: "rbac.authorization.k8s.io", Resource: "roles", Verb: "create"},
		{Group: "rbac.authorization.k8s.io", Resource: "rolebindings", Verb: "create"},
		{Group: "networking.k8s.io", Resource: "networkpolicies", Verb: "delete"},
	}
}

// May asks the API server whether whoever asks has a right in a namespace; "" is the whole
// cluster.
func (r Right) May(ctx context.Context, c authorization.SelfSubjectAccessReviewsGetter, namespace string) (bool, error) {
	resource, sub, _ := strings.Cut(r.Resource, "/")
	review, err := c.SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: r.Verb, Group: r.Group, Resource: resource, Subresource: sub,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask for the right to %s: %w", r.In(namespace), err)
	}
	return review.Status.Allowed, nil
}

// In says the right with where it is to hold.
func (r Right) In(namespace string) string {
	if namespace == "" {
		return r.String() + " cluster-wide"
	}
	return r.String() + " in " + namespace
}

// String says it as `kubectl auth can-i` takes it.
func (r Right) String() string {
	if r.Group == "" {
		return r.Verb + " " + r.Resource
	}
	return r.Verb + " " + r.Resource + "." + r.Group
}
