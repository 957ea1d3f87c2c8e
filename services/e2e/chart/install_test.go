package chart_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The API server accepts every object of every rendering: as a dry run all of them, and
// then for real. Every Pod is admitted where the strictest standard is enforced.
func TestEveryObjectIsAccepted(t *testing.T) {
	c := apiServer(t)
	for name, file := range valuesFiles(t) {
		t.Run(name, func(t *testing.T) {
			own := "holdfast-of-" + name
			c.ensureNamespace(t, own, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
			objects := renderIn(t, own, withValues(file)...)
			for _, o := range objects { // what a dry run makes isn't there for the next
				if ns, ok := o.(*corev1.Namespace); ok {
					c.ensureNamespace(t, ns.Name, nil)
				}
			}
			for _, o := range objects {
				c.apply(t, o, client.DryRunAll)
			}
			for _, o := range objects {
				c.apply(t, o)
			}
			for owner, template := range pods(objects) {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "admitted-", Namespace: own, Labels: template.Labels}, Spec: template.Spec}
				if err := c.Create(t.Context(), pod, client.DryRunAll); err != nil {
					t.Errorf("%s: %v", owner, err)
				}
			}
		})
	}
}

// apply applies an object as kubectl would on the server.
func (c *cluster) apply(t *testing.T, o client.Object, opts ...client.PatchOption) {
	t.Helper()
	o = o.DeepCopyObject().(client.Object)
	opts = append(opts, client.FieldOwner("chart-test"), client.ForceOwnership)
	if err := c.Patch(t.Context(), o, client.Apply, opts...); err != nil { //nolint:staticcheck // what there is for any object
		t.Errorf("%s %s/%s: %v", o.GetObjectKind().GroupVersionKind().Kind, o.GetNamespace(), o.GetName(), err)
	}
}

// Helm itself: an upgrade keeps every Secret and the agents' address, another image is
// another installation Job, and what people lost by uninstalling would miss stays.
func TestInstallUpgradeUninstall(t *testing.T) {
	c := apiServer(t)
	const own, name = "holdfast-helm", "it"
	values := []string{"--set", "tenants[0].name=helm,tenants[0].namespace=helm-tenant,tenants[0].create=true"}
	chart, access := filepath.Join(root, "deploy/chart"), kubeconfig(t, c.Config())
	run := func(args ...string) string {
		t.Helper()
		out, err := helm(t, access, append(args, "--namespace", own)...)
		if err != nil {
			t.Fatalf("helm %v: %v", args, err)
		}
		return out
	}
	said := run(append([]string{"install", name, chart, "--create-namespace"}, values...)...)
	for _, word := range []string{"holdfast doctor --kube", "WARNING", "helm-tenant"} {
		if !strings.Contains(said, word) {
			t.Errorf("the notes don't say %q:\n%s", word, said)
		}
	}
	before, address, job := c.secrets(t, own), c.agentsAddress(t, own), c.jobs(t, own)
	if len(before) != 15 || address == "" || len(job) != 1 {
		t.Fatalf("installed: %d secrets, agents at %q, jobs %v", len(before), address, job)
	}

	run(append([]string{"upgrade", name, chart, "--set", "image.tag=next,services.gateway.replicas=3"}, values...)...)
	after := c.secrets(t, own)
	for key, value := range before {
		if !bytes.Equal(after[key], value) {
			t.Errorf("the upgrade changed the secret %s", key)
		}
	}
	if got := c.agentsAddress(t, own); got != address {
		t.Errorf("the upgrade moved the agents' address from %s to %s: no sandbox would find it", address, got)
	}
	if got := c.jobs(t, own); len(got) != 1 || got[0] == job[0] {
		t.Errorf("another image, and the installation is %v, was %v", got, job)
	}
	var gateway appsv1.Deployment
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: own, Name: "it-holdfast-gateway"}, &gateway); err != nil || *gateway.Spec.Replicas != 3 {
		t.Errorf("gateway: %+v, %v", gateway.Spec.Replicas, err)
	}

	run("uninstall", name)
	if got := c.secrets(t, own); len(got) != len(before) {
		t.Errorf("%d secrets are left of %d: the disks' passwords", len(got), len(before))
	}
	var namespace corev1.Namespace
	if err := c.Get(t.Context(), client.ObjectKey{Name: "helm-tenant"}, &namespace); err != nil || namespace.DeletionTimestamp != nil {
		t.Errorf("the tenant's namespace went with its volumes: %v", err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(&gateway), &gateway); !apierrors.IsNotFound(err) {
		t.Errorf("the gateway is left: %v", err)
	}

	run(append([]string{"install", name, chart}, values...)...)
	for key, value := range c.secrets(t, own) {
		if !bytes.Equal(before[key], value) {
			t.Errorf("installed again it doesn't know the secret %s any more", key)
		}
	}
}

// Where the disks of one server are, also of an installation that was removed, three are
// refused: each would join a cluster that knows nothing of the log, and remove it.
func TestAnotherNumberOfServersIsRefused(t *testing.T) {
	c := apiServer(t)
	const own, name = "holdfast-disks", "disks"
	c.ensureNamespace(t, own, nil)
	if err := c.Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: "data-disks-holdfast-nats-0"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("20Gi")}},
		},
	}); err != nil {
		t.Fatal(err)
	}
	access := kubeconfig(t, c.Config())
	for replicas, refused := range map[string]bool{"1": false, "3": true, "5": true} {
		_, err := helm(t, access, "install", name, filepath.Join(root, "deploy/chart"), "--dry-run=server", "--namespace", own,
			"--set", "tenants[0].name=disks,tenants[0].namespace=disks-tenant,tenants[0].create=true,nats.replicas="+replicas)
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "nats.replicas") {
			t.Errorf("%s servers: %v", replicas, err)
		}
	}
}

// secrets are all values that the chart made, by Secret and key.
func (c *cluster) secrets(t *testing.T, namespace string) map[string][]byte {
	t.Helper()
	var list corev1.SecretList
	if err := c.List(t.Context(), &list, client.InNamespace(namespace), client.MatchingLabels{"app.kubernetes.io/name": "holdfast"}); err != nil {
		t.Fatal(err)
	}
	values := map[string][]byte{}
	for _, s := range list.Items {
		for key, value := range s.Data {
			values[s.Name+"/"+key] = value
		}
	}
	return values
}

// agentsAddress is what sandboxes are told.
func (c *cluster) agentsAddress(t *testing.T, namespace string) string {
	t.Helper()
	var s corev1.Service
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "it-holdfast-agents"}, &s); err != nil {
		t.Fatal(err)
	}
	return s.Spec.ClusterIP
}

// jobs are the names of the installation's Jobs.
func (c *cluster) jobs(t *testing.T, namespace string) []string {
	t.Helper()
	var list batchv1.JobList
	if err := c.List(t.Context(), &list, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, j := range list.Items {
		if j.DeletionTimestamp == nil {
			names = append(names, j.Name)
		}
	}
	return names
}
