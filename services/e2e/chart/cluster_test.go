package chart_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// cluster is an API server without a controller or a node: what it accepts and whom it
// allows is what these tests are about.
type cluster struct {
	client.Client
	config     *rest.Config
	kubeconfig string
}

// running is the one of this package; TestMain stops it.
var running struct {
	sync.Mutex
	env *envtest.Environment
	*cluster
}

func TestMain(m *testing.M) {
	code := m.Run()
	if running.env != nil {
		if err := running.env.Stop(); err != nil {
			code = 1
		}
	}
	os.Exit(code)
}

// apiServer gives the package's API server, with agent-sandbox's definitions and the
// Prometheus operator's PodMonitor, of which no field is checked.
func apiServer(t *testing.T) *cluster {
	t.Helper()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		if os.Getenv("HOLDFAST_REQUIRE_KUBE") == "1" {
			t.Fatal("KUBEBUILDER_ASSETS isn't set")
		}
		t.Skip("needs an API server: run make test-kube")
	}
	running.Lock()
	defer running.Unlock()
	if running.cluster != nil {
		return running.cluster
	}
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/agent-sandbox").Output()
	if err != nil {
		t.Fatal(err)
	}
	env := &envtest.Environment{
		CRDDirectoryPaths: []string{filepath.Join(strings.TrimSpace(string(dir)), "k8s/crds")},
		CRDs:              []*apiextensionsv1.CustomResourceDefinition{podMonitor()}, ErrorIfCRDPathMissing: true,
	}
	config, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	running.env = env
	// Nothing bounds how often a test asks.
	config.QPS = -1
	admin, err := env.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, config)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := admin.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(os.TempDir(), filepath.Base(t.TempDir())+".kubeconfig")
	if err := os.WriteFile(kubeconfig, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	running.cluster = &cluster{Client: c, config: config, kubeconfig: kubeconfig}
	return running.cluster
}

// podMonitor is the definition of PodMonitors.
func podMonitor() *apiextensionsv1.CustomResourceDefinition {
	yes := true
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "podmonitors.monitoring.coreos.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "monitoring.coreos.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "podmonitors", Singular: "podmonitor", Kind: "PodMonitor", ListKind: "PodMonitorList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: &yes,
				}},
			}},
		},
	}
}

// ensureNamespace makes a namespace with the labels, where it isn't there.
func (c *cluster) ensureNamespace(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}
