package kuberights

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	agentsv1beta1 "sigs.k8s.io/agent-sandbox/api/v1beta1"
)

// BudgetName is the name of Budget in each tenant's namespace.
const BudgetName = "holdfast-sessions"

// unreachable is how many Pods would have to be there before one may be evicted: more than
// a cluster has. A budget by percent or by maxUnavailable asks a Pod's controller for its
// scale, which a Sandbox has none of.
const unreachable = 1_000_000

// Budget has the API server refuse every eviction of a session's Pod, with 429: a drain,
// which asks again, waits until the workload service has put the session away or given its
// sandbox up, which is no eviction. It is of no Pod that is still its pool's. The chart
// makes it (deploy/chart/templates/tenants.yaml); a test compares the two.
func Budget() policyv1.PodDisruptionBudgetSpec {
	atLeast := intstr.FromInt32(unreachable)
	return policyv1.PodDisruptionBudgetSpec{
		MinAvailable: &atLeast,
		Selector: &metav1.LabelSelector{
			MatchLabels: map[string]string{"holdfast.dev/managed": "true"},
			MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: agentsv1beta1.SandboxWarmPoolLabel, Operator: metav1.LabelSelectorOpDoesNotExist},
			},
		},
	}
}
