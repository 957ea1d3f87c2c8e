package agentsandbox

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// Kept lists claims, and the pools, templates and volumes that belong to none: those of
// runtimes, and what sessions left. What isn't of our making isn't listed, whatever its
// labels and its name.
func (d *Driver) Kept(ctx context.Context) ([]driver.Kept, error) {
	found, err := d.List(ctx)
	if err != nil {
		return nil, err
	}
	var kept []driver.Kept
	for _, f := range found {
		key, err := d.keyFor(f.Ref)
		if err != nil {
			return nil, err
		}
		claim := d.sight(key).claim
		if claim == nil {
			continue // it went meanwhile
		}
		k := keptOf(driver.KindSandbox, claim)
		k.Ref, k.SandboxUID, k.Intent = f.Ref, f.SandboxUID, f.Intent
		kept = append(kept, k)
	}
	for ns, s := range d.scopes {
		kept = append(kept, d.keptPools(s)...)
		volumes, err := d.keptVolumes(ctx, ns)
		if err != nil {
			return nil, err
		}
		kept = append(kept, volumes...)
	}
	slices.SortFunc(kept, driver.Kept.Compare)
	return kept, nil
}

// keptOf is what every object says of itself.
func keptOf(kind driver.Kind, o metav1.Object) driver.Kept {
	a := o.GetAnnotations()
	k := driver.Kept{
		Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName(), UID: string(o.GetUID()),
		Ref:   driver.Ref{Tenant: a[annTenant], Session: a[annSession]},
		Epoch: a[annEpoch], Runtime: a[annRuntime], Since: o.GetCreationTimestamp().Time,
	}
	k.Revision, _ = strconv.ParseUint(a[annRevision], 10, 64) // 0 is no revision, and known to nobody
	return k
}

// keptPools are the pools and templates of a scope, but those that a claim has for itself.
func (d *Driver) keptPools(s *scope) []driver.Kept {
	var kept []driver.Kept
	add := func(kind driver.Kind, o any) {
		m, ok := o.(metav1.Object)
		if !ok || m.GetDeletionTimestamp() != nil || !madeByUs(m) || found[extensionsv1beta1.SandboxClaim](s.claims, keyOf(m)) != nil {
			return
		}
		k := keptOf(kind, m)
		if k.Tenant == "" {
			k.Tenant = tenantOf(k.Runtime)
		}
		if d.cfg.Namespace(k.Tenant) == k.Namespace {
			kept = append(kept, k)
		}
	}
	for _, o := range s.pools.GetStore().List() {
		add(driver.KindPool, o)
	}
	for _, o := range s.templates.GetStore().List() {
		add(driver.KindTemplate, o)
	}
	return kept
}

// keptVolumes are the volumes of sessions that have no claim.
func (d *Driver) keptVolumes(ctx context.Context, namespace string) ([]driver.Kept, error) {
	list, err := d.kube.CoreV1().PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: LabelManaged + "=true," + LabelSession,
	})
	if err != nil {
		return nil, fmt.Errorf("volumes: %w", err)
	}
	var kept []driver.Kept
	for i := range list.Items {
		v := &list.Items[i]
		k := keptOf(driver.KindVolume, v)
		if v.DeletionTimestamp == nil && madeByUs(v) && k.Validate() == nil && d.cfg.Namespace(k.Tenant) == v.Namespace &&
			len(d.claimsOf(v.Namespace, k.Key())) == 0 {
			kept = append(kept, k)
		}
	}
	return kept, nil
}

// Discard deletes one object by its UID, and doesn't wait for what it owns.
func (d *Driver) Discard(ctx context.Context, k driver.Kept) error {
	uid := types.UID(k.UID)
	foreground := metav1.DeletePropagationForeground
	only := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &foreground}
	ext := d.ext.ExtensionsV1beta1()
	key := types.NamespacedName{Namespace: k.Namespace, Name: k.Name}
	var err error
	switch k.Kind {
	case driver.KindSandbox:
		// That it ends is no loss to be told of.
		d.memos.change(uid, func(m *memo) { m.releasing = true })
		if err = ext.SandboxClaims(k.Namespace).Delete(ctx, k.Name, only); err == nil {
			return d.removeOwnPool(ctx, key)
		}
		d.memos.change(uid, func(m *memo) { m.releasing = false })
	case driver.KindPool:
		d.pools.drop(key)
		err = ext.SandboxWarmPools(k.Namespace).Delete(ctx, k.Name, only)
	case driver.KindTemplate:
		d.pools.drop(key)
		err = ext.SandboxTemplates(k.Namespace).Delete(ctx, k.Name, only)
	case driver.KindVolume:
		err = d.kube.CoreV1().PersistentVolumeClaims(k.Namespace).Delete(ctx, k.Name, only)
	default:
		return fmt.Errorf("%w: nothing is a %q", driver.ErrInvalid, k.Kind)
	}
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // the name is another's by now
		return fmt.Errorf("%s %s/%s: %w", k.Kind, k.Namespace, k.Name, driver.ErrNotFound)
	}
	return fmt.Errorf("%s %s/%s: %w", k.Kind, k.Namespace, k.Name, err)
}
