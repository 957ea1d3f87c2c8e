package podtemplate_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
	"github.com/holdfast-io/holdfast/services/workload/internal/podtemplate"
)

// Whatever a runtime asks for, it is refused, or what is made of it holds: no container
// without the restricted context, nothing of the sidecar's in another's reach, no way
// in or out but the two.
func TestWhateverIsAskedFor(t *testing.T) {
	t.Parallel()
	made := 0
	rapid.Check(t, func(t *rapid.T) {
		spec := anyRuntime(t)
		b, err := podtemplate.Build(spec, options())
		if err != nil {
			if !errors.Is(err, driver.ErrInvalid) {
				t.Fatalf("refused by %v", err)
			}
			return
		}
		made++
		pod := b.Spec.PodTemplate.Spec
		for _, c := range append(append([]corev1.Container{}, pod.InitContainers...), pod.Containers...) {
			restrictedContext(t, pod, c)
			keptApart(t, c)
		}
		closed(t, b, pod)
		roundTrip(t, b.Spec)
	})
	if made == 0 {
		t.Error("every runtime was refused: nothing was proven")
	}
}

// restrictedContext is written from the Pod Security Standards' page, apart from what
// the package judges by.
func restrictedContext(t *rapid.T, pod corev1.PodSpec, c corev1.Container) {
	s := c.SecurityContext
	switch {
	case s == nil, s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation,
		s.Privileged != nil && *s.Privileged,
		s.RunAsNonRoot == nil || !*s.RunAsNonRoot,
		s.RunAsUser != nil && *s.RunAsUser == 0,
		s.RunAsUser == nil && (pod.SecurityContext.RunAsUser == nil || *pod.SecurityContext.RunAsUser == 0),
		s.Capabilities == nil || len(s.Capabilities.Drop) != 1 || s.Capabilities.Drop[0] != "ALL",
		s.SeccompProfile == nil || s.SeccompProfile.Type == corev1.SeccompProfileTypeUnconfined,
		s.ReadOnlyRootFilesystem == nil:
		t.Fatalf("container %s isn't restricted: %+v", c.Name, s)
	}
	for _, added := range s.Capabilities.Add {
		if added != "NET_BIND_SERVICE" {
			t.Fatalf("container %s may %s", c.Name, added)
		}
	}
	for _, p := range c.Ports {
		if p.HostPort != 0 {
			t.Fatalf("container %s has the node's port %d", c.Name, p.HostPort)
		}
	}
}

// keptApart: token and spool are the sidecar's, sandboxd can't be overwritten.
func keptApart(t *rapid.T, c corev1.Container) {
	for _, m := range c.VolumeMounts {
		switch m.Name {
		case "holdfast-token", "holdfast-spool":
			if c.Name != podtemplate.SidecarContainer {
				t.Fatalf("container %s mounts %s", c.Name, m.Name)
			}
		case "holdfast-bin":
			if c.Name != podtemplate.InstallContainer && !m.ReadOnly {
				t.Fatalf("container %s can write sandboxd", c.Name)
			}
		}
	}
}

func closed(t *rapid.T, b podtemplate.Blueprint, pod corev1.PodSpec) {
	policy := b.Spec.NetworkPolicy
	if len(policy.Ingress) != 1 || len(policy.Ingress[0].From) == 0 || len(policy.Ingress[0].Ports) != 1 ||
		len(policy.Egress) != 1 || len(policy.Egress[0].To) == 0 || len(policy.Egress[0].Ports) != 1 {
		t.Fatalf("the network is open: %+v", policy)
	}
	if pod.HostNetwork || pod.HostPID || pod.HostIPC || pod.ShareProcessNamespace != nil && *pod.ShareProcessNamespace ||
		*pod.AutomountServiceAccountToken || *pod.EnableServiceLinks || *b.Spec.Service {
		t.Fatalf("the Pod shares what it mustn't: %+v", pod)
	}
	if pod.DNSPolicy != corev1.DNSNone && pod.DNSPolicy != corev1.DNSDefault {
		t.Fatalf("names are resolved by %s", pod.DNSPolicy)
	}
	for _, v := range pod.Volumes {
		if v.HostPath != nil {
			t.Fatal("a folder of the node is mounted")
		}
	}
}

// anyRuntime draws runtimes, half of them with an admin's template.
func anyRuntime(t *rapid.T) driver.RuntimeSpec {
	spec := driver.RuntimeSpec{
		Kind:          rapid.SampledFrom([]string{"agent", "code-interpreter"}).Draw(t, "kind"),
		Adapter:       rapid.SampledFrom([]string{"agui", "exec", "push", "none"}).Draw(t, "adapter"),
		Port:          rapid.SampledFrom([]int{0, 8000}).Draw(t, "port"),
		WorkspacePath: rapid.SampledFrom([]string{"/workspace", "/tmp", "/tmp/work"}).Draw(t, "workspace"),
		HasVolume:     rapid.Bool().Draw(t, "volume"),
		Pod:           &driver.PodSpec{},
	}
	if rapid.Bool().Draw(t, "admin") {
		spec.Pod.AllowSecrets = rapid.Bool().Draw(t, "allowSecrets")
		raw, err := json.Marshal(anyTemplate(t))
		if err != nil {
			t.Fatal(err)
		}
		spec.Pod.PodTemplate = raw
		return spec
	}
	spec.Pod.Image = rapid.SampledFrom([]string{"", "a:1"}).Draw(t, "image")
	spec.Pod.RuntimeClassName = rapid.SampledFrom([]string{"", "gvisor", "kata"}).Draw(t, "class")
	spec.Argv = rapid.SampledFrom([][]string{nil, {"agent"}, {sandboxapi.JailBinary, "shell-agent"}}).Draw(t, "argv")
	spec.Env = rapid.SliceOfN(rapid.SampledFrom([]string{"A=b", "HOME=/h", "PORT=1", "X=$(Y)"}), 0, 3).Draw(t, "env")
	spec.Pod.Limits = map[string]string{"cpu": rapid.SampledFrom([]string{"1", "x"}).Draw(t, "cpu")}
	return spec
}

// anyTemplate draws templates from words that matter, good and bad; a field that isn't
// drawn is left out.
func anyTemplate(t *rapid.T) map[string]any {
	yes := func(label string) bool { return rapid.Bool().Draw(t, label) }
	seldom := func(label string) bool { return rapid.IntRange(0, 7).Draw(t, label) == 0 }
	spec := map[string]any{}
	for _, field := range []string{"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "automountServiceAccountToken", "enableServiceLinks"} {
		if seldom(field) {
			spec[field] = yes(field + " is")
		}
	}
	if yes("pod's context") {
		spec["securityContext"] = anyContext(t, seldom, false)
	}
	if seldom("dns") {
		spec["dnsPolicy"] = rapid.SampledFrom([]string{"ClusterFirst", "Default", "ClusterFirstWithHostNet"}).Draw(t, "dns is")
	}
	if seldom("volumes") {
		spec["volumes"] = []any{rapid.SampledFrom([]any{
			map[string]any{"name": "v", "hostPath": map[string]any{"path": "/"}},
			map[string]any{"name": "v", "secret": map[string]any{"secretName": "k"}},
			map[string]any{"name": "v", "emptyDir": map[string]any{}},
			map[string]any{"name": "holdfast-token", "emptyDir": map[string]any{}},
		}).Draw(t, "volume")}
	}
	for _, list := range []string{"containers", "initContainers"} {
		containers := make([]any, rapid.IntRange(0, 2).Draw(t, list))
		for i := range containers {
			containers[i] = anyContainer(t, seldom, string("ab"[i])+strings.ToLower(list[:1]))
		}
		spec[list] = containers
	}
	return map[string]any{"spec": spec}
}

func anyContainer(t *rapid.T, seldom func(string) bool, name string) map[string]any {
	c := map[string]any{"name": name, "image": "a:1", "command": []string{"run"}}
	if seldom("a name of ours") {
		c["name"] = rapid.SampledFrom([]string{podtemplate.SidecarContainer, podtemplate.InstallContainer}).Draw(t, "ours")
	}
	if rapid.Bool().Draw(t, "context") {
		c["securityContext"] = anyContext(t, seldom, true)
	}
	if seldom("ports") {
		c["ports"] = []any{map[string]any{
			"containerPort": rapid.SampledFrom([]int{80, 7777, 7778}).Draw(t, "port"),
			"hostPort":      rapid.SampledFrom([]int{0, 80}).Draw(t, "host port"),
		}}
	}
	if seldom("mounts") {
		c["volumeMounts"] = []any{map[string]any{
			"name":      rapid.SampledFrom([]string{"v", "holdfast-token", "holdfast-spool", "holdfast-bin", podtemplate.WorkspaceVolume}).Draw(t, "mount"),
			"mountPath": rapid.SampledFrom([]string{"/v", "/tmp", "/workspace", "/holdfast", "/holdfast/x"}).Draw(t, "at"),
		}}
	}
	return c
}

func anyContext(t *rapid.T, seldom func(string) bool, container bool) map[string]any {
	c := map[string]any{}
	if seldom("user") {
		c["runAsUser"] = rapid.SampledFrom([]int{0, 2000}).Draw(t, "user is")
	}
	if seldom("non root") {
		c["runAsNonRoot"] = rapid.Bool().Draw(t, "non root is")
	}
	if seldom("seccomp") {
		c["seccompProfile"] = map[string]any{"type": rapid.SampledFrom([]string{"Unconfined", "RuntimeDefault"}).Draw(t, "seccomp is")}
	}
	if !container {
		return c
	}
	for _, field := range []string{"privileged", "allowPrivilegeEscalation", "readOnlyRootFilesystem"} {
		if seldom(field) {
			c[field] = rapid.Bool().Draw(t, field+" is")
		}
	}
	if seldom("capabilities") {
		c["capabilities"] = rapid.SampledFrom([]any{
			map[string]any{"add": []string{"NET_ADMIN"}}, map[string]any{"add": []string{"NET_BIND_SERVICE"}}, map[string]any{"drop": []string{"ALL"}},
		}).Draw(t, "capability")
	}
	return c
}
