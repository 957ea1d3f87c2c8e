package agentsandbox

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	agentsv1beta1 "sigs.k8s.io/agent-sandbox/api/v1beta1"
	extinformers "sigs.k8s.io/agent-sandbox/clients/k8s/extensions/informers/externalversions"
	sbinformers "sigs.k8s.io/agent-sandbox/clients/k8s/informers/externalversions"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// Indexes of the informers.
const (
	byOwner   = "owner"   // of sandboxes and Pods: the controller's UID
	bySession = "session" // of claims: see sessionIndex
	byPool    = "pool"    // of claims: namespace/name of the pool that it names
	byNode    = "node"    // of Pods
)

// scope is what is watched of one namespace, or of all of them.
type scope struct {
	claims, sandboxes, pods, pools, templates cache.SharedIndexInformer
	factories                                 []interface {
		Start(stop <-chan struct{})
		Shutdown()
	}
}

// newScope sets up informers: of Holdfast's own objects, and of all Sandboxes, which
// bear no label of ours.
func (d *Driver) newScope(namespace string) (*scope, error) {
	ours := func(o *metav1.ListOptions) { o.LabelSelector = LabelManaged + "=true" }
	ext := extinformers.NewSharedInformerFactoryWithOptions(d.ext, 0, extinformers.WithNamespace(namespace),
		extinformers.WithTweakListOptions(ours), extinformers.WithTransform(lean))
	core := sbinformers.NewSharedInformerFactoryWithOptions(d.sandboxes, 0, sbinformers.WithNamespace(namespace), sbinformers.WithTransform(lean))
	kube := informers.NewSharedInformerFactoryWithOptions(d.kube, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(ours), informers.WithTransform(lean))
	s := &scope{
		claims: ext.Extensions().V1beta1().SandboxClaims().Informer(), pools: ext.Extensions().V1beta1().SandboxWarmPools().Informer(),
		templates: ext.Extensions().V1beta1().SandboxTemplates().Informer(),
		sandboxes: core.Agents().V1beta1().Sandboxes().Informer(), pods: kube.Core().V1().Pods().Informer(),
	}
	s.factories = append(s.factories, ext, core, kube)
	for _, i := range []struct {
		informer cache.SharedIndexInformer
		indexers cache.Indexers
	}{
		{s.claims, cache.Indexers{bySession: sessionIndex, byPool: poolIndex}},
		{s.sandboxes, cache.Indexers{byOwner: ownerIndex}},
		{s.pods, cache.Indexers{byOwner: ownerIndex, byNode: nodeIndex}},
	} {
		if err := i.informer.AddIndexers(i.indexers); err != nil {
			return nil, fmt.Errorf("index: %w", err)
		}
		if _, err := i.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { d.changed(s, o) },
			UpdateFunc: func(_, o any) { d.changed(s, o) },
			DeleteFunc: func(o any) { d.changed(s, o) },
		}); err != nil {
			return nil, fmt.Errorf("watch: %w", err)
		}
	}
	if _, err := s.pods.AddEventHandler(d.greeting()); err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	return s, nil
}

// start begins to watch a scope, and waits until all that exists there is known.
func (d *Driver) start(ctx context.Context, s *scope) error {
	for _, f := range s.factories {
		f.Start(d.ctx.Done())
	}
	for what, i := range map[string]cache.SharedIndexInformer{
		"SandboxClaims": s.claims, "SandboxWarmPools": s.pools, "SandboxTemplates": s.templates, "Sandboxes": s.sandboxes, "Pods": s.pods,
	} {
		if err := d.synced(ctx, what, i); err != nil {
			return err
		}
	}
	return nil
}

// lean drops what nobody here reads: it is half of an object's memory. Of who wrote what
// only whether it was us is kept.
func lean(o any) (any, error) {
	if m, ok := o.(metav1.Object); ok {
		var kept []metav1.ManagedFieldsEntry
		if madeByUs(m) {
			kept = []metav1.ManagedFieldsEntry{{Manager: FieldManager}}
		}
		m.SetManagedFields(kept)
	}
	return o, nil
}

// madeByUs says whether we wrote an object: we write no claim that isn't ours already.
func madeByUs(o metav1.Object) bool {
	return slices.ContainsFunc(o.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool { return e.Manager == FieldManager })
}

func ownerIndex(o any) ([]string, error) {
	m, ok := o.(metav1.Object)
	if !ok {
		return nil, nil
	}
	if owner := metav1.GetControllerOf(m); owner != nil {
		return []string{string(owner.UID)}, nil
	}
	return nil, nil
}

func sessionIndex(o any) ([]string, error) {
	if m, ok := o.(metav1.Object); ok {
		if ref, ok := refOf(m); ok {
			return []string{sessionEntry(m.GetNamespace(), ref.Key())}, nil
		}
	}
	return nil, nil
}

func sessionEntry(namespace string, key driver.SessionKey) string {
	return namespace + "/" + key.Tenant + "/" + key.Session
}

func poolIndex(o any) ([]string, error) {
	if c, ok := o.(*extensionsv1beta1.SandboxClaim); ok {
		return []string{c.Namespace + "/" + c.Spec.WarmPoolRef.Name}, nil
	}
	return nil, nil
}

// scopeOf is the scope that a namespace is watched in.
func (d *Driver) scopeOf(namespace string) *scope {
	if s := d.scopes[namespace]; s != nil {
		return s
	}
	return d.scopes[metav1.NamespaceAll]
}

// found is an informer's object by its key; nil for none.
func found[T any](i cache.SharedIndexInformer, key types.NamespacedName) *T {
	o, ok, err := i.GetStore().GetByKey(key.String())
	if err != nil || !ok {
		return nil
	}
	typed, _ := o.(*T)
	return typed
}

// indexed are an informer's objects by an index.
func indexed[T any](i cache.SharedIndexInformer, index, value string) []*T {
	objects, err := i.GetIndexer().ByIndex(index, value)
	if err != nil {
		return nil // there is no such index: not so, all are made by newScope
	}
	typed := make([]*T, 0, len(objects))
	for _, o := range objects {
		if t, ok := o.(*T); ok {
			typed = append(typed, t)
		}
	}
	return typed
}

// sight is what the informers show of a claim.
func (d *Driver) sight(key types.NamespacedName) sight {
	s := d.scopeOf(key.Namespace)
	return d.sightOf(s, found[extensionsv1beta1.SandboxClaim](s.claims, key))
}

func (d *Driver) sightOf(s *scope, claim *extensionsv1beta1.SandboxClaim) sight {
	out := sight{claim: claim}
	if claim == nil {
		return out
	}
	for _, sb := range indexed[agentsv1beta1.Sandbox](s.sandboxes, byOwner, string(claim.UID)) {
		// While one is deleted, agent-sandbox may have bound another.
		if out.sandbox == nil || out.sandbox.DeletionTimestamp != nil || sb.Name == claim.Status.SandboxStatus.Name && sb.DeletionTimestamp == nil {
			out.sandbox = sb
		}
	}
	if out.sandbox != nil {
		out.pods = indexed[corev1.Pod](s.pods, byOwner, string(out.sandbox.UID))
		if len(out.pods) == 1 {
			out.node = d.nodeOf(out.pods[0])
		}
	}
	return out
}

// changed hears of every change: it wakes who waits for the claim behind it, and sees
// whether the claim is lost.
func (d *Driver) changed(s *scope, o any) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	key, ok := claimBehind(s, o)
	if !ok {
		return
	}
	d.notices.tell(key)
	seen := d.sight(key)
	if claim, ok := o.(*extensionsv1beta1.SandboxClaim); ok && (seen.claim == nil || seen.claim.UID != claim.UID) {
		d.deleted(claim)
	}
	d.judge(seen)
}

// claimBehind is the claim that an object belongs to.
func claimBehind(s *scope, o any) (types.NamespacedName, bool) {
	switch o := o.(type) {
	case *extensionsv1beta1.SandboxClaim:
		return keyOf(o), true
	case *agentsv1beta1.Sandbox:
		owner := metav1.GetControllerOf(o)
		if owner == nil || owner.Kind != "SandboxClaim" {
			return types.NamespacedName{}, false
		}
		return types.NamespacedName{Namespace: o.Namespace, Name: owner.Name}, true
	case *corev1.Pod:
		owner := metav1.GetControllerOf(o)
		if owner == nil {
			return types.NamespacedName{}, false
		}
		sandbox := found[agentsv1beta1.Sandbox](s.sandboxes, types.NamespacedName{Namespace: o.Namespace, Name: owner.Name})
		if sandbox == nil {
			return types.NamespacedName{}, false // its own event follows, or it is gone and was told
		}
		return claimBehind(s, sandbox)
	}
	return types.NamespacedName{}, false
}

// notices wakes those who wait for something of a claim to change.
type notices struct {
	mu      sync.Mutex
	waiting map[types.NamespacedName]map[chan struct{}]bool
}

// watch gives a channel that is sent to when something of the claim may have changed
// since it was last received from.
func (n *notices) watch(key types.NamespacedName) (changed <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.waiting == nil {
		n.waiting = map[types.NamespacedName]map[chan struct{}]bool{}
	}
	if n.waiting[key] == nil {
		n.waiting[key] = map[chan struct{}]bool{}
	}
	n.waiting[key][c] = true
	return c, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.waiting[key], c)
		if len(n.waiting[key]) == 0 {
			delete(n.waiting, key)
		}
	}
}

func (n *notices) tell(key types.NamespacedName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.waiting[key] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
