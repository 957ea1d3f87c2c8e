package agentcube

import (
	"encoding/json"
	"strings"

	"github.com/holdfast-io/holdfast/events/runtime"
)

// Group is the API group of AgentCube's runtimes, Version the one that is read.
const (
	Group   = "runtime.agentcube.volcano.sh"
	Version = "v1alpha1"
)

// Kinds of manifest.
const (
	KindAgentRuntime    = "AgentRuntime"
	KindCodeInterpreter = "CodeInterpreter"
)

// manifest is what both kinds have.
type manifest[S any] struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Metadata   metadata        `json:"metadata"`
	Spec       S               `json:"spec"`
	Status     json.RawMessage `json:"status"`
}

// metadata is Kubernetes' ObjectMeta, so far as a manifest has it.
type metadata struct {
	Name         string            `json:"name"`
	Namespace    string            `json:"namespace"`
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	GenerateName string            `json:"generateName"`
	Finalizers   []string          `json:"finalizers"`
	Owners       json.RawMessage   `json:"ownerReferences"`
	// What follows the cluster says of an object that it has.
	UID               json.RawMessage `json:"uid"`
	ResourceVersion   json.RawMessage `json:"resourceVersion"`
	Generation        json.RawMessage `json:"generation"`
	CreationTimestamp json.RawMessage `json:"creationTimestamp"`
	DeletionTimestamp json.RawMessage `json:"deletionTimestamp"`
	ManagedFields     json.RawMessage `json:"managedFields"`
	SelfLink          json.RawMessage `json:"selfLink"`
}

// agentRuntime is the spec of an AgentRuntime.
type agentRuntime struct {
	TargetPort         []port       `json:"targetPort"`
	PodTemplate        *podTemplate `json:"podTemplate"`
	SessionTimeout     string       `json:"sessionTimeout"`
	MaxSessionDuration string       `json:"maxSessionDuration"`
}

// port is a TargetPort.
type port struct {
	PathPrefix string `json:"pathPrefix"`
	Name       string `json:"name"`
	Port       int    `json:"port"`
	Protocol   string `json:"protocol"`
}

// podTemplate is a SandboxTemplate of AgentCube; Spec is a PodSpec of Kubernetes.
type podTemplate struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	Spec        json.RawMessage   `json:"spec"`
}

// codeInterpreter is the spec of a CodeInterpreter.
type codeInterpreter struct {
	Ports              []port     `json:"ports"`
	Template           *container `json:"template"`
	SessionTimeout     string     `json:"sessionTimeout"`
	MaxSessionDuration string     `json:"maxSessionDuration"`
	WarmPoolSize       *int       `json:"warmPoolSize"`
	AuthMode           string     `json:"authMode"`
}

// container is a CodeInterpreterSandboxTemplate: one container and a little of its Pod.
type container struct {
	Image            string            `json:"image"`
	ImagePullPolicy  string            `json:"imagePullPolicy"`
	ImagePullSecrets json.RawMessage   `json:"imagePullSecrets"`
	Command          []string          `json:"command"`
	Args             []string          `json:"args"`
	Environment      []variable        `json:"environment"`
	Resources        *resources        `json:"resources"`
	RuntimeClassName string            `json:"runtimeClassName"`
	Labels           map[string]string `json:"labels"`
	Annotations      map[string]string `json:"annotations"`
}

// variable is Kubernetes' EnvVar.
type variable struct {
	Name      string          `json:"name"`
	Value     string          `json:"value,omitempty"`
	ValueFrom json.RawMessage `json:"valueFrom,omitempty"`
}

// resources are Kubernetes' ResourceRequirements; an amount may be text or a number.
type resources struct {
	Limits   runtime.Limits  `json:"limits,omitempty"`
	Requests runtime.Limits  `json:"requests,omitempty"`
	Claims   json.RawMessage `json:"claims,omitempty"`
}

// of says whether a manifest of this apiVersion is AgentCube's, of any version.
func of(apiVersion string) bool { return strings.HasPrefix(apiVersion, Group+"/") }
