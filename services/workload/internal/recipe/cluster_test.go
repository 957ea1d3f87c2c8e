package recipe_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/holdfast-io/holdfast/events/runtime"
	"github.com/holdfast-io/holdfast/services/workload/internal/podtemplate"
	"github.com/holdfast-io/holdfast/services/workload/internal/recipe"
)

func cluster() recipe.Rules {
	peers := []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8"}}}
	return recipe.Rules{Pods: &podtemplate.Options{
		Image: "holdfast:1", BindKey: bytes.Repeat([]byte{1}, ed25519.PublicKeySize), Callers: peers, Agents: peers, AgentsPort: 8081,
		RuntimeClasses: map[string]string{"gvisor": "gvisor"},
	}}
}

func wrongPlaces(rules recipe.Rules, s runtime.Spec) []string {
	_, wrong := rules.Checked(s)
	var places []string
	for _, w := range wrong {
		places = append(places, w.Pointer)
	}
	slices.Sort(places)
	return places
}

// What a runtime may say depends on where it runs: each place names what it hasn't.
func TestWhereItRuns(t *testing.T) {
	t.Parallel()
	template := json.RawMessage(`{"spec":{"containers":[{"name":"agent","image":"a","env":[{"name":"K","valueFrom":{"secretKeyRef":{"name":"k","key":"v"}}}]}]}}`)
	for name, tc := range map[string]struct {
		change            func(*runtime.Spec)
		onHost, inCluster []string
	}{
		"a command and no image": {
			func(s *runtime.Spec) { s.Sandbox.Image = "" }, nil, []string{"/sandbox/image"},
		},
		"both": {func(*runtime.Spec) {}, nil, nil},
		"an image alone": {
			func(s *runtime.Spec) { s.Sandbox.Command = nil }, []string{"/sandbox/command"}, nil,
		},
		"exec without a command": {
			func(s *runtime.Spec) { s.Sandbox.Command, s.Adapter.Protocol = nil, "exec" }, []string{"/sandbox/command"}, []string{"/sandbox/command"},
		},
		"a folder": {
			func(s *runtime.Spec) { s.Sandbox.HostFolder = "/srv" }, nil, []string{"/sandbox/hostFolder"},
		},
		"a workspace where folders are": {
			func(s *runtime.Spec) { s.Workspace = &runtime.Workspace{Path: "/agent"} }, []string{"/workspace/path"}, nil,
		},
		"a workspace where sandboxd is": {
			func(s *runtime.Spec) { s.Workspace = &runtime.Workspace{Path: "/holdfast"} }, nil, []string{"/workspace/path"},
		},
		"a storage class": {
			func(s *runtime.Spec) { s.Workspace = &runtime.Workspace{Path: "/w", StorageClassName: "fast"} }, []string{"/workspace/storageClassName"}, nil,
		},
		"a runtime class": {
			func(s *runtime.Spec) { s.Sandbox.RuntimeClassName = "gvisor" }, []string{"/sandbox/runtimeClassName"}, nil,
		},
		"a runtime class that isn't allowed": {
			func(s *runtime.Spec) { s.Sandbox.RuntimeClassName = "kata" }, []string{"/sandbox/runtimeClassName"}, []string{"/sandbox/runtimeClassName"},
		},
		"a service account": {
			func(s *runtime.Spec) { s.Sandbox.ServiceAccountName = "x" }, []string{"/sandbox/serviceAccountName"}, nil,
		},
		"requests": {
			func(s *runtime.Spec) { s.Sandbox.Resources.Requests = runtime.Limits{"cpu": "1"} }, []string{"/sandbox/resources/requests"}, nil,
		},
		"sandboxd's port": {
			func(s *runtime.Spec) { s.Entrypoints = []runtime.Entrypoint{{Name: "a", Port: 7778}} }, nil, []string{"/entrypoints/0/port"},
		},
		"pids": {
			func(s *runtime.Spec) { s.Sandbox.Resources.Limits = runtime.Limits{"pids": "10"} }, nil, []string{"/sandbox/resources/limits/pids"},
		},
		"disk": {
			func(s *runtime.Spec) { s.Sandbox.Resources.Limits = runtime.Limits{"ephemeral-storage": "1Gi"} },
			[]string{"/sandbox/resources/limits/ephemeral-storage"},
			nil,
		},
		"quantities of Kubernetes": {
			func(s *runtime.Spec) { s.Sandbox.Resources.Limits = runtime.Limits{"cpu": "1.5", "memory": "1e9"} }, nil, nil,
		},
		"no quantity": {
			func(s *runtime.Spec) { s.Sandbox.Resources.Limits = runtime.Limits{"cpu": "1e3m"} },
			[]string{"/sandbox/resources/limits/cpu"},
			[]string{"/sandbox/resources/limits/cpu"},
		},
		"no memory": {
			func(s *runtime.Spec) { s.Sandbox.Resources.Limits = runtime.Limits{"memory": "0"} },
			[]string{"/sandbox/resources/limits/memory"},
			[]string{"/sandbox/resources/limits/memory"},
		},
		"more memory than there is": {
			func(s *runtime.Spec) { s.Sandbox.Resources.Limits = runtime.Limits{"memory": "9E"} },
			[]string{"/sandbox/resources/limits/memory"},
			[]string{"/sandbox/resources/limits/memory"},
		},
		"another resource": {
			func(s *runtime.Spec) { s.Sandbox.Resources.Limits = runtime.Limits{"nvidia.com/gpu": "1"} },
			[]string{"/sandbox/resources/limits/nvidia.com~1gpu"},
			[]string{"/sandbox/resources/limits/nvidia.com~1gpu"},
		},
		"a template": {
			func(s *runtime.Spec) {
				s.Sandbox = runtime.Sandbox{Command: []string{"x"}, PodTemplate: template, AllowSecrets: true}
			}, []string{"/sandbox/allowSecrets", "/sandbox/podTemplate"}, []string{"/sandbox/command"},
		},
		"a template and its own words": {
			func(s *runtime.Spec) {
				s.Sandbox = runtime.Sandbox{
					Image: "a", Command: []string{"x"}, Env: []runtime.EnvVar{{Name: "A"}}, RuntimeClassName: "gvisor", ServiceAccountName: "x",
					Resources: runtime.Resources{Limits: runtime.Limits{"cpu": "1"}}, PodTemplate: template,
				}
			}, []string{"/sandbox/podTemplate", "/sandbox/runtimeClassName", "/sandbox/serviceAccountName"}, []string{
				"/sandbox/command", "/sandbox/env", "/sandbox/image",
				"/sandbox/podTemplate/spec/containers/0/env/0/valueFrom/secretKeyRef", "/sandbox/resources", "/sandbox/runtimeClassName",
				"/sandbox/serviceAccountName",
			},
		},
		"leave for nothing": {
			func(s *runtime.Spec) { s.Sandbox.AllowSecrets = true }, []string{"/sandbox/allowSecrets"}, []string{"/sandbox/allowSecrets"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := runtime.Spec{
				Name: "r", Adapter: runtime.Adapter{Protocol: "none"}, Sandbox: runtime.Sandbox{Image: "a:1", Command: []string{"agent"}},
			}
			tc.change(&spec)
			if got := wrongPlaces(recipe.Rules{}, spec); !slices.Equal(got, tc.onHost) {
				t.Errorf("on a host wrong are %v, want %v", got, tc.onHost)
			}
			if got := wrongPlaces(cluster(), spec); !slices.Equal(got, tc.inCluster) {
				t.Errorf("in a cluster wrong are %v, want %v", got, tc.inCluster)
			}
		})
	}
}

// What is secret is written down by whoever reads the template, whatever a client says.
func TestSecretsAreFilledIn(t *testing.T) {
	t.Parallel()
	template := `{"spec":{"containers":[{"name":"agent","image":"a","envFrom":[{"secretRef":{"name":"k"}}]}]}}`
	for raw, want := range map[string][]string{template: {"k"}, `{"spec":{"containers":[{"name":"agent","image":"a"}]}}`: nil} {
		spec, wrong := cluster().Checked(runtime.Spec{
			Name: "r", Adapter: runtime.Adapter{Protocol: "none"},
			Sandbox: runtime.Sandbox{PodTemplate: json.RawMessage(raw), AllowSecrets: true, Secrets: []string{"another"}},
		})
		if len(wrong) > 0 || !slices.Equal(spec.Sandbox.Secrets, want) {
			t.Errorf("%s: Secrets are %v, want %v; wrong %v", raw, spec.Sandbox.Secrets, want, wrong)
		}
	}
	if spec, _ := (recipe.Rules{}).Checked(runtime.Spec{Sandbox: runtime.Sandbox{Secrets: []string{"another"}}}); spec.Sandbox.Secrets != nil {
		t.Errorf("on a host Secrets are %v", spec.Sandbox.Secrets)
	}
}
