package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/services/internal/kuberights"
)

// rights asks the API server about each right that the chart gives, and about those that
// nobody of Holdfast is to have.
func (k *kube) rights(ctx context.Context) []Finding {
	namespaces := map[string][]kuberights.Right{
		"":               kuberights.Rights(kuberights.Cluster),
		k.file.Namespace: kuberights.Rights(kuberights.Installation),
	}
	if k.file.WatchNodes {
		namespaces[""] = append(namespaces[""], kuberights.Rights(kuberights.Nodes)...)
	}
	for _, namespace := range k.file.Tenants {
		namespaces[namespace] = kuberights.Rights(kuberights.Tenant)
	}
	var missing, excess []string
	for _, namespace := range slices.Sorted(maps.Keys(namespaces)) {
		for _, r := range namespaces[namespace] {
			may, err := r.May(ctx, k.core.AuthorizationV1(), namespace)
			if err != nil {
				return []Finding{k.unanswered("kube.rights", err)}
			}
			if !may {
				missing = append(missing, r.In(namespace))
			}
		}
		for _, r := range kuberights.Never() {
			may, err := r.May(ctx, k.core.AuthorizationV1(), namespace)
			if err != nil {
				return []Finding{k.unanswered("kube.rights", err)}
			}
			if may {
				excess = append(excess, r.In(namespace))
			}
		}
	}
	found := []Finding{fine("kube.rights", "all that the driver needs, in %d tenants' namespaces", len(k.file.Tenants))}
	if len(missing) > 0 {
		found[0] = broken("kube.rights", "it may not "+some(missing), "run 'helm upgrade', which makes the roles; if this isn't the workload service's account, ask with --as system:serviceaccount:NAMESPACE:NAME")
	}
	if len(excess) > 0 {
		return append(found, warning("kube.excess", "it may "+some(excess), "take it away: the workload service needs none of it. Where an administrator is asking, use --as system:serviceaccount:NAMESPACE:NAME"))
	}
	return append(found, fine("kube.excess", "no Secret, no exec, no Pod of its own making"))
}

// some names the first few of many.
func some(all []string) string {
	const most = 4
	if len(all) <= most {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
}

// classes looks for the runtime classes that runtimes may name.
func (k *kube) classes(ctx context.Context) Finding {
	const name = "kube.runtimeclasses"
	wanted := slices.Sorted(maps.Keys(k.file.RuntimeClasses))
	if len(wanted) == 0 {
		return fine(name, "runtimes name none: all sandboxes are of the cluster's own")
	}
	for _, class := range wanted {
		_, err := k.core.NodeV1().RuntimeClasses().Get(ctx, class, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return broken(name, class+" isn't there", "install it on the nodes and make the RuntimeClass, or take it out of sandboxes.runtimeClasses")
		case apierrors.IsForbidden(err):
			return warning(name, "not looked at: the workload service may not", "ask as an administrator (KUBECONFIG), or use --probe, which starts a sandbox of each")
		case err != nil:
			return k.unanswered(name, err)
		}
	}
	return fine(name, "%s", strings.Join(wanted, ", "))
}

// The controller's Deployment, as agent-sandbox's own manifests name it.
const (
	controllerNamespace = "agent-sandbox-system"
	controllerName      = "agent-sandbox-controller"
	// controllerWithin is how long a controller that works may take to look at a change.
	controllerWithin = 30 * time.Second
)

// controller looks for a controller that works: by its Deployment where that may be seen,
// else by whether pools are looked after.
func (k *kube) controller(ctx context.Context) Finding {
	const name, wayOut = "kube.controller", "look at deployment " + controllerName + " in " + controllerNamespace + ", and at its log"
	d, err := k.core.AppsV1().Deployments(controllerNamespace).Get(ctx, controllerName, metav1.GetOptions{})
	if err == nil {
		if d.Status.AvailableReplicas == 0 {
			return broken(name, "none of "+controllerName+" is available", wayOut)
		}
		if !slices.ContainsFunc(d.Spec.Template.Spec.Containers[0].Args, func(a string) bool { return strings.HasPrefix(a, "--extensions") }) {
			return broken(name, controllerName+" runs without --extensions: no claim is ever bound", "apply agent-sandbox's extensions manifests, too")
		}
		return fine(name, "%d of %s available", d.Status.AvailableReplicas, controllerName)
	}
	if !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
		return k.unanswered(name, err)
	}
	pools := 0
	for _, namespace := range k.file.Tenants {
		list, err := k.sandboxes.ExtensionsV1beta1().SandboxWarmPools(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return warning(name, "not looked at: "+err.Error(), "see kube.rights and kube.agent-sandbox above")
		}
		for _, p := range list.Items {
			pools++
			if p.Status.ObservedGeneration < p.Generation && time.Since(p.CreationTimestamp.Time) > controllerWithin {
				return broken(name, fmt.Sprintf("nobody has looked at the pool %s/%s as it is now", p.Namespace, p.Name), wayOut+": without its extensions' roles it sees no pool")
			}
		}
	}
	if pools == 0 {
		return warning(name, "nothing shows whether one runs: there are no pools", "use --probe, which makes a claim, or ask as an administrator (KUBECONFIG)")
	}
	return fine(name, "it has looked at each of %d pools", pools)
}

// nearlyUsed is the share of a quota from which on it is worth a word.
const nearlyUsed = 0.9

// quota looks at what is left to a tenant's sandboxes.
func (k *kube) quota(ctx context.Context, tenant string) Finding {
	namespace := k.file.Tenants[tenant]
	name := "kube.tenant." + tenant
	quotas, err := k.core.CoreV1().ResourceQuotas(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return broken(name, err.Error(), "see kube.rights above")
	}
	pods, err := k.core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return broken(name, err.Error(), "see kube.rights above")
	}
	var full []string
	for _, q := range quotas.Items {
		for resource, hard := range q.Status.Hard {
			used := q.Status.Used[resource]
			if used.AsApproximateFloat64() >= nearlyUsed*hard.AsApproximateFloat64() {
				full = append(full, fmt.Sprintf("%s: %s of %s", resource, used.String(), hard.String()))
			}
		}
	}
	if len(full) > 0 {
		slices.Sort(full)
		return warning(name, namespace+" has nearly used its quota: "+strings.Join(full, ", "), "raise the quota, or end sessions; until then claims fail with the cause quota-exceeded")
	}
	return fine(name, "%s, %d Pods, %d quotas", namespace, len(pods.Items), len(quotas.Items))
}
