package kube_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// atOnce is far below any claim's deadline here, and far above what a busy machine needs
// for the second in which a cause is to be known.
const atOnce = 5 * time.Second

// TestFailedStarts: what keeps a sandbox from starting is on the session by name, and
// what can't get better isn't waited for.
func TestFailedStarts(t *testing.T) {
	t.Parallel()
	in := start(t)
	image := func(name string) func(*api.RuntimeSpec) {
		return func(r *api.RuntimeSpec) { r.Sandbox.Image = name }
	}
	nowhere := func(r *api.RuntimeSpec) {
		r.Sandbox.Resources.Requests.Memory, r.Sandbox.Resources.Limits.Memory = "9Ti", "9Ti"
		r.Timeouts.Claim = "2s"
	}
	for name, tc := range map[string]struct {
		change func(*api.RuntimeSpec)
		cause  string
	}{
		"image":         {image("there/is/none:1"), "image-unavailable"},
		"unschedulable": {nowhere, "unschedulable"},
	} {
		t.Run(name, func(t *testing.T) {
			in := in.in(t)
			in.shell(name, 0, tc.change)
			in.fails(name, tc.cause)
		})
	}
	t.Run("quota", func(t *testing.T) {
		in := in.in(t)
		quotas := in.kube.CoreV1().ResourceQuotas(in.ns)
		_, err := quotas.Create(t.Context(), &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Name: "none"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": resource.MustParse("0")}},
		}, metav1.CreateOptions{})
		in.must(err)
		in.cluster.Eventually(t, "the quota is in force", func(ctx context.Context) (bool, error) {
			q, err := quotas.Get(ctx, "none", metav1.GetOptions{})
			return err == nil && len(q.Status.Used) == 1, err
		})
		in.shell("quota", 0)
		in.fails("quota", "quota-exceeded")
		in.must(quotas.Delete(t.Context(), "none", metav1.DeleteOptions{}))
	})
	// Whoever removes a template or a pool doesn't keep a session from starting.
	t.Run("mended", func(t *testing.T) {
		in := in.in(t)
		in.shell("mended", 1, allowing)
		in.must(in.ext.ExtensionsV1beta1().SandboxWarmPools(in.ns).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
		in.must(in.ext.ExtensionsV1beta1().SandboxTemplates(in.ns).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
		s := in.CreateOf("alice", api.CreateSession{Runtime: "mended"})
		if s.Phase != api.SessionPhaseReady {
			t.Errorf("it is %s %s", s.Phase, s.Cause)
		}
		in.end(s.ID)
		in.remove("mended")
	})
	for _, runtime := range []string{"image", "unschedulable", "quota"} {
		in.remove(runtime)
	}
	in.nothingLeft()
}

// fails wants a session of a runtime to come to nothing for a cause, at once.
func (in *installation) fails(runtime, cause string) {
	in.t.Helper()
	s := in.CreateOf("alice", api.CreateSession{Runtime: runtime})
	over := in.AwaitPhase(s.ID, api.SessionPhaseEnded)
	if over.Outcome != api.SessionOutcomeFailed || !strings.Contains(over.Cause, cause) {
		in.t.Errorf("it ended as %s for %q, want %s", over.Outcome, over.Cause, cause)
	}
	var asked, failed time.Time
	for _, f := range in.Facts(s.ID) {
		switch p := f.Payload.(type) {
		case session.ClaimRequested:
			asked = f.Message.Envelope.Time
		case session.Failed:
			failed = f.Message.Envelope.Time
			if p.Cause != cause || p.Detail == "" {
				in.t.Errorf("failed: %+v, want %s in the API server's words", p, cause)
			}
		}
	}
	took := failed.Sub(asked)
	if took <= 0 || took > atOnce {
		in.t.Errorf("it took %s to be known", took)
	}
	in.t.Logf("%s was known after %s", cause, took)
	harness.Eventually(in.t, "its claim is gone", func() bool { return len(in.claims()) == 0 })
}
