package podtemplate

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-io/holdfast/events/runtime"
	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// adapterExec starts a program for each message.
const adapterExec = "exec"

// agentURL is where the agent reaches Holdfast.
var agentURL = "http://127.0.0.1:" + strconv.Itoa(RelayPort)

// written is the Pod as the runtime's author wrote it: an admin's template, or one made
// of the runtime's own words.
func written(spec driver.RuntimeSpec, wrong *refusals) corev1.PodTemplateSpec {
	if len(spec.Pod.PodTemplate) > 0 {
		return adminTemplate(spec.Pod.PodTemplate, wrong)
	}
	if spec.Pod.Image == "" {
		wrong.add("/sandbox/image", "is needed: a Pod is made of it")
	}
	agent := corev1.Container{
		Name: AgentContainer, Image: spec.Pod.Image, Command: program(spec),
		Resources: corev1.ResourceRequirements{
			Requests: quantities("/sandbox/resources/requests", spec.Pod.Requests, wrong),
			Limits:   quantities("/sandbox/resources/limits", spec.Pod.Limits, wrong),
		},
	}
	for _, kv := range spec.Env {
		name, value, _ := strings.Cut(kv, "=")
		agent.Env = append(agent.Env, corev1.EnvVar{Name: name, Value: escaped(value)})
	}
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		Containers: []corev1.Container{agent}, ServiceAccountName: spec.Pod.ServiceAccount,
	}}
}

// program is the agent's command; none is the image's own.
func program(spec driver.RuntimeSpec) []string {
	if idles(spec) {
		return []string{sandboxapi.JailBinary, "idle"}
	}
	argv := make([]string, len(spec.Argv))
	for i, word := range spec.Argv {
		argv[i] = escaped(word)
	}
	return argv
}

// idles says whether nothing of the runtime's own stays: a code interpreter without a
// command serves nothing itself.
func idles(spec driver.RuntimeSpec) bool {
	return spec.Kind == string(runtime.KindCodeInterpreter) && len(spec.Argv) == 0 && spec.Port == 0 && len(spec.Pod.PodTemplate) == 0
}

// escaped keeps a word as it is: of two $ Kubernetes makes one, and it would replace
// $(NAME).
func escaped(word string) string { return strings.ReplaceAll(word, "$", "$$") }

func quantities(at string, written map[string]string, wrong *refusals) corev1.ResourceList {
	if len(written) == 0 {
		return nil
	}
	list := make(corev1.ResourceList, len(written))
	for name, q := range written {
		quantity, err := resource.ParseQuantity(q)
		if err != nil || quantity.Sign() < 0 {
			wrong.add(at+"/"+name, "%q is no quantity: write it as 500m or 1Gi", q)
		}
		list[corev1.ResourceName(name)] = quantity
	}
	return list
}

// AgentContainerOf is the name of the agent's container in a Pod: AgentContainer, or the
// first one's.
func AgentContainerOf(pod corev1.PodSpec) string { return pod.Containers[agentOf(pod)].Name }

// agentOf is its place.
func agentOf(pod corev1.PodSpec) int {
	return max(0, slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == AgentContainer }))
}

// needsSandboxd says whether the agent's container runs sandboxd too: as an agent of
// ours, to start a program for each message, or to stay.
func needsSandboxd(agent corev1.Container, spec driver.RuntimeSpec) bool {
	return spec.Adapter == adapterExec || isOurs(agent)
}

// isOurs says whether the agent is one of Holdfast's own, in an admin's template too.
func isOurs(agent corev1.Container) bool {
	return len(agent.Command) > 0 && agent.Command[0] == sandboxapi.JailBinary
}

// dress gives the agent's container, the i-th, what Holdfast promises every agent. What
// is in its place already is refused.
func dress(c *corev1.Container, i int, spec driver.RuntimeSpec, installs bool, wrong *refusals) {
	at := "/sandbox" // which has command and env of its own
	if len(spec.Pod.PodTemplate) > 0 {
		at = fmt.Sprintf("%s/spec/containers/%d", templatePointer, i)
	}
	for j, e := range c.Env {
		if e.Name == sandboxapi.EnvPort || strings.HasPrefix(e.Name, "HOLDFAST_") {
			wrong.add(fmt.Sprintf("%s/env/%d/name", at, j), "%s is Holdfast's to set", e.Name)
		}
	}
	if c.TerminationMessagePolicy == "" { // what it printed last is why it failed
		c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	}
	setDefault(c, "HOME", spec.WorkspacePath)
	setDefault(c, "LANG", "C.UTF-8")
	c.Env = append(c.Env, corev1.EnvVar{Name: sandboxapi.EnvAgentURL, Value: agentURL})
	if spec.Port != 0 {
		c.Env = append(c.Env, corev1.EnvVar{Name: sandboxapi.EnvPort, Value: strconv.Itoa(spec.Port)})
	}
	if isOurs(*c) && !idles(spec) && c.WorkingDir == "" {
		c.WorkingDir = spec.WorkspacePath // Holdfast's own agents have no place in the image
	}
	if spec.Adapter == adapterExec {
		if len(c.Command) == 0 {
			wrong.add(at+"/command", "is needed: exec has to know the program that it starts for each message")
		}
		c.Command, c.Args = slices.Concat([]string{sandboxapi.JailBinary, "exec-agent", "--"}, c.Command, c.Args), nil
	}
	if installs {
		mount(c, at, corev1.VolumeMount{Name: binVolume, MountPath: binDir, ReadOnly: true}, wrong)
	}
	mount(c, at, corev1.VolumeMount{Name: WorkspaceVolume, MountPath: spec.WorkspacePath}, wrong)
	if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return path.Clean(m.MountPath) == tmpDir }) {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: tmpVolume, MountPath: tmpDir})
	}
}

// mount adds a mount of ours, unless the container has the same one. Others may lie in
// it, but for what is read-only: nothing can be put there.
func mount(c *corev1.Container, at string, m corev1.VolumeMount, wrong *refusals) {
	for i, has := range c.VolumeMounts {
		place := path.Clean(has.MountPath)
		switch {
		case has.Name == m.Name && place == m.MountPath && has.SubPath == "" && has.SubPathExpr == "":
			return
		case place == m.MountPath || m.ReadOnly && strings.HasPrefix(place, m.MountPath+"/"):
			wrong.add(fmt.Sprintf("%s/volumeMounts/%d/mountPath", at, i), "%s is the place of %s", m.MountPath, m.Name)
			return
		}
	}
	c.VolumeMounts = append(c.VolumeMounts, m)
}

func setDefault(c *corev1.Container, name, value string) {
	if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name }) {
		c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value})
	}
}
