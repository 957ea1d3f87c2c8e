package agentsandbox

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver/drivertest"
)

// kinds are what is kept, by kind and name, without what runtimes have.
func (b *bench) kinds() []string {
	b.t.Helper()
	kept, err := b.Kept(b.t.Context())
	must(b.t, err)
	out := []string{}
	for _, k := range kept {
		if k.Session != "" {
			out = append(out, string(k.Kind)+" "+k.Session)
		}
	}
	return out
}

// one is what is kept of a kind of a session.
func (b *bench) one(kind driver.Kind, session string) driver.Kept {
	b.t.Helper()
	kept, err := b.Kept(b.t.Context())
	must(b.t, err)
	i := slices.IndexFunc(kept, func(k driver.Kept) bool { return k.Kind == kind && k.Session == session })
	if i < 0 {
		b.t.Fatalf("no %s of %s in %+v", kind, session, kept)
	}
	return kept[i]
}

// A claim is kept with all that goes with it; each is removed by itself, by its UID.
func TestKeptIsDiscardedByItsUID(t *testing.T) {
	t.Parallel()
	b := set(t)
	c, box := b.warmed("s-1", 0)
	b.keptBy(c.Ref)
	drivertest.Start(t, b, b.claim("s-2"))
	if got := b.kinds(); !slices.Equal(got, []string{"sandbox s-1", "sandbox s-2"}) {
		t.Fatalf("kept: %q", got)
	}
	k := b.one(driver.KindSandbox, "s-1")
	if k.Namespace != b.ns || k.Name != claimName(c.Ref) || k.Ref != c.Ref || k.SandboxUID != box.SandboxUID || k.Epoch != c.Epoch || k.Since.IsZero() {
		t.Errorf("kept: %+v", k)
	}
	other := k
	other.UID = string(b.pod(c.Ref).UID)
	if err := b.Discard(t.Context(), other); !errors.Is(err, driver.ErrNotFound) {
		t.Errorf("discarded another of that name: %v", err)
	}
	if _, err := b.Locate(t.Context(), c.Ref); err != nil {
		t.Errorf("after that: %v", err)
	}

	must(t, b.Discard(t.Context(), k))
	drivertest.Eventually(t, "the claim is gone, its volume isn't", func() bool {
		return slices.Equal(b.kinds(), []string{"sandbox s-2", "volume s-1"})
	})
	v := b.one(driver.KindVolume, "s-1")
	if v.Epoch != c.Epoch || v.Generation != 0 {
		t.Errorf("kept: %+v", v)
	}
	must(t, b.Discard(t.Context(), v))
	drivertest.Eventually(t, "the volume is gone", func() bool { return slices.Equal(b.kinds(), []string{"sandbox s-2"}) })
	drivertest.Eventually(t, "discarded again, it isn't found", func() bool {
		return errors.Is(b.Discard(t.Context(), v), driver.ErrNotFound) // at first its Pod still has it
	})
	select {
	case e := <-b.Events():
		t.Errorf("told %+v: nobody lost what was discarded", e)
	default:
	}
}

// What a runtime has is the runtime's, what a claim had for itself the session's.
func TestKeptPoolsAndTemplates(t *testing.T) {
	t.Parallel()
	b := set(t)
	c := b.claim("s-1")
	c.Runtime.HasVolume = true
	must(t, b.EnsurePool(t.Context(), c.Runtime, 1))
	own := types.NamespacedName{Namespace: b.ns, Name: claimName(c.Ref)}
	must(t, b.applyOwnPool(t.Context(), c, own, "volume"))
	var pools []driver.Kept
	b.cluster.Eventually(t, "all are shown", func(ctx context.Context) (bool, error) {
		kept, err := b.Kept(ctx)
		pools = kept
		return len(kept) == 4, err
	})
	for i, want := range []struct {
		kind          driver.Kind
		name, session string
	}{
		{driver.KindPool, templateName(c.Runtime.Name, c.Runtime.Revision), ""},
		{driver.KindPool, own.Name, "s-1"},
		{driver.KindTemplate, templateName(c.Runtime.Name, c.Runtime.Revision), ""},
		{driver.KindTemplate, own.Name, "s-1"},
	} {
		if k := pools[i]; k.Kind != want.kind || k.Name != want.name || k.Session != want.session || k.Tenant != "default" ||
			k.Runtime != c.Runtime.Name || k.Revision != c.Runtime.Revision {
			t.Errorf("%d: kept %+v, want %+v", i, k, want)
		}
	}
	for _, k := range pools {
		must(t, b.Discard(t.Context(), k))
	}
	b.cluster.Eventually(t, "all are gone", func(ctx context.Context) (bool, error) {
		kept, err := b.Kept(ctx)
		return len(kept) == 0, err
	})
}

// A copy of an object of ours that somebody else made is theirs, whatever is written on it.
func TestForeignObjectsAreNotKept(t *testing.T) {
	t.Parallel()
	b := set(t)
	c, _ := b.warmed("s-1", 0)
	b.keptBy(c.Ref)
	template, err := b.ext.ExtensionsV1beta1().SandboxTemplates(b.ns).Get(t.Context(), templateName(c.Runtime.Name, c.Runtime.Revision), metav1.GetOptions{})
	must(t, err)
	kept, err := b.Kept(t.Context())
	must(t, err)
	claim := b.sight(mustKey(t, b, c.Ref)).claim
	volume, err := b.kube.CoreV1().PersistentVolumeClaims(b.ns).Get(t.Context(), volumeOf(b.sight(keyOf(claim)).sandbox), metav1.GetOptions{})
	must(t, err)

	foreign := metav1.CreateOptions{FieldManager: "somebody"}
	v := &corev1.PersistentVolumeClaim{ObjectMeta: copied(volume, "their-volume"), Spec: volume.Spec}
	v.Spec.VolumeName = ""
	v.Annotations[annSession], v.Labels[LabelSession] = "s-8", "s-8"
	_, err = b.kube.CoreV1().PersistentVolumeClaims(b.ns).Create(t.Context(), v, foreign)
	must(t, err)
	_, err = b.ext.ExtensionsV1beta1().SandboxTemplates(b.ns).Create(t.Context(),
		&extensionsv1beta1.SandboxTemplate{ObjectMeta: copied(template, "their-template"), Spec: template.Spec}, foreign)
	must(t, err)
	theirs := &extensionsv1beta1.SandboxClaim{ObjectMeta: copied(claim, claimName(driver.Ref{Session: "s-9", Generation: 1})), Spec: claim.Spec}
	theirs.Annotations[annSession] = "s-9"
	_, err = b.ext.ExtensionsV1beta1().SandboxClaims(b.ns).Create(t.Context(), theirs, foreign)
	must(t, err)
	b.cluster.Eventually(t, "they are shown", func(context.Context) (bool, error) {
		s := b.scopeOf(b.ns)
		return found[extensionsv1beta1.SandboxTemplate](s.templates, types.NamespacedName{Namespace: b.ns, Name: "their-template"}) != nil &&
			found[extensionsv1beta1.SandboxClaim](s.claims, keyOf(theirs)) != nil, nil
	})
	now, err := b.Kept(t.Context())
	must(t, err)
	if !slices.EqualFunc(kept, now, func(a, b driver.Kept) bool { return a.UID == b.UID }) {
		t.Errorf("kept %s, before %s", asJSON(t, now), asJSON(t, kept))
	}
}

// copied is what a person copies of an object.
func copied(o metav1.Object, name string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Name: name, Namespace: o.GetNamespace(), Labels: map[string]string{}, Annotations: map[string]string{}}
	maps.Copy(m.Labels, o.GetLabels())
	maps.Copy(m.Annotations, o.GetAnnotations())
	return m
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	must(t, err)
	return string(raw)
}
