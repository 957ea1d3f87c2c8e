package kube_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// TestTheClaimIsAnothers: somebody takes a session's claim away, and has one of the name
// that the next would have: that one is neither used nor removed, and the session goes on
// in the one after it.
func TestTheClaimIsAnothers(t *testing.T) {
	t.Parallel()
	in := start(t)
	in.shell("taken", 0, allowing)
	s := in.CreateOf("alice", api.CreateSession{Runtime: "taken"})
	pod := in.pod(s.ID)
	claims := in.ext.ExtensionsV1beta1().SandboxClaims(in.ns)
	ours, err := claims.Get(t.Context(), claimName(s.ID, 1), metav1.GetOptions{})
	in.must(err)
	theirs, err := claims.Create(t.Context(), &claim{
		ObjectMeta: metav1.ObjectMeta{Name: claimName(s.ID, 2)}, Spec: extensionsv1beta1.SandboxClaimSpec{WarmPoolRef: ours.Spec.WarmPoolRef},
	}, metav1.CreateOptions{})
	in.must(err)
	in.must(claims.Delete(t.Context(), ours.Name, metav1.DeleteOptions{}))
	in.wasLost(s.ID, string(pod.UID), "claim-deleted")

	in.tell(s.ID, "echo hello")
	losses := harness.Of[session.Lost](in.Facts(s.ID))
	if s := in.Session(s.ID); s.Generation != 3 || len(losses) != 2 || losses[1].Generation != 2 || losses[1].Cause != "sandbox-name-taken" {
		t.Errorf("it goes on in generation %d after %+v", s.Generation, losses)
	}
	in.end(s.ID)
	left, err := claims.Get(t.Context(), theirs.Name, metav1.GetOptions{})
	if err != nil || left.UID != theirs.UID || left.DeletionTimestamp != nil {
		t.Errorf("theirs: %v", err)
	}
	in.must(claims.Delete(t.Context(), theirs.Name, metav1.DeleteOptions{}))
	in.remove("taken")
	in.nothingLeft()
}
