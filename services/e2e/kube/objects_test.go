package kube_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	agentsv1beta1 "sigs.k8s.io/agent-sandbox/api/v1beta1"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// What Holdfast writes on its objects; see docs/kubernetes-sessions.md.
const (
	labelRuntime = "holdfast.dev/runtime"
	noteSession  = "holdfast.dev/session"
)

type claim = extensionsv1beta1.SandboxClaim

// claims are all of the tenant's.
func (in *installation) claims() []claim {
	in.t.Helper()
	list, err := in.ext.ExtensionsV1beta1().SandboxClaims(in.ns).List(harness.Context(in.t), metav1.ListOptions{})
	in.must(err)
	return list.Items
}

// sandbox is the Sandbox of a session's claim, and pod its Pod.
func (in *installation) sandbox(id string) *agentsv1beta1.Sandbox {
	in.t.Helper()
	for _, c := range in.claims() {
		if c.Annotations[noteSession] == id && c.DeletionTimestamp == nil {
			s, err := in.boxes.AgentsV1beta1().Sandboxes(in.ns).Get(harness.Context(in.t), c.Status.SandboxStatus.Name, metav1.GetOptions{})
			in.must(err)
			return s
		}
	}
	in.t.Fatalf("session %s has no claim", id)
	return nil
}

func (in *installation) pod(id string) *corev1.Pod {
	in.t.Helper()
	owner := in.sandbox(id).UID
	pods, err := in.kube.CoreV1().Pods(in.ns).List(harness.Context(in.t), metav1.ListOptions{})
	in.must(err)
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.DeletionTimestamp == nil && len(p.OwnerReferences) > 0 && p.OwnerReferences[0].UID == owner {
			return p
		}
	}
	in.t.Fatalf("session %s has no Pod", id)
	return nil
}

// spare is a Pod of a runtime that no session has.
func (in *installation) spare(runtime string) *corev1.Pod {
	in.t.Helper()
	pods, err := in.kube.CoreV1().Pods(in.ns).List(harness.Context(in.t), metav1.ListOptions{LabelSelector: agentsv1beta1.SandboxWarmPoolLabel})
	in.must(err)
	for i := range pods.Items {
		if p := &pods.Items[i]; strings.HasSuffix(p.Labels[labelRuntime], runtime) && p.DeletionTimestamp == nil {
			return p
		}
	}
	in.t.Fatalf("nothing of %s is warm", runtime)
	return nil
}

// poolHas waits until a runtime's pool has so many ready.
func (in *installation) poolHas(runtime string, ready int32) {
	in.t.Helper()
	in.cluster.Eventually(in.t, "the pool of "+runtime+" is full", func(ctx context.Context) (bool, error) {
		pools, err := in.ext.ExtensionsV1beta1().SandboxWarmPools(in.ns).List(ctx, metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(pools.Items, func(p extensionsv1beta1.SandboxWarmPool) bool {
			return strings.HasSuffix(p.Labels[labelRuntime], runtime) && p.Status.ReadyReplicas >= ready
		}), err
	})
}

// nothingLeft waits until the tenant's namespace is as it was before all sessions.
func (in *installation) nothingLeft() {
	in.t.Helper()
	var left []string
	defer func() {
		if in.t.Failed() {
			in.t.Logf("left: %v", left)
		}
	}()
	harness.Eventually(in.t, "nothing is left", func() bool {
		left = slices.DeleteFunc(in.cluster.Objects(in.t, in.ns), func(o string) bool { return slices.Contains(in.before, o) })
		return len(left) == 0
	})
}

// close holds the log to the invariants, and the cluster to the log.
func (in *installation) close() {
	in.t.Helper()
	if in.t.Failed() {
		return
	}
	in.Check()
	var last error
	defer func() {
		if in.t.Failed() {
			in.t.Log(last)
		}
	}()
	harness.Eventually(in.t, "sessions and claims are one to one", func() bool {
		last = in.matched()
		return last == nil
	})
}

// errUnmatched says what of the cluster isn't as the log has it.
var errUnmatched = errors.New("not as the log has it")

// matched holds the cluster to the log: a claim is that of a session's generation, and
// a session that is ready has exactly the Sandbox and the Pod that its events name.
func (in *installation) matched() error {
	in.t.Helper()
	limit := 200
	r, err := in.Client("admin").ListSessionsWithResponse(in.Context(), &api.ListSessionsParams{Limit: &limit})
	in.must(err)
	claims := map[string]claim{}
	for _, c := range in.claims() {
		id := c.Annotations[noteSession]
		if other, ok := claims[id]; ok {
			return fmt.Errorf("%w: %s and %s", errUnmatched, other.Name, c.Name)
		}
		claims[id] = c
	}
	for _, s := range r.JSON200.Items {
		c, ok := claims[s.ID]
		delete(claims, s.ID)
		switch {
		case s.Phase == api.SessionPhaseEnded && ok, ok && c.Name != claimName(s.ID, s.Generation), s.Phase == api.SessionPhaseReady && !ok:
			return fmt.Errorf("%w: %s is %s in generation %d, and its claim is %q", errUnmatched, s.ID, s.Phase, s.Generation, c.Name)
		case s.Phase == api.SessionPhaseReady:
			box, pod := in.sandbox(s.ID), in.pod(s.ID)
			if sandboxUID, podUID := uids(in.Facts(s.ID)); string(box.UID) != sandboxUID || !strings.HasPrefix(podUID, string(pod.UID)) {
				return fmt.Errorf("%w: %s is on %s and %s, and its events say %s and %s", errUnmatched, s.ID, box.UID, pod.UID, sandboxUID, podUID)
			}
		}
	}
	for id, c := range claims {
		return fmt.Errorf("%w: no session has %s (%s)", errUnmatched, c.Name, id)
	}
	return nil
}

// claimName is that of a session's generation.
func claimName(id string, generation uint64) string { return fmt.Sprintf("hf-%s-g%d", id, generation) }

// uids are the Sandbox and the Pod that a session got last.
func uids(facts []harness.Fact) (sandbox, pod string) {
	for _, f := range facts {
		switch p := f.Payload.(type) {
		case session.Ready:
			sandbox, pod = p.SandboxUID, p.PodUID
		case session.Resumed:
			pod = p.PodUID
		}
	}
	return sandbox, pod
}
