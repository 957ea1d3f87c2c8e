package podtemplate_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"
	strictjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
	"github.com/holdfast-io/holdfast/services/workload/internal/podtemplate"
)

var update = flag.Bool("update", false, "write what is made to testdata")

func options() podtemplate.Options {
	peer := func(component string) networkingv1.NetworkPolicyPeer {
		return networkingv1.NetworkPolicyPeer{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "holdfast"}},
			PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/component": component}},
		}
	}
	return podtemplate.Options{
		Image: "holdfast:1.0", PullPolicy: corev1.PullIfNotPresent, PullSecrets: []string{"registry"},
		BindKey:        bytes.Repeat([]byte{7}, ed25519.PublicKeySize),
		Callers:        []networkingv1.NetworkPolicyPeer{peer("gateway"), peer("runner"), peer("workload")},
		Agents:         []networkingv1.NetworkPolicyPeer{peer("gateway")},
		AgentsPort:     8081,
		RuntimeClasses: map[string]string{"gvisor": "gvisor"},
		Labels:         map[string]string{"holdfast.dev/component": "sandbox"},
	}
}

// agent is a runtime with everything that needs no admin.
func agent() driver.RuntimeSpec {
	return driver.RuntimeSpec{
		Name: "default.coder", Revision: 3, Kind: "agent", Argv: []string{"python3", "agent.py"},
		Env: []string{"LOG=info", "PROMPT=$(date) = now"}, Adapter: "agui", Port: 8000, ReadyPath: "/health", RunPath: "/run",
		WorkspacePath: "/workspace", HasVolume: true,
		Pod: &driver.PodSpec{
			Image: "acme/coder:1.4", RuntimeClassName: "gvisor", ServiceAccount: "coder",
			Requests: map[string]string{"cpu": "100m"}, Limits: map[string]string{"cpu": "1", "memory": "1Gi"},
			StorageClass: "fast", VolumeSize: "5Gi", Grace: 30 * time.Second,
		},
	}
}

// changed is the runtime with a change.
func changed(change func(*driver.RuntimeSpec)) driver.RuntimeSpec {
	s := agent()
	change(&s)
	return s
}

func TestGolden(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]driver.RuntimeSpec{
		"agent": agent(),
		"bare": {
			Name: "default.bare", Revision: 1, Kind: "code-interpreter", Adapter: "none", WorkspacePath: "/workspace",
			Pod: &driver.PodSpec{Image: "python:3.13"},
		},
		"shell": {
			Name: "default.sh", Revision: 1, Kind: "agent", Argv: []string{sandboxapi.JailBinary, "shell-agent"}, Adapter: "agui",
			Port: 8000, WorkspacePath: "/work", Limits: driver.Limits{DiskBytes: 1 << 30}, Pod: &driver.PodSpec{Image: "debian:bookworm"},
		},
		"exec": {
			Name: "default.exec", Revision: 1, Kind: "agent", Argv: []string{"python3", "/app/agent.py", "$HOME"}, Adapter: "exec",
			WorkspacePath: "/workspace", Pod: &driver.PodSpec{Image: "acme/exec:1"},
		},
		"admin": changed(func(s *driver.RuntimeSpec) {
			s.Argv, s.Env = nil, nil
			s.Pod = &driver.PodSpec{PodTemplate: readJSON(t, "admin.in.yaml"), AllowSecrets: true}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := podtemplate.Build(spec, options())
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name+".yaml", b)
		})
	}
}

// What Kubernetes makes of words is what the runtime says.
func TestWordsStayAsTheyAre(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringOf(rapid.SampledFrom([]rune("$()AB"))).Draw(t, "word")
		b, err := podtemplate.Build(driver.RuntimeSpec{
			Argv: []string{"run", word}, Env: []string{"A=" + word}, Adapter: "none", WorkspacePath: "/w", Pod: &driver.PodSpec{Image: "a"},
		}, options())
		if err != nil {
			t.Fatal(err)
		}
		c := b.Spec.PodTemplate.Spec.Containers[0]
		if argument, variable := expand(c.Command[1]), expand(c.Env[0].Value); argument != word || variable != word {
			t.Fatalf("%q arrives as argument %q and as variable %q", word, argument, variable)
		}
	})
}

// expand replaces as Kubernetes documents it of a container's command and variables:
// $(NAME) by a value, $$ by one $.
func expand(word string) string {
	var out strings.Builder
	for i := 0; i < len(word); i++ {
		switch {
		case word[i] != '$' || i+1 == len(word):
			out.WriteByte(word[i])
		case word[i+1] == '$':
			out.WriteByte('$')
			i++
		case word[i+1] == '(' && strings.Contains(word[i:], ")"):
			out.WriteString("a value")
			i += strings.Index(word[i:], ")")
		default:
			out.WriteByte('$')
		}
	}
	return out.String()
}

// golden compares a blueprint with the file, which holds the template as kubectl would
// show it.
func golden(t *testing.T, file string, b podtemplate.Blueprint) {
	t.Helper()
	got, err := yaml.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines, wanted := strings.Split(string(got), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(lines), len(wanted)) {
		if i >= len(lines) || i >= len(wanted) || lines[i] != wanted[i] {
			t.Errorf("%s differs from what is made (-update writes it), from line %d on:\n%s", path, i+1,
				strings.Join(lines[i:min(len(lines), i+10)], "\n"))
			break
		}
	}
	roundTrip(t, b.Spec)
}

// roundTrip reads the spec back as an API server does, which refuses unknown fields.
func roundTrip(t interface{ Fatalf(string, ...any) }, spec extensionsv1beta1.SandboxTemplateSpec) {
	raw, err := json.Marshal(spec)
	if err != nil {
		t.Fatalf("marshal: %v", err)
	}
	var back extensionsv1beta1.SandboxTemplateSpec
	unknown, err := strictjson.UnmarshalStrict(raw, &back)
	if err != nil || len(unknown) > 0 {
		t.Fatalf("read back: %v %v", err, unknown)
	}
	again, err := json.Marshal(back)
	if err != nil || !bytes.Equal(raw, again) {
		t.Fatalf("read back as\n%s\nwant\n%s (%v)", again, raw, err)
	}
}

func readJSON(t *testing.T, file string) json.RawMessage {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestEqualArgumentsGiveEqualBlueprints(t *testing.T) {
	t.Parallel()
	first, err := podtemplate.Build(agent(), options())
	if err != nil {
		t.Fatal(err)
	}
	for range 20 { // maps come in another order each time
		again, err := podtemplate.Build(agent(), options())
		if err != nil || !reflect.DeepEqual(first, again) {
			t.Fatalf("another blueprint: %v", err)
		}
	}
}

// pointers are the places that an error names.
func pointers(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	refused, ok := errors.AsType[*podtemplate.RefusedError](err)
	if !ok || !errors.Is(err, driver.ErrInvalid) {
		t.Fatalf("is no refusal of the runtime: %v", err)
	}
	var out []string
	for _, w := range refused.Wrong {
		out = append(out, w.Pointer)
		if !strings.Contains(err.Error(), w.Detail) {
			t.Errorf("the error doesn't say %q: %v", w.Detail, err)
		}
	}
	return out
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		spec driver.RuntimeSpec
		want string
	}{
		"no image":        {changed(func(s *driver.RuntimeSpec) { s.Pod.Image = "" }), "/sandbox/image"},
		"no Pod at all":   {changed(func(s *driver.RuntimeSpec) { s.Pod = nil }), "/sandbox/image"},
		"a runtime class": {changed(func(s *driver.RuntimeSpec) { s.Pod.RuntimeClassName = "kata" }), "/sandbox/runtimeClassName"},
		"a limit":         {changed(func(s *driver.RuntimeSpec) { s.Pod.Limits["memory"] = "much" }), "/sandbox/resources/limits/memory"},
		"a request":       {changed(func(s *driver.RuntimeSpec) { s.Pod.Requests["cpu"] = "-1" }), "/sandbox/resources/requests/cpu"},
		"a size":          {changed(func(s *driver.RuntimeSpec) { s.Pod.VolumeSize = "0" }), "/workspace/size"},
		"a variable":      {changed(func(s *driver.RuntimeSpec) { s.Env = []string{"A=b", "HOLDFAST_URL=x"} }), "/sandbox/env/1/name"},
		"the port":        {changed(func(s *driver.RuntimeSpec) { s.Env = []string{"PORT=1"} }), "/sandbox/env/0/name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := podtemplate.Build(tc.spec, options())
			if got := pointers(t, err); !reflect.DeepEqual(got, []string{tc.want}) {
				t.Errorf("refused at %v, want %s", got, tc.want)
			}
		})
	}
}
