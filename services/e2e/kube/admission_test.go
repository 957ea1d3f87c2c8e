package kube_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"

	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// TestSidecarIsRefused: a policy of the cluster takes no Pod with sandboxd in it. The
// session has failed at once, in that policy's words.
func TestSidecarIsRefused(t *testing.T) {
	t.Parallel()
	in := start(t)
	name := in.ns + "-no-sidecars"
	policies := in.kube.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	_, err := policies.Create(t.Context(), &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: in.onCreate("", "v1", "pods"),
			Validations: []admissionv1.Validation{{
				Expression: `!object.spec.?initContainers.orValue([]).exists(c, c.name == "holdfast-sandboxd")`, Message: "no sidecars in this house",
			}},
		},
	}, metav1.CreateOptions{})
	in.must(err)
	bindings := in.kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	_, err = bindings.Create(t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}, metav1.CreateOptions{})
	in.must(err)
	t.Cleanup(func() { in.took(policies.Delete, name); in.took(bindings.Delete, name) })
	// As restricted as the namespace wants it, so that nothing but the policy refuses it.
	always, yes, no := corev1.ContainerRestartPolicyAlways, true, false
	held := &corev1.SecurityContext{
		RunAsNonRoot: &yes, AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "holdfast-sandboxd", Image: "none", RestartPolicy: &always, SecurityContext: held}},
		Containers:     []corev1.Container{{Name: "agent", Image: "none", SecurityContext: held}},
	}}
	in.cluster.Eventually(t, "the policy is in force", func(ctx context.Context) (bool, error) {
		_, err := in.kube.CoreV1().Pods(in.ns).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), "no sidecars"), nil
	})

	in.shell("unwelcome", 0)
	in.fails("unwelcome", "admission-refused")
	in.saidWhy("no sidecars in this house")
	in.remove("unwelcome")
	in.nothingLeft()
}

// TestInjectionIsRefused: somebody adds a variable to every claim, which a template of ours
// doesn't take. The session has failed at once, with agent-sandbox's word for it.
func TestInjectionIsRefused(t *testing.T) {
	t.Parallel()
	in := start(t)
	name := in.ns + "-injects"
	gv := extensionsv1beta1.GroupVersion
	policies := in.kube.AdmissionregistrationV1().MutatingAdmissionPolicies()
	_, err := policies.Create(t.Context(), &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints:   in.onCreate(gv.Group, gv.Version, "sandboxclaims"),
			ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
			Mutations: []admissionv1.Mutation{{
				PatchType: admissionv1.PatchTypeJSONPatch,
				JSONPatch: &admissionv1.JSONPatch{Expression: `[JSONPatch{op: "add", path: "/spec/env", value: [{"name": "INJECTED", "value": "1"}]}]`},
			}},
		},
	}, metav1.CreateOptions{})
	in.must(err)
	bindings := in.kube.AdmissionregistrationV1().MutatingAdmissionPolicyBindings()
	_, err = bindings.Create(t.Context(), &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name},
	}, metav1.CreateOptions{})
	in.must(err)
	t.Cleanup(func() { in.took(policies.Delete, name); in.took(bindings.Delete, name) })
	probe := &claim{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: extensionsv1beta1.SandboxClaimSpec{
		WarmPoolRef: extensionsv1beta1.SandboxWarmPoolRef{Name: "none"},
	}}
	in.cluster.Eventually(t, "the policy is in force", func(ctx context.Context) (bool, error) {
		made, err := in.ext.ExtensionsV1beta1().SandboxClaims(in.ns).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil && len(made.Spec.Env) == 1, err
	})

	in.shell("injected", 0)
	in.fails("injected", "injection-refused")
	in.saidWhy("injection")
	in.remove("injected")
	in.nothingLeft()
}

// onCreate matches what is made of a kind in the tenant's namespace.
func (in *installation) onCreate(group, version, resource string) *admissionv1.MatchResources {
	return &admissionv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: in.ns}},
		ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource}},
		}}},
	}
}

// took deletes one object after a test.
func (in *installation) took(remove func(context.Context, string, metav1.DeleteOptions) error, name string) {
	in.t.Helper()
	if err := remove(context.WithoutCancel(in.t.Context()), name, metav1.DeleteOptions{}); err != nil {
		in.t.Errorf("delete %s: %v", name, err)
	}
}

// saidWhy wants the only session that failed to say why.
func (in *installation) saidWhy(words string) {
	in.t.Helper()
	r, err := in.Client("admin").ListSessionsWithResponse(in.Context(), nil)
	in.must(err)
	if n := len(r.JSON200.Items); n != 1 {
		in.t.Fatalf("%d sessions", n)
	}
	if said := fmt.Sprint(harness.Of[session.Failed](in.Facts(r.JSON200.Items[0].ID))); !strings.Contains(said, words) {
		in.t.Errorf("it failed for %s, and doesn't say %q", said, words)
	}
}
