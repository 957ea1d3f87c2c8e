// Package runtime holds the events of a runtime: a named recipe in immutable
// revisions. An apply makes a revision, whose number is the n of its
// runtime.applied; sessions pin the one they were created with. The workload
// service alone appends here.
package runtime

import (
	"encoding/json"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/revisions"
)

// Types of event on ev.<tenant>.runtime.<name>.
const (
	TypeApplied = "runtime.applied"
	TypeRemoved = "runtime.removed"
)

// Kind says what a runtime's sandboxes are for.
type Kind string

// The kinds of runtime.
const (
	KindAgent           Kind = "agent"
	KindCodeInterpreter Kind = "code-interpreter"
)

// Spec is a runtime as applied. JSON and YAML use the same names.
type Spec struct {
	Name        string       `json:"name"`
	Kind        Kind         `json:"kind"`
	Adapter     Adapter      `json:"adapter"`
	Sandbox     Sandbox      `json:"sandbox"`
	Workspace   *Workspace   `json:"workspace,omitempty"`
	Entrypoints []Entrypoint `json:"entrypoints,omitempty"`
	WarmPool    WarmPool     `json:"warmPool"`
	Timeouts    Timeouts     `json:"timeouts"`
	// OnIdle is "suspend" or "end", OnLoss "restart" or "end".
	OnIdle string `json:"onIdle"`
	OnLoss string `json:"onLoss"`
	// Stateless lets a session suspend without a workspace.
	Stateless bool   `json:"stateless,omitempty"`
	Policy    string `json:"policy"`
	// Redact lists JSON pointers into a call's arguments that views mask.
	Redact []string `json:"redact,omitempty"`
}

// Adapter says how the runner talks to the agent.
type Adapter struct {
	// Protocol is "agui", "exec", "push" or "none".
	Protocol string `json:"protocol"`
	// Entrypoint names the entrypoint that takes runs.
	Entrypoint string `json:"entrypoint,omitempty"`
	// Path is where it takes them; "/" where empty.
	Path string `json:"path,omitempty"`
	// Resume is "rerun": a continuation is a new run with the same thread.
	Resume string `json:"resume,omitempty"`
}

// Sandbox is what is started: an image, or a command of the local driver's host.
type Sandbox struct {
	Image string `json:"image,omitempty"`
	// HostFolder is a folder of the local driver's host with the agent's code; only
	// an admin may name one.
	HostFolder       string    `json:"hostFolder,omitempty"`
	Command          []string  `json:"command,omitempty"`
	Env              []EnvVar  `json:"env,omitempty"`
	RuntimeClassName string    `json:"runtimeClassName,omitempty"`
	Resources        Resources `json:"resources"`
	// ServiceAccountName is the Pod's; only an admin may name one.
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
	// PodTemplate is a whole PodTemplateSpec of Kubernetes, of an admin: it stands for
	// all of the above.
	PodTemplate json.RawMessage `json:"podTemplate,omitempty"`
	// AllowSecrets is an admin's leave for PodTemplate to name Secrets; Secrets are
	// those that it does name, which the workload service fills in.
	AllowSecrets bool     `json:"allowSecrets,omitempty"`
	Secrets      []string `json:"secrets,omitempty"`
}

// EnvVar is one variable of every sandbox of the runtime; never per session.
type EnvVar struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Resources bounds a sandbox, and says what is set aside for it on a node: Requests,
// which only a cluster has.
type Resources struct {
	Limits   Limits `json:"limits,omitempty"`
	Requests Limits `json:"requests,omitempty"`
}

// Limits are quantities by resource, as Kubernetes writes them ("500m", "1Gi"); of
// "pids" a count.
type Limits map[string]string

// UnmarshalJSON takes numbers too, as people write a count.
func (l *Limits) UnmarshalJSON(raw []byte) error {
	var written map[string]quantity
	if err := json.Unmarshal(raw, &written); err != nil || written == nil {
		return err
	}
	*l = Limits{}
	for resource, q := range written {
		(*l)[resource] = string(q)
	}
	return nil
}

// quantity is a string, or a number that is read as its digits.
type quantity string

// UnmarshalJSON implements json.Unmarshaler.
func (q *quantity) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err == nil {
		*q = quantity(text)
		return nil
	}
	var number json.Number
	err := json.Unmarshal(raw, &number)
	*q = quantity(number)
	return err
}

// Workspace is the volume that survives suspend and resume.
type Workspace struct {
	Path string `json:"path"`
	Size string `json:"size,omitempty"`
	// StorageClassName is that of the volume in a cluster.
	StorageClassName string `json:"storageClassName,omitempty"`
}

// Entrypoint is a port that the agent serves.
type Entrypoint struct {
	Name       string `json:"name"`
	PathPrefix string `json:"pathPrefix,omitempty"`
	Port       int    `json:"port"`
	Protocol   string `json:"protocol,omitempty"`
	// Ready is the path whose 2xx means that the entrypoint answers.
	Ready string `json:"ready,omitempty"`
}

// WarmPool is how many unbound sandboxes wait.
type WarmPool struct {
	Size int `json:"size"`
}

// Timeouts bound a session's life.
type Timeouts struct {
	Claim               events.Duration `json:"claim"`
	Idle                events.Duration `json:"idle"`
	Max                 events.Duration `json:"max"`
	SuspendWhileWaiting events.Duration `json:"suspendWhileWaiting"`
	DrainGrace          events.Duration `json:"drainGrace"`
}

// State is the fold.
type State = revisions.State[Spec]

// Revision is one applied spec.
type Revision = revisions.Revision[Spec]

// New gives an empty State.
func New() *State {
	return revisions.New[Spec](revisions.Types{Applied: TypeApplied, Removed: TypeRemoved, Owner: events.ServiceWorkload})
}
