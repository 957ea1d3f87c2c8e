package driver

import (
	"context"
	"encoding/json"
	"time"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
)

// Driver runs sandboxes. Its methods may be called concurrently; those for one
// session are carried out one after the other.
type Driver interface {
	// Claim makes the sandbox of c.Ref or finds it again. It adopts a warm one
	// where the pool has one of the runtime's revision and the session has no
	// workspace yet. It returns when the sandbox can be bound; Ready says when its
	// entrypoint answers. One that was lost is started again with a new PodUID, on
	// which callers fence. What earlier generations left is removed, but their
	// volume; while one still runs it is ErrBusy.
	Claim(ctx context.Context, c Claim) (Sandbox, error)
	// Resume is Claim for a sandbox that must exist: it starts a suspended one
	// again, as a new incarnation with the session's workspace. One that runs
	// already is returned as it is.
	Resume(ctx context.Context, c Claim) (Sandbox, error)
	// Suspend ends the processes and keeps the workspace. A lost sandbox becomes a
	// suspended one.
	Suspend(ctx context.Context, ref Ref, intent uint64) error
	// Release ends the processes and removes the sandbox, and the session's
	// workspace unless it is to be kept for a next generation. A sandbox that
	// doesn't exist is released.
	Release(ctx context.Context, ref Ref, intent uint64, keepWorkspace bool) error

	// Locate says where a running sandbox is reached. Callers drop what they know
	// when the session's workload changes.
	Locate(ctx context.Context, ref Ref) (Endpoint, error)
	// Bind hands the signed bind to the sandbox, which redeems it through the
	// driver's [Granter]. Binding again with the same session is a success.
	Bind(ctx context.Context, ref Ref, bind string) (sandboxapi.Health, error)
	// Ready waits until the sandbox's entrypoint answers, and asks it no more where it did
	// when it was bound, as bound says; ErrEntrypoint when it failed for good.
	Ready(ctx context.Context, ref Ref, bound sandboxapi.Health) (sandboxapi.Health, error)

	// List returns every sandbox that a session has.
	List(ctx context.Context) ([]Found, error)
	// Events tells of sandboxes that ended by themselves, and of a driver that began
	// anew. The channel is closed by Close.
	Events() <-chan Event

	// EnsurePool keeps size unbound sandboxes of the runtime started ahead, and
	// removes those of the runtime's other revisions. Size 0 ends the pool. It
	// returns at once; the pool fills in the background.
	EnsurePool(ctx context.Context, runtime RuntimeSpec, size int) error
	// Close ends what the driver holds; it blocks and may be repeated. Sandboxes of
	// a local driver end with it and are found as lost by the next one.
	Close() error
}

// Granter redeems binds and renews tokens for sandboxes. The driver has made
// sure who asks: podUID is the incarnation at the other end of its own pipe.
type Granter interface {
	// Redeem verifies the signed bind and its Pod UID, once.
	Redeem(ctx context.Context, podUID, bind string) (sandboxapi.Grant, error)
	// Renew gives a fresh token to an incarnation that was bound before.
	Renew(ctx context.Context, podUID string) (sandboxapi.Grant, error)
}

// Ref names the sandbox of one generation of a session.
type Ref struct {
	Tenant     string `json:"tenant"`
	Session    string `json:"session"`
	Generation uint64 `json:"generation"`
}

// Claim asks for a sandbox.
type Claim struct {
	Ref
	// Intent is the session's n that wants it.
	Intent uint64 `json:"intent"`
	// Epoch is the log's; it is kept with the sandbox, so that a sweep never acts
	// on what another log wanted.
	Epoch string `json:"epoch"`
	// Runtime is the pinned revision to run.
	Runtime RuntimeSpec `json:"runtime"`
	// Until is when the cluster may remove the sandbox by itself, should nobody do it;
	// zero is never. It is far behind the session's own end. See Backstop.
	Until time.Time `json:"until,omitzero"`
}

// RuntimeSpec is what a driver needs of a runtime's revision.
type RuntimeSpec struct {
	// Name and Revision identify it; equal ones have equal contents.
	Name     string `json:"name"`
	Revision uint64 `json:"revision"`
	// Kind is "agent" or "code-interpreter".
	Kind string `json:"kind"`
	// Argv is the entrypoint; empty for a runtime without one. Argv[0] may be
	// sandboxapi.JailBinary under any isolation.
	Argv []string `json:"argv,omitempty"`
	// Folder is a folder of the host that the sandbox sees read-only at
	// sandboxapi.JailAgent. Under any isolation arguments and variables may name
	// what is in it by that place.
	Folder string `json:"folder,omitempty"`
	// Env ("K=V") is the entrypoint's environment; never per session.
	Env []string `json:"env,omitempty"`
	// Adapter is "agui", "exec", "push" or "none".
	Adapter string `json:"adapter,omitempty"`
	// Port, ReadyPath and RunPath are as in sandboxapi.AgentProcess.
	Port      int    `json:"port,omitempty"`
	ReadyPath string `json:"readyPath,omitempty"`
	RunPath   string `json:"runPath,omitempty"`
	// Limits bound the whole sandbox.
	Limits Limits `json:"limits,omitzero"`
	// WorkspacePath is the agent's working directory, absolute.
	WorkspacePath string `json:"workspacePath"`
	// HasVolume says that the workspace belongs to the session: it survives
	// suspend and loss and goes on to the next generation. Without one each
	// incarnation starts with an empty workspace.
	HasVolume bool `json:"hasVolume,omitempty"`
	// Pod is what only a cluster needs; a local driver leaves it alone.
	Pod *PodSpec `json:"pod,omitempty"`
}

// PodSpec is what a runtime says of its Pod. Package podtemplate makes the Pod of it.
type PodSpec struct {
	// Image is the agent's. It is empty where PodTemplate has containers of its own.
	Image string `json:"image,omitempty"`
	// PodTemplate is a whole corev1.PodTemplateSpec, an admin's; Image, Requests, Limits,
	// RuntimeClassName, ServiceAccount and the spec's Argv and Env are empty beside it.
	PodTemplate json.RawMessage `json:"podTemplate,omitempty"`
	// AllowSecrets lets PodTemplate name Secrets of the namespace.
	AllowSecrets bool `json:"allowSecrets,omitempty"`
	// RuntimeClassName and ServiceAccount are the Pod's; empty ones are the driver's own.
	RuntimeClassName string `json:"runtimeClassName,omitempty"`
	ServiceAccount   string `json:"serviceAccount,omitempty"`
	// Requests and Limits of the agent's container are quantities by resource, as
	// Kubernetes writes them. They stand beside RuntimeSpec.Limits, which are numbers.
	Requests map[string]string `json:"requests,omitempty"`
	Limits   map[string]string `json:"limits,omitempty"`
	// StorageClass and VolumeSize (a quantity) are the volume's, where RuntimeSpec.HasVolume;
	// empty ones are the driver's own.
	StorageClass string `json:"storageClass,omitempty"`
	VolumeSize   string `json:"volumeSize,omitempty"`
	// Grace is left to the agent between the request to end and its kill.
	Grace time.Duration `json:"grace,omitempty"` // nanoseconds
}

// Limits of a sandbox; 0 is no limit.
type Limits struct {
	MemoryBytes int64 `json:"memoryBytes,omitempty"`
	CPUMillis   int64 `json:"cpuMillis,omitempty"`
	Pids        int64 `json:"pids,omitempty"`
	// DiskBytes bounds the workspace; 0 is the driver's own default.
	DiskBytes int64 `json:"diskBytes,omitempty"`
}

// Path says how a sandbox came to be.
type Path string

// The paths of a claim.
const (
	PathWarm Path = "warm"
	PathCold Path = "cold"
)

// Sandbox is a running sandbox.
type Sandbox struct {
	Ref
	// SandboxUID lasts as long as the sandbox, PodUID as long as one incarnation.
	SandboxUID string `json:"sandboxUid"`
	PodUID     string `json:"podUid"`
	Path       Path   `json:"path"`
	// Isolation is the grade in force, "namespaces" or "none" for the local driver.
	Isolation string `json:"isolation"`
	// Layers says how long each part of the start took, in the order of the start.
	// It is empty when the sandbox was found.
	Layers []Layer `json:"layers,omitempty"`
}

// Layer is one timed part of a start.
type Layer struct {
	Name string        `json:"name"`
	Took time.Duration `json:"took"` // nanoseconds
}

// Endpoint is where an incarnation is reached.
type Endpoint struct {
	// URL is "unix:/path/of/socket" or "http://address:port".
	URL    string `json:"url"`
	PodUID string `json:"podUid"`
	// Relayed says that a host's relay answers there, for all of its sandboxes: it
	// wants an access token (package sandboxtoken), which names the one that is meant.
	Relayed bool `json:"relayed,omitempty"`
}

// State is a sandbox's, as far as its driver knows.
type State string

// The states of a sandbox that a session has.
const (
	StateRunning   State = "running"
	StateSuspended State = "suspended"
	// StateLost is one that ended by itself or with its driver.
	StateLost State = "lost"
)

// Found is one sandbox of a list.
type Found struct {
	Ref
	SandboxUID string `json:"sandboxUid"`
	// PodUID is the current incarnation, or the last one.
	PodUID string `json:"podUid"`
	Intent uint64 `json:"intent"`
	Epoch  string `json:"epoch"`
	State  State  `json:"state"`
	// Cause says why a lost sandbox ended.
	Cause string `json:"cause,omitempty"`
	// Since is since when the session has it; zero where nobody knows.
	Since time.Time `json:"since,omitzero"`
}

// Event says that an incarnation ended, by itself or because its driver had to
// protect others; or, where Began is set and nothing else, that the driver began
// anew: what it has is to be compared with what is wanted, and its pools are empty.
type Event struct {
	Ref
	SandboxUID string `json:"sandboxUid,omitempty"`
	PodUID     string `json:"podUid,omitempty"`
	Cause      string `json:"cause,omitempty"`
	Began      bool   `json:"began,omitempty"`
	// Draining says that the incarnation runs, but has to leave its place.
	Draining bool `json:"draining,omitempty"`
	// Stays takes that back.
	Stays bool `json:"stays,omitempty"`
}
