package kubetest_test

import (
	"context"
	"strings"
	"syscall"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-io/holdfast/services/internal/kubetest"
)

func TestKilledContainerStartsAgainAndIsCounted(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.pod("p", corev1.PodSpec{Containers: []corev1.Container{server()}})
	b.until("p", "it is ready", ready)
	must(t, b.Kill(b.ns, "p", "main", syscall.SIGKILL))
	pod := b.until("p", "it is ready after a restart", func(p *corev1.Pod) bool {
		return ready(p) && p.Status.ContainerStatuses[0].RestartCount == 1
	})
	if last := pod.Status.ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.Reason != "Error" || last.ExitCode != 137 {
		t.Errorf("last state %+v, want Error with 137", last)
	}
	must(t, b.OOM(b.ns, "p", "main"))
	pod = b.until("p", "it is ready after a second restart", func(p *corev1.Pod) bool {
		return ready(p) && p.Status.ContainerStatuses[0].RestartCount == 2
	})
	if last := pod.Status.ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.Reason != "OOMKilled" || last.ExitCode != 137 {
		t.Errorf("last state %+v, want OOMKilled with 137", last)
	}
	b.event("OOMKilling", kubetest.DefaultNode)
}

func TestContainerThatFailsAgainAndAgainIsHeldBack(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	c := program("fail")
	c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	b.pod("p", corev1.PodSpec{Containers: []corev1.Container{c}})
	pod := b.until("p", "it crashes in a loop", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Waiting != nil &&
			p.Status.ContainerStatuses[0].State.Waiting.Reason == "CrashLoopBackOff"
	})
	if pod.Status.Phase != corev1.PodRunning {
		t.Errorf("phase %s, want Running", pod.Status.Phase)
	}
	if last := pod.Status.ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.ExitCode != 3 || !strings.Contains(last.Message, "nothing to do") {
		t.Errorf("last state %+v, want code 3 and the log's end", last)
	}
	b.event("BackOff", "p")
}

func TestPolicyNeverEndsThePod(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	for name, want := range map[string]corev1.PodPhase{"fail": corev1.PodFailed, "once": corev1.PodSucceeded} {
		b.pod(name, corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{program(name)}})
		b.until(name, "its phase is "+string(want), func(p *corev1.Pod) bool { return p.Status.Phase == want })
	}
}

func TestSidecarStartsFirstAndHasTheSameLoopback(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	always := corev1.ContainerRestartPolicyAlways
	install := program("once")
	install.Name = "install"
	sidecar := program("serve", corev1.EnvVar{Name: "LISTEN", Value: "0.0.0.0:7778"})
	sidecar.Name, sidecar.RestartPolicy = "sidecar", &always
	sidecar.StartupProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(7778)}}}
	agent := program("serve", corev1.EnvVar{Name: "LISTEN", Value: "127.0.0.1:8080"})
	agent.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(8080), Host: "127.0.0.1"}}}
	b.pod("p", corev1.PodSpec{InitContainers: []corev1.Container{install, sidecar}, Containers: []corev1.Container{agent}})
	pod := b.until("p", "it is ready", ready)

	installed, beside := pod.Status.InitContainerStatuses[0], pod.Status.InitContainerStatuses[1]
	if installed.State.Terminated == nil || installed.State.Terminated.ExitCode != 0 {
		t.Errorf("the init container is %+v", installed.State)
	}
	if beside.State.Running == nil || !*beside.Started {
		t.Fatalf("the sidecar is %+v", beside.State)
	}
	if began := pod.Status.ContainerStatuses[0].State.Running.StartedAt; began.Before(&beside.State.Running.StartedAt) {
		t.Errorf("the agent began at %v, before the sidecar at %v", began, beside.State.Running.StartedAt)
	}
	// Two Pods each have port 8080 of their loopback.
	b.pod("q", corev1.PodSpec{Containers: []corev1.Container{agent}})
	b.until("q", "it is ready", ready)
}

func TestDeletionAsksThenKills(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	grace := int64(1)
	b.pod("p", corev1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{server(corev1.EnvVar{Name: "STUBBORN", Value: "1"})}})
	pod := b.until("p", "it is ready", ready)
	must(t, b.client.CoreV1().Pods(b.ns).Delete(t.Context(), "p", metav1.DeleteOptions{}))
	if got := b.get("GET", pod.Status.PodIP, "/"); got == "" {
		t.Error("a process that ignores SIGTERM didn't have its grace")
	}
	b.Eventually(t, "the pod is gone", func(ctx context.Context) (bool, error) {
		_, err := b.client.CoreV1().Pods(b.ns).Get(ctx, "p", metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
}

func TestUnknownImage(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	c := server()
	c.Image = "test/unknown:" + b.ns
	b.pod("p", corev1.PodSpec{Containers: []corev1.Container{c}})
	waits := func(reason string) func(*corev1.Pod) bool {
		return func(p *corev1.Pod) bool {
			return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Waiting != nil &&
				p.Status.ContainerStatuses[0].State.Waiting.Reason == reason
		}
	}
	b.until("p", "it waits for its image", waits("ImagePullBackOff"))
	b.event("Failed", "p")
}

func TestUnschedulable(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	node := b.Node(t)
	large := server()
	large.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5000")}
	spec := corev1.PodSpec{Containers: []corev1.Container{server()}}
	kubetest.OnNode(&spec, node)
	b.Cordon(t, node, true)
	b.pod("cordoned", spec)
	b.pod("large", corev1.PodSpec{Containers: []corev1.Container{large}})
	for name, why := range map[string]string{"cordoned": "unschedulable", "large": "Insufficient cpu"} {
		b.until(name, "it can't be scheduled", func(p *corev1.Pod) bool {
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodScheduled {
					return c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable && strings.Contains(c.Message, why)
				}
			}
			return false
		})
		b.event("FailedScheduling", name)
	}
	b.Cordon(t, node, false)
	b.until("cordoned", "it is ready on a node that takes Pods again", ready)
}

func TestDeletedNodeTakesItsPodsAlong(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	node := b.Node(t)
	spec := corev1.PodSpec{Containers: []corev1.Container{server()}}
	kubetest.OnNode(&spec, node)
	b.pod("p", spec)
	b.until("p", "it is ready", ready)
	must(t, b.client.CoreV1().Nodes().Delete(t.Context(), node, metav1.DeleteOptions{}))
	b.Eventually(t, "the pod is gone", func(ctx context.Context) (bool, error) {
		_, err := b.client.CoreV1().Pods(b.ns).Get(ctx, "p", metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
}

func TestPausedKubeletSaysNothing(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	node := b.Node(t)
	spec := corev1.PodSpec{Containers: []corev1.Container{server()}}
	kubetest.OnNode(&spec, node)
	b.pod("p", spec)
	pod := b.until("p", "it is ready", ready)
	resume := b.PauseKubelet(t, node)
	must(t, b.client.CoreV1().Pods(b.ns).Delete(t.Context(), "p", metav1.DeleteOptions{}))
	if got := b.get("GET", pod.Status.PodIP, "/"); got == "" {
		t.Error("the process ended although its kubelet is paused")
	}
	resume()
	b.Eventually(t, "the pod is gone", func(ctx context.Context) (bool, error) {
		_, err := b.client.CoreV1().Pods(b.ns).Get(ctx, "p", metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
}

func TestProjectedTokenNamesItsPod(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	c := server(corev1.EnvVar{Name: "TOKEN_FILE", Value: "/var/run/secrets/holdfast/token"})
	c.VolumeMounts = []corev1.VolumeMount{{Name: "token", MountPath: "/var/run/secrets/holdfast"}}
	no := false
	b.pod("p", corev1.PodSpec{
		AutomountServiceAccountToken: &no, Containers: []corev1.Container{c},
		Volumes: []corev1.Volume{{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "holdfast", Path: "token"}}},
		}}}},
	})
	pod := b.until("p", "it is ready", ready)
	review := func(audience string) authenticationv1.TokenReviewStatus {
		got, err := b.client.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{
			Spec: authenticationv1.TokenReviewSpec{Token: b.get("GET", pod.Status.PodIP, "/token"), Audiences: []string{audience}},
		}, metav1.CreateOptions{})
		must(t, err)
		return got.Status
	}
	got := review("holdfast")
	if !got.Authenticated || got.User.Extra["authentication.kubernetes.io/pod-uid"][0] != string(pod.UID) {
		t.Errorf("the review says %+v, want pod %s", got, pod.UID)
	}
	if review("another").Authenticated {
		t.Error("the token is accepted for another audience")
	}
}

func TestServiceAccountHasOnlyItsRights(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	client, err := kubernetes.NewForConfig(b.ServiceAccount(t, b.ns, "default"))
	must(t, err)
	if _, err := client.CoreV1().Pods(b.ns).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a service account without rights lists pods: %v", err)
	}
	client, err = kubernetes.NewForConfig(b.As("somebody", "system:masters"))
	must(t, err)
	if _, err := client.CoreV1().Pods(b.ns).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("an administrator can't list pods: %v", err)
	}
}

func TestQuotaIsEnforced(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	_, err := b.client.CoreV1().ResourceQuotas(b.ns).Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "q"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}},
	}, metav1.CreateOptions{})
	must(t, err)
	b.Eventually(t, "the quota is counted", func(ctx context.Context) (bool, error) {
		q, err := b.client.CoreV1().ResourceQuotas(b.ns).Get(ctx, "q", metav1.GetOptions{})
		return err == nil && len(q.Status.Hard) > 0, err
	})
	b.pod("one", corev1.PodSpec{Containers: []corev1.Container{server()}})
	_, err = b.client.CoreV1().Pods(b.ns).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "two"}, Spec: corev1.PodSpec{Containers: []corev1.Container{server()}},
	}, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota") {
		t.Errorf("a second pod within a quota of one: %v", err)
	}
}
