package kubetest_test

import (
	"context"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestColdClaimIsReadyByAProcessThatAnswers(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.template("cold", 0, corev1.PodSpec{Containers: []corev1.Container{server()}})
	claim := b.claim("cold", "cold")
	pod := b.podOf(claim.Status.SandboxStatus.Name)
	if got, want := b.get("GET", pod.Status.PodIP, "/"), "main "+string(pod.UID); got != want {
		t.Errorf("the pod answers %q, want %q", got, want)
	}
}

func TestWarmClaimGetsAPodThatRanBefore(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.template("warm", 1, corev1.PodSpec{Containers: []corev1.Container{server()}})
	var spare types.UID
	b.Eventually(t, "the pool has a ready pod", func(ctx context.Context) (bool, error) {
		pods, err := b.client.CoreV1().Pods(b.ns).List(ctx, metav1.ListOptions{})
		if err != nil || len(pods.Items) != 1 || !ready(&pods.Items[0]) {
			return false, err
		}
		spare = pods.Items[0].UID
		pool, err := b.extensions.ExtensionsV1beta1().SandboxWarmPools(b.ns).Get(ctx, "warm", metav1.GetOptions{})
		return err == nil && pool.Status.ReadyReplicas == 1, err
	})
	claim := b.claim("warm", "warm")
	pod := b.podOf(claim.Status.SandboxStatus.Name)
	if pod.UID != spare {
		t.Errorf("the claim got pod %s, want the spare %s", pod.UID, spare)
	}
	if got := b.get("GET", pod.Status.PodIP, "/"); got != "main "+string(spare) {
		t.Errorf("the pod answers %q", got)
	}
}

func TestDeletedClaimLeavesNothing(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.template("gone", 0, corev1.PodSpec{Containers: []corev1.Container{server()}}, volume("data"))
	before := b.Objects(t, b.ns)
	claim := b.claim("gone", "gone")
	pod := b.podOf(claim.Status.SandboxStatus.Name)
	if during := strings.Join(b.Objects(t, b.ns), " "); !strings.Contains(during, "persistentvolumeclaim/") || !strings.Contains(during, "pod/") {
		t.Errorf("with a claim there are only %s", during)
	}
	must(t, b.extensions.ExtensionsV1beta1().SandboxClaims(b.ns).Delete(t.Context(), "gone", metav1.DeleteOptions{}))
	b.Eventually(t, "everything of the claim is collected", func(context.Context) (bool, error) {
		return strings.Join(b.Objects(t, b.ns), " ") == strings.Join(before, " "), nil
	})
	if err := b.Kill(b.ns, pod.Name, "main", syscall.SIGTERM); err == nil {
		t.Error("the process outlives its pod")
	}
}

func TestVolumeSurvivesASuspend(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	c := server(corev1.EnvVar{Name: "NOTES", Value: "/data"})
	c.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	b.template("kept", 0, corev1.PodSpec{Containers: []corev1.Container{c}}, volume("data"))
	claim := b.claim("kept", "kept")
	name := claim.Status.SandboxStatus.Name
	first := b.podOf(name)
	b.get("PUT", first.Status.PodIP, "/notes?text=remember")

	b.mode(name, "Suspended")
	b.Eventually(t, "the pod is gone", func(ctx context.Context) (bool, error) {
		pods, err := b.client.CoreV1().Pods(b.ns).List(ctx, metav1.ListOptions{})
		return err == nil && len(pods.Items) == 0, err
	})
	b.mode(name, "Running")
	b.Eventually(t, "the sandbox is ready again", func(ctx context.Context) (bool, error) {
		pods, err := b.client.CoreV1().Pods(b.ns).List(ctx, metav1.ListOptions{})
		return err == nil && len(pods.Items) == 1 && ready(&pods.Items[0]), err
	})
	second := b.podOf(name)
	if second.UID == first.UID || second.Status.PodIP == first.Status.PodIP {
		t.Errorf("the pod after the resume is the one before: %s at %s", second.UID, second.Status.PodIP)
	}
	if got := b.get("GET", second.Status.PodIP, "/notes"); got != "remember" {
		t.Errorf("the volume holds %q", got)
	}
}

func (b *bench) mode(sandbox, mode string) {
	b.t.Helper()
	patch := []byte(`{"spec":{"operatingMode":"` + mode + `"}}`)
	_, err := b.sandboxes.AgentsV1beta1().Sandboxes(b.ns).Patch(b.t.Context(), sandbox, types.MergePatchType, patch, metav1.PatchOptions{})
	must(b.t, err)
}
