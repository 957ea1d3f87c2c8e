package podtemplate_test

import (
	"encoding/json"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
	"github.com/holdfast-io/holdfast/services/workload/internal/podtemplate"
)

// fromTemplate is a runtime with an admin's template, in YAML.
func fromTemplate(t *testing.T, template string, allowSecrets bool) driver.RuntimeSpec {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(template))
	if err != nil {
		t.Fatal(err)
	}
	return driver.RuntimeSpec{
		Kind: "agent", Adapter: "none", Port: 8000, WorkspacePath: "/workspace",
		Pod: &driver.PodSpec{PodTemplate: raw, AllowSecrets: allowSecrets},
	}
}

// Whatever a template would take from Holdfast or from the node is refused where it
// stands, and nothing else with it.
func TestTemplatesRefused(t *testing.T) {
	t.Parallel()
	const (
		at    = "/sandbox/podTemplate"
		agent = "{name: agent, image: a}"
	)
	for name, tc := range map[string]struct{ template, want string }{
		"no container":             {"spec: {}", at + "/spec/containers"},
		"a field unknown":          {"spec: {containers: [{name: agent, image: a, imagee: b}]}", at + "/spec/containers/0/imagee"},
		"a field in other letters": {"spec: {Volumes: [], containers: [" + agent + "]}", at + "/spec/Volumes"},
		"another shape":            {"spec: {containers: agent}", at},
		"a name":                   {"metadata: {name: x}\nspec: {containers: [" + agent + "]}", at + "/metadata"},
		"a namespace":              {"metadata: {namespace: x}\nspec: {containers: [" + agent + "]}", at + "/metadata"},
		"a label of ours":          {"metadata: {labels: {holdfast.dev/session: x}}\nspec: {containers: [" + agent + "]}", at + "/metadata/labels/holdfast.dev~1session"},
		"agent-sandbox's word":     {"metadata: {annotations: {agents.x-k8s.io/pod-name: x}}\nspec: {containers: [" + agent + "]}", at + "/metadata/annotations/agents.x-k8s.io~1pod-name"},
		"the node's network":       {"spec: {hostNetwork: true, containers: [" + agent + "]}", at + "/spec"},
		"the node's processes":     {"spec: {hostPID: true, containers: [" + agent + "]}", at + "/spec"},
		"a folder of the node":     {"spec: {containers: [" + agent + "], volumes: [{name: x, hostPath: {path: /}}]}", at + "/spec"},
		"a port of the node":       {"spec: {containers: [{name: agent, image: a, ports: [{containerPort: 80, hostPort: 80}]}]}", at + "/spec"},
		"privileged":               {"spec: {containers: [{name: agent, image: a, securityContext: {privileged: true}}]}", at + "/spec"},
		"a capability":             {"spec: {containers: [{name: agent, image: a, securityContext: {capabilities: {add: [NET_ADMIN]}}}]}", at + "/spec"},
		"root":                     {"spec: {containers: [{name: agent, image: a, securityContext: {runAsUser: 0}}]}", at + "/spec"},
		"maybe root":               {"spec: {securityContext: {runAsNonRoot: false}, containers: [{name: agent, image: a, securityContext: {runAsNonRoot: false}}]}", at + "/spec"},
		"all system calls":         {"spec: {containers: [{name: agent, image: a, securityContext: {seccompProfile: {type: Unconfined}}}]}", at + "/spec"},
		"an init container's":      {"spec: {initContainers: [{name: i, image: a, securityContext: {privileged: true}}], containers: [" + agent + "]}", at + "/spec"},
		"rights in the cluster":    {"spec: {automountServiceAccountToken: true, containers: [" + agent + "]}", at + "/spec/automountServiceAccountToken"},
		"services' names":          {"spec: {enableServiceLinks: true, containers: [" + agent + "]}", at + "/spec/enableServiceLinks"},
		"one process namespace":    {"spec: {shareProcessNamespace: true, containers: [" + agent + "]}", at + "/spec/shareProcessNamespace"},
		"an end of its own":        {"spec: {activeDeadlineSeconds: 60, containers: [" + agent + "]}", at + "/spec/activeDeadlineSeconds"},
		"no restart":               {"spec: {restartPolicy: Never, containers: [" + agent + "]}", at + "/spec/restartPolicy"},
		"the old name":             {"spec: {serviceAccount: x, containers: [" + agent + "]}", at + "/spec/serviceAccount"},
		"the cluster's names":      {"spec: {dnsPolicy: ClusterFirst, containers: [" + agent + "]}", at + "/spec/dnsPolicy"},
		"name servers":             {"spec: {dnsConfig: {nameservers: [10.0.0.10]}, containers: [" + agent + "]}", at + "/spec/dnsConfig"},
		"a runtime class":          {"spec: {runtimeClassName: kata, containers: [" + agent + "]}", at + "/spec/runtimeClassName"},
		"a container of ours":      {"spec: {containers: [" + agent + ", {name: holdfast-sandboxd, image: b}]}", at + "/spec/containers/1/name"},
		"an init container of ours": {
			"spec: {initContainers: [{name: holdfast-install, image: b}], containers: [" + agent + "]}", at + "/spec/initContainers/0/name",
		},
		"a volume of ours":  {"spec: {containers: [" + agent + "], volumes: [{name: holdfast-token, emptyDir: {}}]}", at + "/spec/volumes/0/name"},
		"the token":         {"spec: {containers: [{name: agent, image: a, volumeMounts: [{name: holdfast-token, mountPath: /t}]}]}", at + "/spec/containers/0/volumeMounts/0/name"},
		"the spool":         {"spec: {containers: [" + agent + ", {name: b, image: b, volumeMounts: [{name: holdfast-spool, mountPath: /t}]}]}", at + "/spec/containers/1/volumeMounts/0/name"},
		"sandboxd's port":   {"spec: {containers: [" + agent + ", {name: b, image: b, ports: [{containerPort: 80}, {containerPort: 7778}]}]}", at + "/spec/containers/1/ports/1/containerPort"},
		"the relay's port":  {"spec: {containers: [{name: agent, image: a, ports: [{containerPort: 7777}]}]}", at + "/spec/containers/0/ports/0/containerPort"},
		"our URL":           {"spec: {containers: [{name: agent, image: a, env: [{name: HOLDFAST_URL, value: x}]}]}", at + "/spec/containers/0/env/0/name"},
		"the workspace":     {"spec: {containers: [{name: agent, image: a, volumeMounts: [{name: x, mountPath: /workspace/}]}], volumes: [{name: x, emptyDir: {}}]}", at + "/spec/containers/0/volumeMounts/0/mountPath"},
		"part of the space": {"spec: {containers: [{name: agent, image: a, volumeMounts: [{name: holdfast-workspace, mountPath: /workspace, subPath: a}]}]}", at + "/spec/containers/0/volumeMounts/0/mountPath"},
		"a Secret's folder": {"spec: {containers: [" + agent + "], volumes: [{name: x, secret: {secretName: k}}]}", at + "/spec/volumes/0/secret/secretName"},
		"a Secret projected": {
			"spec: {containers: [" + agent + "], volumes: [{name: x, projected: {sources: [{configMap: {name: c}}, {secret: {name: k}}]}}]}", at + "/spec/volumes/0/projected/sources/1/secret/name",
		},
		"a token": {
			"spec: {containers: [" + agent + "], volumes: [{name: x, projected: {sources: [{serviceAccountToken: {path: t}}]}}]}", at + "/spec/volumes/0/projected/sources/0/serviceAccountToken",
		},
		"a certificate": {
			"spec: {containers: [" + agent + "], volumes: [{name: x, projected: {sources: [{podCertificate: {signerName: s, keyType: ED25519, credentialBundlePath: b}}]}}]}", at + "/spec/volumes/0/projected/sources/0/podCertificate",
		},
		"a driver's Secret": {
			"spec: {containers: [" + agent + "], volumes: [{name: x, csi: {driver: d, nodePublishSecretRef: {name: k}}}]}", at + "/spec/volumes/0/csi/nodePublishSecretRef",
		},
		"a Secret's variable":  {"spec: {containers: [{name: agent, image: a, env: [{name: A, valueFrom: {secretKeyRef: {name: k, key: v}}}]}]}", at + "/spec/containers/0/env/0/valueFrom/secretKeyRef"},
		"a Secret's variables": {"spec: {initContainers: [{name: i, image: a, envFrom: [{secretRef: {name: k}}]}], containers: [" + agent + "]}", at + "/spec/initContainers/0/envFrom/0/secretRef"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := podtemplate.Build(fromTemplate(t, tc.template, false), options())
			if got := pointers(t, err); !slices.Equal(got, []string{tc.want}) {
				t.Errorf("refused at %q, want %q (%v)", got, tc.want, err)
			}
		})
	}
}

// With leave Secrets are given, and named; the sidecar's token to nobody, ever.
func TestSecrets(t *testing.T) {
	t.Parallel()
	b, err := podtemplate.Build(fromTemplate(t, `
spec:
  imagePullSecrets: [{name: registry}]
  initContainers: [{name: i, image: a, envFrom: [{secretRef: {name: zeta}}]}]
  containers:
    - {name: agent, image: a, env: [{name: A, valueFrom: {secretKeyRef: {name: key, key: v}}}]}
  volumes:
    - {name: x, secret: {secretName: key}}
    - {name: t, projected: {sources: [{serviceAccountToken: {path: t, audience: vault}}]}}
`, true), options())
	if want := []string{"key", "token:vault", "zeta"}; err != nil || !slices.Equal(b.Secrets, want) {
		t.Errorf("Secrets are %q, want %q (%v)", b.Secrets, want, err)
	}
	_, err = podtemplate.Build(fromTemplate(t, `
spec:
  containers: [{name: agent, image: a}]
  volumes: [{name: t, projected: {sources: [{serviceAccountToken: {path: t, audience: holdfast}}]}}]
`, true), options())
	if got := pointers(t, err); !slices.Equal(got, []string{"/sandbox/podTemplate/spec/volumes/0/projected/sources/0/serviceAccountToken/audience"}) {
		t.Errorf("the sidecar's audience is refused at %q", got)
	}
}

// The agent's container is the one of that name, else the first; what an admin said of
// it stays.
func TestAgentContainer(t *testing.T) {
	t.Parallel()
	for template, want := range map[string]string{
		"spec: {containers: [{name: a, image: a}, {name: agent, image: b}]}": "agent",
		"spec: {containers: [{name: a, image: a}, {name: b, image: b}]}":     "a",
	} {
		b, err := podtemplate.Build(fromTemplate(t, template, false), options())
		if err != nil || b.AgentContainer != want {
			t.Errorf("%s: the agent is %q, want %q (%v)", template, b.AgentContainer, want, err)
			continue
		}
		for _, c := range b.Spec.PodTemplate.Spec.Containers {
			mounts := len(c.VolumeMounts) > 0
			if mounts != (c.Name == want) {
				t.Errorf("%s: container %s has the workspace: %t", template, c.Name, mounts)
			}
		}
	}
}

// A program that is started for each message is an admin's, too, if the template says
// which it is.
func TestExecFromTemplate(t *testing.T) {
	t.Parallel()
	spec := fromTemplate(t, "spec: {containers: [{name: agent, image: a, command: [sh], args: [-c, 'echo $(HOME)']}]}", false)
	spec.Adapter, spec.Port = "exec", 0
	b, err := podtemplate.Build(spec, options())
	if err != nil {
		t.Fatal(err)
	}
	c := b.Spec.PodTemplate.Spec.Containers[0]
	if want := []string{"/holdfast/sandboxd", "exec-agent", "--", "sh", "-c", "echo $(HOME)"}; !slices.Equal(c.Command, want) || len(c.Args) > 0 {
		t.Errorf("the command is %q %q, want %q", c.Command, c.Args, want)
	}
	spec = fromTemplate(t, "spec: {containers: [{name: agent, image: a}]}", false)
	spec.Adapter, spec.Port = "exec", 0
	_, err = podtemplate.Build(spec, options())
	if got := pointers(t, err); !slices.Equal(got, []string{"/sandbox/podTemplate/spec/containers/0/command"}) {
		t.Errorf("a program unknown is refused at %q", got)
	}
}

// An agent of Holdfast's own comes into an admin's template as well.
func TestOurAgentFromTemplate(t *testing.T) {
	t.Parallel()
	b, err := podtemplate.Build(fromTemplate(t, "spec: {containers: [{name: agent, image: a, command: [/holdfast/sandboxd, shell-agent]}]}", false), options())
	if err != nil {
		t.Fatal(err)
	}
	pod := b.Spec.PodTemplate.Spec
	if pod.InitContainers[0].Name != podtemplate.InstallContainer {
		t.Errorf("the first container is %s, want %s", pod.InitContainers[0].Name, podtemplate.InstallContainer)
	}
	if !slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/holdfast" && m.ReadOnly }) {
		t.Errorf("the agent doesn't see it: %+v", pod.Containers[0].VolumeMounts)
	}
}

// Every wrong place is named at once.
func TestAllPlacesAreNamed(t *testing.T) {
	t.Parallel()
	_, err := podtemplate.Build(fromTemplate(t, `
spec:
  shareProcessNamespace: true
  containers: [{name: holdfast-x, image: a, ports: [{containerPort: 7778}]}]
`, false), options())
	if got := pointers(t, err); len(got) != 3 {
		t.Errorf("refused at %q", got)
	}
}

func TestTemplateIsJSON(t *testing.T) {
	t.Parallel()
	spec := fromTemplate(t, "{}", false)
	spec.Pod.PodTemplate = json.RawMessage(`{"spec":{"containers":[{"name":"agent","image":"a"},{"name":"agent","image":"a"}],"containers":[]}}`)
	_, err := podtemplate.Build(spec, options())
	if got := pointers(t, err); !slices.Contains(got, "/sandbox/podTemplate/spec/containers") {
		t.Errorf("a field that comes twice is refused at %q", got)
	}
}
