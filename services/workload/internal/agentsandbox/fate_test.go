package agentsandbox

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/services/internal/kubetest"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver/drivertest"
	"github.com/holdfast-io/holdfast/services/workload/internal/podtemplate"
)

// A Pod whose containers aren't started again, as somebody else may have made of a
// Sandbox's template, ends as a whole.
func TestEndedPodsAreLost(t *testing.T) {
	t.Parallel()
	for cause, signal := range map[string]syscall.Signal{
		driver.CausePodFailed: syscall.SIGKILL,
		driver.CausePodEnded:  syscall.SIGTERM, // at which the agent ends well
	} {
		t.Run(cause, func(t *testing.T) {
			t.Parallel()
			b := set(t)
			c := b.claim("s-1")
			b.cluster.Image("polite", kubetest.Image{Env: []string{"LOOPBACK=127.0.0.1"}, Argv: func(kubetest.Container) ([]string, error) {
				return []string{"/bin/sh", "-c", "trap 'exit 0' TERM; " + filepath.Join(built, "probeagent") + " & wait"}, nil
			}})
			c.Runtime.Revision, c.Runtime.Pod.Image = 4, "polite"
			drivertest.Start(t, b, c)
			must(t, b.Suspend(b.within(), c.Ref, 6))
			sandbox := b.sight(mustKey(t, b, c.Ref)).sandbox
			_, err := b.sandboxes.AgentsV1beta1().Sandboxes(b.ns).Patch(t.Context(), sandbox.Name, types.MergePatchType,
				[]byte(`{"spec":{"podTemplate":{"spec":{"restartPolicy":"Never"}}}}`), metav1.PatchOptions{})
			must(t, err)
			c.Intent = 7
			box := drivertest.Restart(t, b, c)
			must(t, b.cluster.Kill(b.ns, b.pod(c.Ref).Name, podtemplate.AgentContainer, signal))
			b.lost(box, cause)

			// agent-sandbox makes no other: the Sandbox is put away, and taken back.
			must(t, b.Suspend(b.within(), c.Ref, 8))
			c.Intent = 9
			if again := drivertest.Restart(t, b, c); again.SandboxUID != box.SandboxUID || again.PodUID == box.PodUID {
				t.Errorf("resumed as %+v, before %+v", again, box)
			}
		})
	}
}

// Of two Pods of one Sandbox nobody knows which has the session.
func TestSeveralPodsAreALoss(t *testing.T) {
	t.Parallel()
	b := set(t)
	c := b.claim("s-1")
	box := drivertest.Start(t, b, c)
	pod := b.pod(c.Ref)
	yes := true
	second := &corev1.Pod{ObjectMeta: copied(pod, "second"), Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: podtemplate.AgentContainer, Image: "probe", Command: []string{"/bin/sleep", "1000"}}},
	}}
	second.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "agents.x-k8s.io/v1beta1", Kind: "Sandbox", Name: pod.Name, UID: types.UID(box.SandboxUID), Controller: &yes,
	}}
	_, err := b.kube.CoreV1().Pods(b.ns).Create(t.Context(), second, metav1.CreateOptions{})
	must(t, err)
	b.lost(box, driver.CauseManyPods)
	c.Intent = 6
	if again := drivertest.Start(t, b, c); again.SandboxUID == box.SandboxUID {
		t.Errorf("claimed again: %+v", again)
	}
}

// The cluster ends a claim by itself at its time, which only ever moves later.
func TestBackstop(t *testing.T) {
	t.Parallel()
	b := set(t)
	c := b.claim("s-1")
	c.Runtime.HasVolume = true
	c.Until = time.Now().Add(time.Hour)
	drivertest.Start(t, b, c)
	b.keptBy(c.Ref)
	key := mustKey(t, b, c.Ref)
	ends := func(at time.Time) {
		t.Helper()
		claim, err := b.ext.ExtensionsV1beta1().SandboxClaims(b.ns).Get(t.Context(), key.Name, metav1.GetOptions{})
		must(t, err)
		if got := endsAt(claim); !got.Equal(at.Truncate(time.Second)) {
			t.Errorf("it ends at %s, want %s", got, at)
		}
	}
	ends(c.Until)
	must(t, b.Extend(t.Context(), c.Ref, c.Until.Add(-time.Minute)))
	ends(c.Until)
	later := c.Until.Add(time.Hour)
	must(t, b.Extend(t.Context(), c.Ref, later))
	ends(later)
	must(t, b.Suspend(b.within(), c.Ref, 6))
	ends(later)
	c.Intent = 7 // its Until is that of before: nothing moves back
	box := drivertest.Restart(t, b, c)
	ends(later)

	_, err := b.ext.ExtensionsV1beta1().SandboxClaims(b.ns).Patch(t.Context(), key.Name, types.MergePatchType,
		[]byte(`{"spec":{"lifecycle":{"shutdownTime":"`+time.Now().UTC().Add(time.Second).Format(time.RFC3339)+`"}}}`), metav1.PatchOptions{})
	must(t, err)
	if e := b.event(false); e.PodUID != box.PodUID || e.Cause != driver.CauseClaimDeleted {
		t.Errorf("told %+v", e)
	}
	drivertest.Eventually(t, "the claim is gone, and the session's volume isn't", func() bool {
		kept := b.kinds()
		return len(kept) == 1 && kept[0] == "volume s-1"
	})
	must(t, b.Extend(t.Context(), c.Ref, later.Add(time.Hour))) // of nothing
	must(t, b.Release(b.within(), c.Ref, 8, false))
	drivertest.Eventually(t, "nothing is left", func() bool { return len(b.kinds()) == 0 })
}
