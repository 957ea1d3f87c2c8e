package chart_test

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// root is the repository, from here.
const root = "../../.."

const (
	release   = "holdfast"
	namespace = "holdfast-system"
)

// helm runs Helm and gives what it says; kubeconfig may be empty.
func helm(t *testing.T, kubeconfig string, args ...string) (string, error) {
	t.Helper()
	binary := os.Getenv("HOLDFAST_HELM")
	if binary == "" {
		if os.Getenv("HOLDFAST_REQUIRE_KUBE") == "1" {
			t.Fatal("HOLDFAST_HELM isn't set")
		}
		t.Skip("needs Helm: run make test-kube, or set HOLDFAST_HELM=$(scripts/tool.sh --path helm)")
	}
	home := t.TempDir()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig,
		"HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = errors.New(string(exit.Stderr))
	}
	return string(out), err
}

// valuesFiles are the chart's ci files by their names, and "" for the defaults.
func valuesFiles(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{"defaults": ""}
	found, err := filepath.Glob(filepath.Join(root, "deploy/chart/ci/*-values.yaml"))
	if err != nil || len(found) == 0 {
		t.Fatalf("no values files: %v", err)
	}
	for _, f := range found {
		files[strings.TrimSuffix(filepath.Base(f), "-values.yaml")] = f
	}
	return files
}

// withValues are the arguments that name a file of values.
func withValues(file string) []string {
	if file == "" {
		return nil
	}
	return []string{"--values", file}
}

// render gives the chart's objects. What Kubernetes itself defines is decoded strictly:
// a field that doesn't exist fails the test.
func render(t *testing.T, args ...string) []client.Object {
	t.Helper()
	return renderIn(t, namespace, args...)
}

// renderIn is render for a namespace of the caller's.
func renderIn(t *testing.T, namespace string, args ...string) []client.Object {
	t.Helper()
	out, err := helm(t, "", append([]string{"template", release, filepath.Join(root, "deploy/chart"), "--namespace", namespace}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, out)
}

func decode(t *testing.T, manifests string) []client.Object {
	t.Helper()
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(manifests)))
	var objects []client.Object
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(document), "kind:") { // only comments
			continue
		}
		decoded, _, err := strict.Decode(document, nil, nil)
		if runtime.IsNotRegisteredError(err) {
			u := &unstructured.Unstructured{}
			err = yaml.Unmarshal(document, &u.Object)
			decoded = u
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		object, ok := decoded.(client.Object)
		if !ok {
			t.Fatalf("%T is no object", decoded)
		}
		objects = append(objects, object)
	}
}
