package kube_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// TestSweep: what the log doesn't know, and what another log wanted, is shown and left
// alone until somebody names it. What somebody else made isn't shown, nor removed.
func TestSweep(t *testing.T) {
	t.Parallel()
	in := start(t)
	in.shell("shell", 0)
	s := in.CreateOf("alice", api.CreateSession{Runtime: "shell"})
	c := in.claimNamed(claimName(s.ID, 1))

	const lost, older, theirs = "s-bbbbbbbbbbbbbbbbbbbb", "s-cccccccccccccccccccc", "s-dddddddddddddddddddd"
	in.copy(c, lost, fieldManager, nil)
	in.copy(c, older, fieldManager, map[string]string{noteEpoch: "epoch-of-another-log"})
	in.copy(c, theirs, "somebody", nil)

	shown := in.strays(2)
	for _, id := range []string{lost, older} {
		i := slices.IndexFunc(shown, func(s api.Stray) bool { return s.Session == id })
		if i < 0 {
			t.Fatalf("%s isn't shown: %+v", id, shown)
		}
		want := in.claimNamed(claimName(id, 1))
		why := map[string]api.StrayWhy{lost: "unknown-session", older: "other-epoch"}[id]
		if got := shown[i]; got.Kind != "sandbox" || got.Namespace != in.ns || got.Name != want.Name || got.UID != string(want.UID) ||
			got.Generation != 1 || got.Epoch != want.Annotations[noteEpoch] || got.Why != why || got.Since.IsZero() {
			t.Errorf("shown %+v", got)
		}
	}

	// Anew under the same name it is another; and nothing else that is named is a stray.
	renewed := in.claimNamed(claimName(lost, 1))
	in.must(in.ext.ExtensionsV1beta1().SandboxClaims(in.ns).Delete(in.Context(), renewed.Name, metav1.DeleteOptions{}))
	harness.Eventually(t, "it is gone", func() bool { return len(in.claims()) == 3 })
	in.copy(c, lost, fieldManager, nil)
	foreign, own := in.claimNamed(claimName(theirs, 1)), in.claimNamed(c.Name)
	names := []api.StrayName{
		{Kind: "sandbox", Namespace: in.ns, Name: renewed.Name, UID: string(renewed.UID)},
		{Kind: "sandbox", Namespace: in.ns, Name: foreign.Name, UID: string(foreign.UID)},
		{Kind: "sandbox", Namespace: in.ns, Name: own.Name, UID: string(own.UID)},
		{Kind: "sandbox", Namespace: in.ns, Name: claimName(older, 1), UID: string(in.claimNamed(claimName(older, 1)).UID)},
	}
	if got, want := in.sweep(names), []api.StrayOutcomeOutcome{"gone", "gone", "gone", "removed"}; !slices.Equal(got, want) {
		t.Errorf("came of it: %v, want %v", got, want)
	}
	harness.Eventually(t, "one is gone", func() bool { return len(in.claims()) == 3 })
	in.claimNamed(claimName(lost, 1))
	in.audited(names[3])

	left := in.strays(1)
	if got := in.sweep([]api.StrayName{{Kind: left[0].Kind, Namespace: in.ns, Name: left[0].Name, UID: left[0].UID}}); !slices.Equal(got, []api.StrayOutcomeOutcome{"removed"}) {
		t.Errorf("came of it: %v", got)
	}
	in.strays(0)
	in.claimNamed(claimName(theirs, 1)) // theirs to remove
	in.must(in.ext.ExtensionsV1beta1().SandboxClaims(in.ns).Delete(in.Context(), claimName(theirs, 1), metav1.DeleteOptions{}))

	if r, err := in.Client("bob").ListStraysWithResponse(in.Context()); err == nil {
		t.Errorf("an approver may look: %+v", r.JSON200)
	}
	in.end(s.ID)
	in.remove("shell")
	in.nothingLeft()
}

// audited wants the audit log to say who had a stray removed, and that it was.
func (in *installation) audited(name api.StrayName) {
	in.t.Helper()
	types := []string{"stray.removal-requested", "stray.removed", "stray.removal-failed"}
	var found []api.AuditEntry
	harness.Eventually(in.t, "it is in the audit log", func() bool {
		r, err := in.Client("admin").ListAuditWithResponse(in.Context(), &api.ListAuditParams{Type: &types})
		in.must(err)
		found = r.JSON200.Items
		return len(found) == 2
	})
	for i, want := range []struct{ kind, actor string }{{"stray.removed", "service:workload"}, {"stray.removal-requested", "user:admin"}} {
		e := found[i]
		if e.Type != want.kind || e.Actor != want.actor || e.Kind != "sweep" || e.Outcome != "done" || !strings.Contains(string(e.Data), name.UID) {
			in.t.Errorf("the audit log says %+v", e)
		}
	}
}

// fieldManager is who Holdfast writes as, noteEpoch the annotation with the log's epoch.
const (
	fieldManager = "holdfast"
	noteEpoch    = "holdfast.dev/epoch"
)

func (in *installation) claimNamed(name string) claim {
	in.t.Helper()
	c, err := in.ext.ExtensionsV1beta1().SandboxClaims(in.ns).Get(in.Context(), name, metav1.GetOptions{})
	in.must(err)
	return *c
}

// copy makes a claim as another session's would be, written by manager.
func (in *installation) copy(c claim, id, manager string, notes map[string]string) {
	in.t.Helper()
	out := &claim{ObjectMeta: metav1.ObjectMeta{
		Name: claimName(id, 1), Labels: maps.Clone(c.Labels), Annotations: map[string]string{},
	}, Spec: *c.Spec.DeepCopy()}
	for _, note := range []string{"tenant", "generation", "intent", "epoch", "runtime", "revision"} {
		out.Annotations["holdfast.dev/"+note] = c.Annotations["holdfast.dev/"+note]
	}
	out.Annotations[noteSession], out.Labels[noteSession] = id, id
	maps.Copy(out.Annotations, notes)
	_, err := in.ext.ExtensionsV1beta1().SandboxClaims(in.ns).Create(in.Context(), out, metav1.CreateOptions{FieldManager: manager})
	in.must(err)
}

// strays are those that an administrator is shown, once there are so many.
func (in *installation) strays(n int) []api.Stray {
	in.t.Helper()
	var shown []api.Stray
	harness.Eventually(in.t, "strays are shown", func() bool {
		r, err := in.Client("admin").ListStraysWithResponse(in.Context())
		in.must(err)
		shown = r.JSON200.Items
		return len(shown) == n
	})
	return shown
}

// sweep removes what is named, and says what came of each.
func (in *installation) sweep(names []api.StrayName) []api.StrayOutcomeOutcome {
	in.t.Helper()
	r, err := in.Client("admin").RemoveStraysWithResponse(in.Context(), api.StrayRemoval{Items: names})
	in.must(err)
	var out []api.StrayOutcomeOutcome
	for _, s := range r.JSON200.Items {
		out = append(out, s.Outcome)
	}
	return out
}
