package onenode

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	sandboxv1beta1 "sigs.k8s.io/agent-sandbox/api/v1beta1"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// newScheme knows what Kubernetes and agent-sandbox define.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, sandboxv1beta1.AddToScheme, extensionsv1beta1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}

const (
	controllerImage = "localhost/agent-sandbox-controller:local"
	controllerName  = "agent-sandbox-controller"
	controllerSpace = "agent-sandbox-system"
)

// InstallAgentSandbox installs agent-sandbox by its own manifests: its controller runs
// in a Pod, under its own service account. Only what needs a certificate is left out,
// the conversion between the versions of its resources: the one in use alone is served.
func (n *Node) InstallAgentSandbox(ctx context.Context) error {
	if err := n.Load(ctx, Image{
		Name: controllerImage, Entrypoint: []string{"/" + controllerName}, User: "65532:65532",
		Files: map[string]string{"/" + controllerName: n.part(controllerName)},
	}); err != nil {
		return err
	}
	manifests, err := n.agentSandbox()
	if err != nil {
		return err
	}
	for _, m := range manifests {
		if err := n.apply(ctx, m); err != nil {
			return err
		}
	}
	return wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		var d appsv1.Deployment
		err := n.Client.Get(ctx, client.ObjectKey{Namespace: controllerSpace, Name: controllerName}, &d)
		return d.Status.ReadyReplicas > 0, err
	})
}

// agentSandbox are its manifests, fit for this cluster, in an order that they can be
// applied in.
func (n *Node) agentSandbox() ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for _, pattern := range []string{"crds/*.yaml", "*.yaml"} {
		files, err := filepath.Glob(n.part(filepath.Join("agent-sandbox", pattern)))
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			raw, err := os.ReadFile(f)
			if err != nil {
				return nil, err
			}
			read, err := decode(raw)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", f, err)
			}
			all = append(all, read...)
		}
	}
	all = slices.DeleteFunc(all, func(u *unstructured.Unstructured) bool {
		switch u.GetKind() {
		case "Kustomization":
			return true
		case "Deployment": // of two, the one that has the extensions
			return !strings.Contains(fmt.Sprint(u.Object), "--extensions")
		}
		return false
	})
	slices.SortStableFunc(all, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	for _, u := range all {
		switch u.GetKind() {
		case "CustomResourceDefinition":
			if err := serveOnly(u, "v1beta1"); err != nil {
				return nil, err
			}
		case "Deployment":
			if err := fit(u); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// rank puts first what others are of.
func rank(u *unstructured.Unstructured) int {
	first := []string{"Namespace", "CustomResourceDefinition", "ServiceAccount"}
	if i := slices.Index(first, u.GetKind()); i >= 0 {
		return i
	}
	return len(first)
}

// serveOnly leaves a definition one version, which needs no conversion.
func serveOnly(u *unstructured.Unstructured, version string) error {
	versions, _, err := unstructured.NestedSlice(u.Object, "spec", "versions")
	if err != nil {
		return err
	}
	versions = slices.DeleteFunc(versions, func(v any) bool {
		m, ok := v.(map[string]any)
		return !ok || m["name"] != version
	})
	unstructured.RemoveNestedField(u.Object, "spec", "conversion")
	return unstructured.SetNestedSlice(u.Object, versions, "spec", "versions")
}

// fit has the controller's Deployment run the image that the node has.
func fit(u *unstructured.Unstructured) error {
	containers, _, err := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 {
		return fmt.Errorf("deployment %s: one container was expected (%w)", u.GetName(), err)
	}
	c, ok := containers[0].(map[string]any)
	if !ok {
		return fmt.Errorf("deployment %s has no container", u.GetName())
	}
	c["image"], c["imagePullPolicy"] = controllerImage, "Never"
	c["args"] = []any{"--leader-elect=true", "--extensions", "--enable-webhook=false"}
	c["readinessProbe"] = map[string]any{"httpGet": map[string]any{"path": "/readyz", "port": "healthz"}, "periodSeconds": int64(1)}
	return unstructured.SetNestedSlice(u.Object, containers, "spec", "template", "spec", "containers")
}

// decode reads manifests.
func decode(manifests []byte) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifests)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &u.Object); err != nil {
			return nil, err
		}
		if len(u.Object) > 0 && u.GetKind() != "" {
			all = append(all, u)
		}
	}
}

// apply applies an object on the server's side, as an administrator.
func (n *Node) apply(ctx context.Context, u *unstructured.Unstructured) error {
	err := n.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("onenode"), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return nil
}

// Helm runs Helm as an administrator.
func (n *Node) Helm(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, n.part("helm"), args...)
	home := n.path("helm")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+n.Kubeconfig, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("helm %s: %w: %s", args[0], err, out)
	}
	return nil
}
