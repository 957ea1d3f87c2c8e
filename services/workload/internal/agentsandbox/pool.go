package agentsandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	agentsv1beta1 "sigs.k8s.io/agent-sandbox/api/v1beta1"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
	"github.com/holdfast-io/holdfast/services/workload/internal/podtemplate"
)

// poolMemory is the generation of each template as it was applied: another means that
// somebody changed it.
type poolMemory struct {
	mu      sync.Mutex
	applied map[types.NamespacedName]int64
}

func (m *poolMemory) get(key types.NamespacedName) (int64, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g, ok := m.applied[key]
	return g, ok
}

func (m *poolMemory) set(key types.NamespacedName, generation int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.applied == nil {
		m.applied = map[types.NamespacedName]int64{}
	}
	m.applied[key] = generation
}

func (m *poolMemory) drop(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.applied, key)
}

// EnsurePool applies the template and the pool of a runtime's revision, and drains those
// of its other revisions.
func (d *Driver) EnsurePool(ctx context.Context, spec driver.RuntimeSpec, size int) error {
	if err := spec.Validate(); err != nil {
		return err
	}
	if size < 0 || size > 1<<20 {
		return fmt.Errorf("%w: runtime %s: pool of %d", driver.ErrInvalid, spec.Name, size)
	}
	if d.ctx.Err() != nil {
		return driver.ErrClosed
	}
	ns, err := d.cfg.namespace(tenantOf(spec.Name))
	if err != nil {
		return err
	}
	key := types.NamespacedName{Namespace: ns, Name: templateName(spec.Name, spec.Revision)}
	if size > 0 {
		if err := d.applyTemplate(ctx, spec, key, false); err != nil {
			return err
		}
		if err := d.applyPool(ctx, key, spec, int32(size)); err != nil {
			return err
		}
	}
	return d.drain(ctx, spec, key, size == 0)
}

// drain empties the pools of a runtime but one, or all, and removes those that no session
// pins, and templates whose pool is gone already.
func (d *Driver) drain(ctx context.Context, spec driver.RuntimeSpec, but types.NamespacedName, all bool) error {
	s := d.scopeOf(but.Namespace)
	theirs := func(o metav1.Object) bool {
		return o.GetNamespace() == but.Namespace && o.GetAnnotations()[annRuntime] == spec.Name && o.GetLabels()[LabelRuntime] != "" &&
			(all || o.GetName() != but.Name) && o.GetDeletionTimestamp() == nil
	}
	pinned := func(o metav1.Object) bool {
		return len(indexed[extensionsv1beta1.SandboxClaim](s.claims, byPool, keyOf(o).String())) > 0
	}
	of := func(o metav1.Object) driver.RuntimeSpec {
		old := spec
		old.Revision, _ = strconv.ParseUint(o.GetAnnotations()[annRevision], 10, 64) // 0 is nobody's
		return old
	}
	var errs []error
	for _, o := range s.pools.GetStore().List() {
		pool, ok := o.(*extensionsv1beta1.SandboxWarmPool)
		switch {
		case !ok || !theirs(pool):
		case pinned(pool):
			errs = append(errs, d.applyPool(ctx, keyOf(pool), of(pool), 0))
		default:
			errs = append(errs, d.retire(ctx, keyOf(pool), of(pool)))
		}
	}
	for _, o := range s.templates.GetStore().List() {
		template, ok := o.(*extensionsv1beta1.SandboxTemplate)
		if ok && theirs(template) && !pinned(template) && found[extensionsv1beta1.SandboxWarmPool](s.pools, keyOf(template)) == nil &&
			time.Since(template.CreationTimestamp.Time) > poolFollows {
			errs = append(errs, d.retire(ctx, keyOf(template), of(template)))
		}
	}
	return errors.Join(errs...)
}

// poolFollows is when a template has its pool at the latest: one without is left of a
// removal that was cut off.
const poolFollows = time.Minute

// retire removes a pool that no session pins, as far as the informers show, and its
// template. The template's network policy goes with it, also from under a Sandbox that was
// just adopted: so no more are adopted first, and then the API server says who was.
func (d *Driver) retire(ctx context.Context, key types.NamespacedName, spec driver.RuntimeSpec) error {
	if err := d.deletePool(ctx, key); err != nil {
		return err
	}
	claims, err := d.ext.ExtensionsV1beta1().SandboxClaims(key.Namespace).List(ctx, metav1.ListOptions{LabelSelector: LabelManaged + "=true"})
	if err != nil {
		return fmt.Errorf("claims of pool %s: %w", key, err)
	}
	for i := range claims.Items {
		if claims.Items[i].Spec.WarmPoolRef.Name == key.Name {
			return d.createPool(ctx, key, nobody, spec)
		}
	}
	return d.removeTemplate(ctx, key)
}

// removePool deletes a pool, then its template: a claim that names the pool meanwhile
// finds neither, and has both made again.
func (d *Driver) removePool(ctx context.Context, key types.NamespacedName) error {
	if err := d.deletePool(ctx, key); err != nil {
		return err
	}
	return d.removeTemplate(ctx, key)
}

func (d *Driver) deletePool(ctx context.Context, key types.NamespacedName) error {
	err := d.ext.ExtensionsV1beta1().SandboxWarmPools(key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete pool %s: %w", key, err)
	}
	return nil
}

func (d *Driver) removeTemplate(ctx context.Context, key types.NamespacedName) error {
	d.pools.drop(key)
	err := d.ext.ExtensionsV1beta1().SandboxTemplates(key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete template %s: %w", key, err)
	}
	return nil
}

// removeOwnPool deletes the pool and the template that a claim had for itself, if any.
func (d *Driver) removeOwnPool(ctx context.Context, claim types.NamespacedName) error {
	s := d.scopeOf(claim.Namespace)
	if found[extensionsv1beta1.SandboxWarmPool](s.pools, claim) == nil && found[extensionsv1beta1.SandboxTemplate](s.templates, claim) == nil {
		return nil
	}
	return d.removePool(ctx, claim)
}

func runtimeLabels(runtime string) map[string]string {
	return map[string]string{LabelManaged: "true", LabelRuntime: labelled(runtime)}
}

// poolFor makes sure of the pool that c's claim names: its runtime's, or where the session
// has a volume already one of its own, which is always empty.
func (d *Driver) poolFor(ctx context.Context, c driver.Claim, claim types.NamespacedName, hadVolume bool) (string, error) {
	if hadVolume {
		volume, err := d.leftVolume(ctx, claim.Namespace, c.Key())
		if err != nil {
			return "", err
		}
		if volume != nil {
			return claim.Name, d.applyOwnPool(ctx, c, claim, volume.Name)
		}
	}
	key := types.NamespacedName{Namespace: claim.Namespace, Name: templateName(c.Runtime.Name, c.Runtime.Revision)}
	return key.Name, d.applyShared(ctx, c.Runtime, key, false)
}

// applyShared makes sure that a runtime's template and pool are there; how large the pool
// is, is EnsurePool's to say.
func (d *Driver) applyShared(ctx context.Context, spec driver.RuntimeSpec, key types.NamespacedName, again bool) error {
	if err := d.applyTemplate(ctx, spec, key, again); err != nil {
		return err
	}
	if !again && found[extensionsv1beta1.SandboxWarmPool](d.scopeOf(key.Namespace).pools, key) != nil {
		return nil
	}
	return d.createPool(ctx, key, nobody, spec)
}

// applyOwnPool makes the template and the pool of one claim, which name a volume.
func (d *Driver) applyOwnPool(ctx context.Context, c driver.Claim, key types.NamespacedName, volume string) error {
	b, err := d.blueprint(c.Runtime)
	if err != nil {
		return err
	}
	b.Spec.VolumeClaimTemplates = slices.DeleteFunc(b.Spec.VolumeClaimTemplates, func(t agentsv1beta1.PersistentVolumeClaimTemplate) bool {
		return t.Name == podtemplate.WorkspaceVolume
	})
	b.Spec.PodTemplate.Spec.Volumes = append(b.Spec.PodTemplate.Spec.Volumes, corev1.Volume{
		Name: podtemplate.WorkspaceVolume, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: volume},
		},
	})
	if err := d.putTemplate(ctx, key, c.Key(), c.Runtime, b.Spec, true); err != nil {
		return err
	}
	return d.createPool(ctx, key, c.Key(), c.Runtime)
}

// mend makes template and pool again that somebody removed. agent-sandbox looks again at
// once where a pool is new, but only after a minute where a template is, so the claim is
// touched.
func (d *Driver) mend(ctx context.Context, c driver.Claim, s sight) error {
	pool := types.NamespacedName{Namespace: s.claim.Namespace, Name: s.claim.Spec.WarmPoolRef.Name}
	d.cfg.Log.Warn("the template or pool of a claim is missing, made again", "claim", s.claim.Name, "pool", pool.Name)
	if pool.Name == s.claim.Name {
		volume, err := d.leftVolume(ctx, pool.Namespace, c.Key())
		if err != nil {
			return err
		}
		if volume == nil {
			return fmt.Errorf("claim %s: %w", s.claim.Name, driver.ErrWorkspaceGone)
		}
		if err := d.applyOwnPool(ctx, c, pool, volume.Name); err != nil {
			return err
		}
	} else if err := d.applyShared(ctx, c.Runtime, pool, true); err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": s.claim.UID, "annotations": map[string]string{annMended: s.claim.ResourceVersion},
	}})
	if err != nil {
		return err
	}
	_, err = d.ext.ExtensionsV1beta1().SandboxClaims(pool.Namespace).Patch(ctx, s.claim.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: FieldManager})
	return err
}

// blueprint is what a runtime's sandboxes are made of, with our label on each Pod: by it
// they are watched.
func (d *Driver) blueprint(spec driver.RuntimeSpec) (podtemplate.Blueprint, error) {
	b, err := podtemplate.Build(spec, d.cfg.Template)
	if err != nil {
		return podtemplate.Blueprint{}, fmt.Errorf("runtime %s, revision %d: %w", spec.Name, spec.Revision, err)
	}
	labels := map[string]string{LabelManaged: "true", LabelRuntime: labelled(spec.Name)}
	maps.Copy(labels, b.Spec.PodTemplate.ObjectMeta.Labels)
	b.Spec.PodTemplate.ObjectMeta.Labels = labels
	return b, nil
}

// applyTemplate applies a runtime's template unless it stands, as the informer shows it;
// again has it applied in any case.
func (d *Driver) applyTemplate(ctx context.Context, spec driver.RuntimeSpec, key types.NamespacedName, again bool) error {
	b, err := d.blueprint(spec)
	if err != nil {
		return err
	}
	return d.putTemplate(ctx, key, nobody, spec, b.Spec, again)
}

func (d *Driver) putTemplate(
	ctx context.Context, key types.NamespacedName, whose driver.SessionKey, spec driver.RuntimeSpec,
	template extensionsv1beta1.SandboxTemplateSpec, again bool,
) error {
	raw, err := json.Marshal(template)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(raw)
	meta := ourMeta(key, whose, spec)
	meta.Annotations[annBlueprint] = hex.EncodeToString(sum[:])
	if !again && d.stands(key, spec.Name, meta.Annotations[annBlueprint]) {
		return nil
	}
	body, err := json.Marshal(&extensionsv1beta1.SandboxTemplate{
		TypeMeta: metav1.TypeMeta{APIVersion: extensionsv1beta1.GroupVersion.String(), Kind: "SandboxTemplate"}, ObjectMeta: meta, Spec: template,
	})
	if err != nil {
		return err
	}
	applied, err := d.ext.ExtensionsV1beta1().SandboxTemplates(key.Namespace).Patch(ctx, key.Name, types.ApplyPatchType, body, apply())
	if err != nil {
		return fmt.Errorf("template %s: %w", key, refusedCall(err))
	}
	d.pools.set(key, applied.Generation)
	return nil
}

// stands says whether a template is as it was applied, or is there and another replica's
// to keep: during an upgrade replicas of two versions want it in two forms, and each change
// of it has all that is warm made anew.
func (d *Driver) stands(key types.NamespacedName, runtime, blueprint string) bool {
	t := found[extensionsv1beta1.SandboxTemplate](d.scopeOf(key.Namespace).templates, key)
	if t == nil || t.DeletionTimestamp != nil {
		return false
	}
	if !d.Mine(runtime) {
		return true
	}
	generation, applied := d.pools.get(key)
	return applied && t.Annotations[annBlueprint] == blueprint && t.Generation <= generation
}

// applyPool makes a pool keep so many replicas.
func (d *Driver) applyPool(ctx context.Context, key types.NamespacedName, spec driver.RuntimeSpec, replicas int32) error {
	if p := found[extensionsv1beta1.SandboxWarmPool](d.scopeOf(key.Namespace).pools, key); p != nil && p.DeletionTimestamp == nil &&
		p.Spec.Replicas != nil && *p.Spec.Replicas == replicas {
		return nil
	}
	body, err := json.Marshal(newPool(key, nobody, spec, replicas))
	if err != nil {
		return err
	}
	_, err = d.ext.ExtensionsV1beta1().SandboxWarmPools(key.Namespace).Patch(ctx, key.Name, types.ApplyPatchType, body, apply())
	if err != nil {
		return fmt.Errorf("pool %s: %w", key, refusedCall(err))
	}
	return nil
}

// createPool makes an empty pool where there is none.
func (d *Driver) createPool(ctx context.Context, key types.NamespacedName, whose driver.SessionKey, spec driver.RuntimeSpec) error {
	_, err := d.ext.ExtensionsV1beta1().SandboxWarmPools(key.Namespace).Create(ctx, newPool(key, whose, spec, 0),
		metav1.CreateOptions{FieldManager: FieldManager})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("pool %s: %w", key, refusedCall(err))
	}
	return nil
}

// newPool is a pool as it is applied. What is warm of an older form of its template, as an
// upgrade of Holdfast leaves it, is replaced.
func newPool(key types.NamespacedName, whose driver.SessionKey, spec driver.RuntimeSpec, replicas int32) *extensionsv1beta1.SandboxWarmPool {
	return &extensionsv1beta1.SandboxWarmPool{
		TypeMeta:   metav1.TypeMeta{APIVersion: extensionsv1beta1.GroupVersion.String(), Kind: extensionsv1beta1.SandboxWarmPoolKind},
		ObjectMeta: ourMeta(key, whose, spec),
		Spec: extensionsv1beta1.SandboxWarmPoolSpec{
			Replicas: &replicas, TemplateRef: extensionsv1beta1.SandboxTemplateRef{Name: key.Name},
			UpdateStrategy: &extensionsv1beta1.SandboxWarmPoolUpdateStrategy{Type: extensionsv1beta1.RecreateSandboxWarmPoolUpdateStrategyType},
		},
	}
}

// nobody is whose the templates and pools of runtimes are.
var nobody driver.SessionKey

// ourMeta is of a template or pool of a runtime, or of a session that has its own.
func ourMeta(key types.NamespacedName, whose driver.SessionKey, spec driver.RuntimeSpec) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{
		Name: key.Name, Namespace: key.Namespace, Labels: runtimeLabels(spec.Name),
		Annotations: map[string]string{annRuntime: spec.Name, annRevision: strconv.FormatUint(spec.Revision, 10)},
	}
	if whose != nobody {
		meta.Labels, meta.Annotations[annTenant], meta.Annotations[annSession] = sessionLabels(whose), whose.Tenant, whose.Session
	}
	return meta
}

// apply makes us the one who says what a field is.
func apply() metav1.PatchOptions {
	force := true
	return metav1.PatchOptions{FieldManager: FieldManager, Force: &force}
}
