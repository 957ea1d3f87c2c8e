package chart_test

import (
	"crypto/ed25519"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/services/internal/clusterfile"
	"github.com/holdfast-io/holdfast/services/internal/keyfile"
	"github.com/holdfast-io/holdfast/services/internal/kuberights"
	"github.com/holdfast-io/holdfast/services/internal/tokenfile"
)

// Each rendering, whatever it is given, keeps to these rules.
func TestRenderings(t *testing.T) {
	t.Parallel()
	for name, file := range valuesFiles(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := render(t, withValues(file)...)
			for owner, pod := range pods(objects) {
				restricted(t, owner, pod)
			}
			t.Run("secrets", func(t *testing.T) { keepsSecretsApart(t, objects) })
			t.Run("rights", func(t *testing.T) { grantsTheList(t, objects) })
			t.Run("cluster", func(t *testing.T) { describesItself(t, objects) })
			t.Run("budgets", func(t *testing.T) { budgetsSelect(t, objects) })
		})
	}
}

// pods are the Pod specs among objects, by what makes them.
func pods(objects []client.Object) map[string]corev1.PodTemplateSpec {
	found := map[string]corev1.PodTemplateSpec{}
	for _, o := range objects {
		switch o := o.(type) {
		case *appsv1.Deployment:
			found[o.Name] = o.Spec.Template
		case *appsv1.StatefulSet:
			pod := *o.Spec.Template.DeepCopy()
			for _, claim := range o.Spec.VolumeClaimTemplates { // as the StatefulSet's controller does
				pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
				}})
			}
			found[o.Name] = pod
		case *batchv1.Job:
			found["install"] = o.Spec.Template
		}
	}
	return found
}

func restricted(t *testing.T, owner string, pod corev1.PodTemplateSpec) {
	t.Helper()
	s := pod.Spec
	if s.SecurityContext == nil || s.SecurityContext.RunAsNonRoot == nil || !*s.SecurityContext.RunAsNonRoot ||
		s.SecurityContext.SeccompProfile == nil || s.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%s: it may be root, or call what it likes: %+v", owner, s.SecurityContext)
	}
	if asks := strings.HasSuffix(owner, "-workload"); s.AutomountServiceAccountToken == nil || *s.AutomountServiceAccountToken != asks {
		t.Errorf("%s: a token of Kubernetes in it must be %v", owner, asks)
	}
	for _, c := range slices.Concat(s.InitContainers, s.Containers) {
		sc := c.SecurityContext
		switch {
		case sc == nil || sc.AllowPrivilegeEscalation == nil || *sc.AllowPrivilegeEscalation,
			sc.ReadOnlyRootFilesystem == nil || !*sc.ReadOnlyRootFilesystem,
			sc.Capabilities == nil || !slices.Equal(sc.Capabilities.Drop, []corev1.Capability{"ALL"}):
			t.Errorf("%s/%s: not restricted: %+v", owner, c.Name, sc)
		case c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Memory().IsZero():
			t.Errorf("%s/%s: no limit or request of memory", owner, c.Name)
		}
	}
}

// keepsSecretsApart checks that each process gets its own password and key and no other's.
func keepsSecretsApart(t *testing.T, objects []client.Object) {
	for owner, pod := range pods(objects) {
		if strings.HasSuffix(owner, "-nats") { // it checks all of them
			continue
		}
		for _, c := range pod.Spec.Containers {
			for _, e := range c.Env {
				user, isPassword := strings.CutPrefix(e.Name, "HOLDFAST_NATS_PASSWORD_")
				if isPassword && c.Name != strings.ToLower(user) && (c.Name != "install" || user != "INSTALLER") {
					t.Errorf("%s has the password of %s", owner, user)
				}
				if isPassword && e.Value != "" {
					t.Errorf("%s has a password in clear", owner)
				}
			}
		}
		for _, v := range pod.Spec.Volumes {
			if v.Secret == nil {
				continue
			}
			if len(v.Secret.Items) == 0 {
				t.Errorf("%s mounts the whole of %s", owner, v.Secret.SecretName)
			}
			for _, i := range v.Secret.Items {
				if i.Key == "sandbox.pem" && !strings.HasSuffix(owner, "-workload") {
					t.Errorf("%s has the private key for sandboxes", owner)
				}
			}
		}
	}
}

// grantsTheList compares every rule of the chart with package kuberights, both ways.
func grantsTheList(t *testing.T, objects []client.Object) {
	tenants := 0
	for _, o := range objects {
		var scope kuberights.Scope
		var got []rbacv1.PolicyRule
		switch o := o.(type) {
		case *rbacv1.ClusterRole:
			if scope, got = kuberights.Cluster, o.Rules; strings.HasSuffix(o.Name, "-nodes") {
				scope = kuberights.Nodes
			}
		case *rbacv1.Role:
			if scope, got = kuberights.Tenant, o.Rules; o.Namespace == namespace {
				scope = kuberights.Installation
			} else {
				tenants++
			}
		case *rbacv1.RoleBinding:
			subjects(t, o.Name, o.Subjects)
			continue
		case *rbacv1.ClusterRoleBinding:
			subjects(t, o.Name, o.Subjects)
			continue
		default:
			continue
		}
		if want := kuberights.Rules(scope); !equality.Semantic.DeepEqual(got, want) {
			t.Errorf("%s %s/%s grants\n%+v, and the list of %s is\n%+v", o.GetObjectKind().GroupVersionKind().Kind, o.GetNamespace(), o.GetName(), got, scope, want)
		}
	}
	if tenants == 0 {
		t.Error("no role in a tenant's namespace")
	}
}

func subjects(t *testing.T, binding string, got []rbacv1.Subject) {
	t.Helper()
	if len(got) != 1 || got[0].Kind != "ServiceAccount" || got[0].Namespace != namespace || !strings.HasSuffix(got[0].Name, "-workload") {
		t.Errorf("%s gives rights to %+v", binding, got)
	}
}

// describesItself checks that the file for the workload service can be read, and names
// what is there.
func describesItself(t *testing.T, objects []client.Object) {
	for _, o := range objects {
		cm, ok := o.(*corev1.ConfigMap)
		if !ok || cm.Data["cluster.yaml"] == "" {
			continue
		}
		path := filepath.Join(t.TempDir(), "cluster.yaml")
		if err := os.WriteFile(path, []byte(cm.Data["cluster.yaml"]), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := clusterfile.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, address := range []string{file.AgentsURL, file.APIURL} {
			if !slices.ContainsFunc(objects, func(o client.Object) bool { return serves(o, address) }) {
				t.Errorf("no service is at %s", address)
			}
		}
		for tenant, namespace := range file.Tenants {
			if !slices.ContainsFunc(objects, func(o client.Object) bool {
				_, is := o.(*corev1.ServiceAccount)
				return is && o.GetNamespace() == namespace && o.GetName() == file.ServiceAccount
			}) {
				t.Errorf("sandboxes of %s have no service account %s in %s", tenant, file.ServiceAccount, namespace)
			}
		}
		return
	}
	t.Error("there is no cluster file")
}

// serves says whether an object is the Service of a URL.
func serves(o client.Object, address string) bool {
	s, ok := o.(*corev1.Service)
	return ok && address == fmt.Sprintf("http://%s.%s:%d", s.Name, s.Namespace, s.Spec.Ports[0].Port)
}

// budgetsSelect checks that each budget is of Pods that there are, and that every
// service with two replicas or more has one.
func budgetsSelect(t *testing.T, objects []client.Object) {
	all := pods(objects)
	covered := map[string]bool{}
	for _, o := range objects {
		budget, ok := o.(*policyv1.PodDisruptionBudget)
		if !ok || budget.Namespace != namespace {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil {
			t.Fatal(err)
		}
		var selected []string
		for owner, pod := range all {
			if selector.Matches(labels.Set(pod.Labels)) {
				selected = append(selected, owner)
				covered[owner] = true
			}
		}
		if len(selected) != 1 {
			t.Errorf("%s is of %v", budget.Name, selected)
		}
	}
	for owner := range all {
		if owner != "install" && !strings.HasSuffix(owner, "-postgres") && !covered[owner] {
			t.Errorf("%s has no budget", owner)
		}
	}
}

// Each tenant's sessions have the budget that package kuberights describes, but where the
// workload service can't see that a drain waits for it, or it isn't wanted.
func TestEvictionsAreHeldBack(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]int{"": 2, "sandboxes.holdEvictions=false": 0, "sandboxes.watchNodes=false": 0} {
		held := 0
		for _, o := range render(t, "--set", "tenants[0].name=a,tenants[0].namespace=of-a,tenants[1].name=b,tenants[1].namespace=of-b", "--set", set) {
			budget, ok := o.(*policyv1.PodDisruptionBudget)
			if !ok || budget.Namespace == namespace {
				continue
			}
			held++
			if want := kuberights.Budget(); budget.Name != kuberights.BudgetName || !equality.Semantic.DeepEqual(budget.Spec, want) {
				t.Errorf("the budget %s of %s is\n%+v, and should be\n%+v", budget.Name, budget.Namespace, budget.Spec, want)
			}
		}
		if held != want {
			t.Errorf("--set %s: %d tenants have a budget", set, held)
		}
	}
}

// The Secrets that the chart makes are what the services read.
func TestGeneratedSecrets(t *testing.T) {
	t.Parallel()
	secrets := map[string]map[string][]byte{}
	for _, o := range render(t) {
		if s, ok := o.(*corev1.Secret); ok {
			secrets[s.Name] = s.Data
		}
	}
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key := secrets[release+"-sandbox-key"]
	private, err := keyfile.Private(write("sandbox.pem", key["sandbox.pem"]))
	if err != nil {
		t.Fatal(err)
	}
	public, err := keyfile.Public(write("sandbox.pem.pub", key["sandbox.pem.pub"]))
	if err != nil {
		t.Fatal(err)
	}
	if said := []byte("of one pair"); !ed25519.Verify(public, said, ed25519.Sign(private, said)) {
		t.Error("the public half isn't that of the key")
	}
	people, err := tokenfile.Read(write("tokens.yaml", secrets[release+"-tokens"]["tokens.yaml"]))
	if err != nil || len(people) != 1 || people[0].Token != string(secrets[release+"-tokens"]["admin"]) {
		t.Errorf("people: %+v, %v", people, err)
	}
}

// Values that can't be meant are refused before anything is made, with what is wrong.
func TestNonsenseIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ set, says string }{
		{"imagee.tag=x", "imagee"},
		{"image.pullPolicy=Sometimes", "pullPolicy"},
		{"services.session.replicas=0", "replicas"},
		{"services.billing.replicas=1", "billing"},
		{"nats.replicas=2", "nats/replicas"},
		{"nats.external.url=nats://a:4222", "existingSecret"},
		{"nats.external.url=http://a", "url"},
		{"nats.storage.size=much", "size"},
		{"gateway.agents.port=70000", "port"},
		{"gateway.agents.clusterIP=here", "clusterIP"},
		{"ingress.enabled=true", "host"},
		{"ingress.enabled=true,ingress.host=*.example.com", "gateway.origins"},
		{"gateway.origins[0]=holdfast.example.com", "origins"},
		{"gateway.origins[0]=https://holdfast.example.com/ui", "origins"},
		{"gateway.service.sessionAffinity=Cookie", "sessionAffinity"},
		{"podSecurity=lax", "podSecurity"},
		{"tenants[0].name=Default", "name"},
		{"tenants[0].name=a,tenants[0].namespace=" + namespace, "Holdfast's own Secrets"},
		{"tenants[0].name=a,tenants[0].namespace=one,tenants[1].name=b,tenants[1].namespace=one", "share the namespace"},
		{"tenants[0].name=a,tenants[0].namespace=one,tenants[1].name=a,tenants[1].namespace=two", "twice"},
		{"networkPolicy.apiServer.ports[0]=0", "ports"},
	} {
		_, err := helm(t, "", "template", release, filepath.Join(root, "deploy/chart"), "--namespace", namespace, "--set", c.set)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("--set %s: %v; it should speak of %q", c.set, err, c.says)
		}
	}
}
