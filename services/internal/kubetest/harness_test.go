package kubetest_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	sandboxv1beta1 "sigs.k8s.io/agent-sandbox/api/v1beta1"
	sandboxes "sigs.k8s.io/agent-sandbox/clients/k8s/clientset/versioned"
	extensions "sigs.k8s.io/agent-sandbox/clients/k8s/extensions/clientset/versioned"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"

	"github.com/holdfast-io/holdfast/services/internal/kubetest"
)

const image = "test/program:1"

// bench is a test's cluster, namespace and clients.
type bench struct {
	*kubetest.Cluster
	t          *testing.T
	ns         string
	client     kubernetes.Interface
	sandboxes  sandboxes.Interface
	extensions extensions.Interface
}

func setUp(t *testing.T) *bench {
	t.Helper()
	cluster := kubetest.Start(t)
	self, err := os.Executable()
	must(t, err)
	cluster.Image(image, kubetest.Image{Programs: map[string]string{"program": self}, Env: []string{"LISTEN=0.0.0.0:8080"}})
	config := cluster.Config()
	return &bench{
		Cluster: cluster, t: t, ns: cluster.Namespace(t),
		client:     kubernetes.NewForConfigOrDie(config),
		sandboxes:  sandboxes.NewForConfigOrDie(config),
		extensions: extensions.NewForConfigOrDie(config),
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// program is a container that runs a program of this test binary.
func program(name string, env ...corev1.EnvVar) corev1.Container {
	return corev1.Container{
		Name: "main", Image: image, Command: []string{"/bin/program"},
		Env: append([]corev1.EnvVar{
			{Name: programEnv, Value: name},
			{Name: "WHO", Value: "main"},
			{Name: "UID", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"}}},
		}, env...),
	}
}

// server is a program that is ready when it answers.
func server(env ...corev1.EnvVar) corev1.Container {
	c := program("serve", env...)
	c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(8080)}}}
	return c
}

func (b *bench) pod(name string, spec corev1.PodSpec) *corev1.Pod {
	b.t.Helper()
	pod, err := b.client.CoreV1().Pods(b.ns).Create(b.t.Context(),
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
	must(b.t, err)
	return pod
}

// until waits for a Pod to be as is says.
func (b *bench) until(name, what string, is func(*corev1.Pod) bool) *corev1.Pod {
	b.t.Helper()
	var pod *corev1.Pod
	b.Eventually(b.t, what, func(ctx context.Context) (bool, error) {
		var err error
		pod, err = b.client.CoreV1().Pods(b.ns).Get(ctx, name, metav1.GetOptions{})
		return err == nil && is(pod), err
	})
	return pod
}

func ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// event waits for an Event with a reason about an object.
func (b *bench) event(reason, about string) corev1.Event {
	b.t.Helper()
	var found corev1.Event
	b.Eventually(b.t, "an event "+reason+" about "+about, func(ctx context.Context) (bool, error) {
		events, err := b.client.CoreV1().Events("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, e := range events.Items {
			if e.Reason == reason && e.InvolvedObject.Name == about {
				found = e
				return true, nil
			}
		}
		return false, nil
	})
	return found
}

// get is what a Pod answers.
func (b *bench) get(method, address, path string) string {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, "http://"+address+":8080"+path, nil)
	must(b.t, err)
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	must(b.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(b.t, err)
	return string(text)
}

// template makes a SandboxTemplate and its pool.
func (b *bench) template(name string, replicas int32, spec corev1.PodSpec, claims ...sandboxv1beta1.PersistentVolumeClaimTemplate) {
	b.t.Helper()
	template := &extensionsv1beta1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}
	template.Spec.PodTemplate = sandboxv1beta1.PodTemplate{Spec: spec}
	template.Spec.VolumeClaimTemplates = claims
	_, err := b.extensions.ExtensionsV1beta1().SandboxTemplates(b.ns).Create(b.t.Context(), template, metav1.CreateOptions{})
	must(b.t, err)
	pool := &extensionsv1beta1.SandboxWarmPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pool.Spec.Replicas = &replicas
	pool.Spec.TemplateRef.Name = name
	_, err = b.extensions.ExtensionsV1beta1().SandboxWarmPools(b.ns).Create(b.t.Context(), pool, metav1.CreateOptions{})
	must(b.t, err)
}

// claim makes a SandboxClaim and waits until it is Ready.
func (b *bench) claim(name, pool string) *extensionsv1beta1.SandboxClaim {
	b.t.Helper()
	claim := &extensionsv1beta1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
	claim.Spec.WarmPoolRef.Name = pool
	_, err := b.extensions.ExtensionsV1beta1().SandboxClaims(b.ns).Create(b.t.Context(), claim, metav1.CreateOptions{})
	must(b.t, err)
	b.Eventually(b.t, "the claim is Ready", func(ctx context.Context) (bool, error) {
		claim, err = b.extensions.ExtensionsV1beta1().SandboxClaims(b.ns).Get(ctx, name, metav1.GetOptions{})
		return err == nil && isTrue(claim.Status.Conditions, "Ready"), err
	})
	return claim
}

func isTrue(conditions []metav1.Condition, kind string) bool {
	for _, c := range conditions {
		if c.Type == kind {
			return c.Status == metav1.ConditionTrue
		}
	}
	return false
}

// podOf is the Pod of a Sandbox, by owner.
func (b *bench) podOf(sandbox string) *corev1.Pod {
	b.t.Helper()
	pods, err := b.client.CoreV1().Pods(b.ns).List(b.t.Context(), metav1.ListOptions{})
	must(b.t, err)
	for i := range pods.Items {
		for _, owner := range pods.Items[i].OwnerReferences {
			if owner.Kind == "Sandbox" && owner.Name == sandbox {
				return &pods.Items[i]
			}
		}
	}
	b.t.Fatalf("sandbox %s has no pod", sandbox)
	return nil
}

// volume is a claim template of one gibibyte.
func volume(name string) sandboxv1beta1.PersistentVolumeClaimTemplate {
	template := sandboxv1beta1.PersistentVolumeClaimTemplate{}
	template.Name = name
	template.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	template.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	return template
}
