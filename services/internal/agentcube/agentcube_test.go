package agentcube_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/services/internal/agentcube"
)

var update = flag.Bool("update", false, "write what is made to testdata")

// Each manifest of testdata becomes the runtime beside it. The two without "plain" have
// every field.
func TestGolden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("%v (%v)", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			manifest, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !agentcube.Is(manifest) {
				t.Fatal("isn't taken for AgentCube's")
			}
			r, err := agentcube.Read(manifest, "team-a")
			if err != nil {
				t.Fatal(err)
			}
			got, err := yaml.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			golden := strings.TrimSuffix(file, ".in.yaml") + ".yaml"
			if *update {
				if err := os.WriteFile(golden, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("becomes\n%s\nwant (%v)\n%s", got, err, want)
			}
		})
	}
}

// The example for a cluster (docs/kubernetes.md) is taken without a word, and needs no admin.
func TestExample(t *testing.T) {
	t.Parallel()
	manifest, err := os.ReadFile(filepath.Join("..", "..", "..", "examples", "kubernetes", "agentcube.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := agentcube.Read(manifest, "team-a")
	if err != nil || len(r.Notes) > 0 || r.Name != "python" || r.Spec.WarmPool.Size != 1 || len(r.Spec.Sandbox.PodTemplate) > 0 {
		t.Errorf("becomes %+v (%v)", r, err)
	}
}

// edited is a manifest of testdata with one text for another.
func edited(t *testing.T, file, from, to string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Count(text, []byte(from)) != 1 {
		t.Fatalf("%s has %q %d times", file, from, bytes.Count(text, []byte(from)))
	}
	return bytes.Replace(text, []byte(from), []byte(to), 1)
}

// What can't be honoured is refused where it stands.
func TestRefused(t *testing.T) {
	t.Parallel()
	const agent, code, plain = "agentruntime.in.yaml", "codeinterpreter.in.yaml", "codeinterpreter-plain.in.yaml"
	for name, tc := range map[string]struct{ file, from, to, want string }{
		"another version":         {agent, "v1alpha1", "v1", "/apiVersion"},
		"another kind":            {agent, "kind: AgentRuntime", "kind: Session", "/kind"},
		"no name":                 {plain, "{name: plain}", "{}", "/metadata/name"},
		"another namespace":       {agent, "team-a", "team-b", "/metadata/namespace"},
		"a label":                 {plain, "{name: plain}", "{name: plain, labels: {a: b}}", "/metadata/labels"},
		"an annotation":           {plain, "{name: plain}", "{name: plain, annotations: {a: b}}", "/metadata/annotations"},
		"a name to be made":       {plain, "{name: plain}", "{name: plain, generateName: p-}", "/metadata/generateName"},
		"a finalizer":             {plain, "{name: plain}", "{name: plain, finalizers: [a]}", "/metadata/finalizers"},
		"an owner":                {plain, "{name: plain}", "{name: plain, ownerReferences: [{kind: A}]}", "/metadata/ownerReferences"},
		"unknown metadata":        {plain, "{name: plain}", "{name: plain, nam: x}", "/metadata/nam"},
		"an unknown field":        {agent, "maxSessionDuration", "maxSessionduration", "/spec/maxSessionduration"},
		"another's template":      {agent, "  podTemplate:", "  templateRef: {name: x}\n  podTemplate:", "/spec/templateRef"},
		"an unknown field beside": {agent, "status:", "state:", "/state"},
		"an unknown port's field": {agent, "pathPrefix", "path", "/spec/targetPort/0/path"},
		"an unknown word of it":   {code, "imagePullPolicy", "imagePolicy", "/spec/template/imagePolicy"},
		"a second port":           {agent, "protocol: HTTP}", "protocol: HTTP}\n    - {port: 81}", "/spec/targetPort/1"},
		"a port out of range":     {code, "port: 9000", "port: 0", "/spec/ports/0/port"},
		"TLS":                     {agent, "protocol: HTTP", "protocol: HTTPS", "/spec/targetPort/0/protocol"},
		"no duration":             {agent, "sessionTimeout: 30m", "sessionTimeout: soon", "/spec/sessionTimeout"},
		"a duration back":         {code, "2h", "-2h", "/spec/maxSessionDuration"},
		"a pool below nothing":    {code, "warmPoolSize: 4", "warmPoolSize: -4", "/spec/warmPoolSize"},
		"another authentication":  {code, "authMode: none", "authMode: mtls", "/spec/authMode"},
		"no image":                {plain, "image: acme/python:3", "", "/spec/template/image"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := agentcube.Read(edited(t, tc.file, tc.from, tc.to), "team-a")
			refused, ok := errors.AsType[*agentcube.RefusedError](err)
			if !ok || len(refused.Wrong) != 1 || refused.Wrong[0].Pointer != tc.want {
				t.Fatalf("%v, want a refusal of %s", err, tc.want)
			}
			if !strings.Contains(err.Error(), tc.want+" "+refused.Wrong[0].Detail) {
				t.Errorf("the error doesn't say which: %v", err)
			}
		})
	}
}

// Parts that have to be there, and text that is no manifest.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: runtime.agentcube.volcano.sh/v1alpha1\nkind: "
	for name, tc := range map[string]struct {
		text string
		want []string // places; none where it can't be read at all
	}{
		"an empty agent":       {head + "AgentRuntime\nmetadata: {name: a}", []string{"/spec/targetPort", "/spec/podTemplate/spec"}},
		"an empty interpreter": {head + "CodeInterpreter\nmetadata: {name: a}", []string{"/spec/template/image"}},
		"a field twice":        {head + "CodeInterpreter\nkind: AgentRuntime", nil},
		"another shape":        {head + "CodeInterpreter\nmetadata: {name: a}\nspec: {ports: 1}", nil},
		"no YAML":              {"a: [", nil},
	} {
		_, err := agentcube.Read([]byte(tc.text), "t")
		refused, ok := errors.AsType[*agentcube.RefusedError](err)
		var places []string
		if ok {
			for _, w := range refused.Wrong {
				places = append(places, w.Pointer)
			}
		}
		if err == nil || !slices.Equal(places, tc.want) {
			t.Errorf("%s: %v, refused at %v, want %v", name, err, places, tc.want)
		}
	}
}

// What Kubernetes would read otherwise than Holdfast takes the whole template.
func TestOnlyPlainTemplatesAreReworded(t *testing.T) {
	t.Parallel()
	for change, plain := range map[[2]string]bool{
		{"value: info", "value: info"}:                          true,
		{"value: info", "value: $(HOME)/log"}:                   false,
		{"value: info", "value: a$$b"}:                          false,
		{"command: [serve]", "stdin: true"}:                     false, // arguments alone, and a field that isn't plain
		{"          command: [serve]\n", ""}:                    false,
		{"cpu: 1,", "cpu: 1, nvidia.com/gpu: 1,"}:               false,
		{"containers:", "hostNetwork: true\n      containers:"}: false,
		{"name: main", "name: agent"}:                           true,
	} {
		r, err := agentcube.Read(edited(t, "agentruntime-plain.in.yaml", change[0], change[1]), "t")
		if err != nil || (len(r.Spec.Sandbox.PodTemplate) == 0) != plain {
			t.Errorf("with %q the runtime is plain: %t, want %t (%v)", change[1], len(r.Spec.Sandbox.PodTemplate) == 0, plain, err)
		}
	}
}

func TestOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"name: coder\nkind: agent", "apiVersion: v1\nkind: Pod", "apiVersion: 1", "[", ""} {
		if agentcube.Is([]byte(text)) {
			t.Errorf("%q is taken for AgentCube's", text)
		}
	}
}
