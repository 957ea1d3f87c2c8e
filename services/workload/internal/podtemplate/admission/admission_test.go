package admission_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	extensions "sigs.k8s.io/agent-sandbox/clients/k8s/extensions/clientset/versioned"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/services/internal/kubetest"
	"github.com/holdfast-io/holdfast/services/workload/internal/podtemplate"
)

func TestMain(m *testing.M) { kubetest.Exit(m) }

// Every golden template is one that agent-sandbox's definition takes as it is, and its
// Pod is admitted where the standard "restricted" is enforced.
func TestGoldenTemplatesAreAdmitted(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t)
	clients := kubernetes.NewForConfigOrDie(cluster.Config())
	templates := extensions.NewForConfigOrDie(cluster.Config())
	ns := cluster.Namespace(t)
	prepare(t, clients, ns)
	files, err := filepath.Glob("../testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, file := range files {
		if strings.HasSuffix(file, ".in.yaml") {
			continue
		}
		tried++
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var b podtemplate.Blueprint
		if err := yaml.UnmarshalStrict(text, &b); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		made, err := templates.ExtensionsV1beta1().SandboxTemplates(ns).Create(t.Context(), &extensionsv1beta1.SandboxTemplate{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: b.Spec,
		}, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		if err != nil {
			t.Errorf("%s as a SandboxTemplate: %v", file, err)
			continue
		}
		if !equality.Semantic.DeepEqual(made.Spec, b.Spec) {
			kept, err := yaml.Marshal(made.Spec)
			t.Errorf("%s is kept as (%v)\n%s", file, err, kept)
		}
		_, err = clients.CoreV1().Pods(ns).Create(t.Context(), podOf(name, b), metav1.CreateOptions{
			DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict,
		})
		if err != nil {
			t.Errorf("%s as a Pod: %v", file, err)
		}
	}
	if tried < 5 {
		t.Errorf("only %d golden files were found", tried)
	}
}

// prepare has the namespace enforce the standard, and makes what the templates name.
func prepare(t *testing.T, clients *kubernetes.Clientset, ns string) {
	t.Helper()
	_, err := clients.CoreV1().Namespaces().Patch(t.Context(), ns, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted","pod-security.kubernetes.io/enforce-version":"latest"}}}`),
		metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// The standard is in force once it refuses what it has to.
	_, err = clients.CoreV1().Pods(ns).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "plain"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if !apierrors.IsForbidden(err) {
		t.Fatalf("a Pod without any restriction: %v, want forbidden", err)
	}
	for _, name := range []string{"coder", "trainer"} {
		_, err := clients.CoreV1().ServiceAccounts(ns).Create(t.Context(), &corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Name: name},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err = clients.NodeV1().RuntimeClasses().Create(t.Context(), &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "gvisor"}, Handler: "runsc",
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// podOf is the Pod that agent-sandbox makes of a template: volumes of claims are added
// by their names.
func podOf(name string, b podtemplate.Blueprint) *corev1.Pod {
	spec := b.Spec.PodTemplate.Spec.DeepCopy()
	for _, claim := range b.Spec.VolumeClaimTemplates {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name + "-" + name},
		}})
	}
	meta := b.Spec.PodTemplate.ObjectMeta
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: meta.Labels, Annotations: meta.Annotations}, Spec: *spec}
}
