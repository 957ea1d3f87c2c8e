package sandboxapi

import "encoding/json"

// Descriptors that the parent hands to sandboxd (as exec.Cmd.ExtraFiles, in
// this order).
const (
	// ControlFD is the stream of [Control] messages.
	ControlFD = 3
	// ListenFD is the listening unix socket of the HTTP API.
	ListenFD = 4
)

// ControlType names what a [Control] message says.
type ControlType string

// The messages of the control channel.
const (
	// ControlBoot (parent → sandboxd, first and once) carries Boot.
	ControlBoot ControlType = "boot"
	// ControlBooted (sandboxd → parent) says that the HTTP API is being served.
	ControlBooted ControlType = "booted"
	// ControlRedeem (sandboxd → parent) presents the signed Bind for redemption.
	ControlRedeem ControlType = "redeem"
	// ControlRenew (sandboxd → parent) asks for a fresh token of the bound session.
	ControlRenew ControlType = "renew"
	// ControlGranted (parent → sandboxd) answers redeem and renew with Grant.
	ControlGranted ControlType = "granted"
	// ControlRefused (parent → sandboxd) answers redeem and renew with Reason.
	ControlRefused ControlType = "refused"
	// ControlStop (parent → sandboxd) asks for an orderly end within GraceMillis.
	ControlStop ControlType = "stop"
)

// Control is one line of the control channel. Only the fields of its Type are set.
type Control struct {
	Type        ControlType `json:"type"`
	Boot        *Boot       `json:"boot,omitempty"`
	Bind        string      `json:"bind,omitempty"`
	Grant       *Grant      `json:"grant,omitempty"`
	Reason      string      `json:"reason,omitempty"`
	GraceMillis int64       `json:"graceMillis,omitempty"`
}

// Boot tells a new sandboxd what it is. It holds nothing of any session: a
// warm sandbox belongs to nobody.
type Boot struct {
	// PodUID identifies this incarnation of the sandbox; never reused.
	PodUID string `json:"podUid"`
	// Isolation is the grade in force, e.g. "namespaces" or "none".
	Isolation string `json:"isolation"`
	// Upstream is the gateway's agent listener as seen from inside, as
	// "unix:/path" or "http://host:port".
	Upstream string `json:"upstream"`
	// Workspace is the agent's working directory inside the sandbox.
	Workspace string `json:"workspace"`
	// SpoolDir is where sandboxd keeps what the agent says. The agent can't see it.
	SpoolDir string `json:"spoolDir"`
	// RelayAddr is where the agent reaches sandboxd; "127.0.0.1:7777", or port 0
	// where the network is the host's (isolation none).
	RelayAddr string `json:"relayAddr"`
	// Agent is the process to start; nil for a runtime without one.
	Agent *AgentProcess `json:"agent,omitempty"`
}

// AgentProcess is the entrypoint that sandboxd starts and watches.
type AgentProcess struct {
	// Argv is the command; Argv[0] is a path inside the sandbox.
	Argv []string `json:"argv"`
	// Env is the whole environment ("K=V"); sandboxd adds EnvAgentURL and EnvPort.
	Env []string `json:"env,omitempty"`
	// Adapter is the runtime's: "agui", "exec", "push", or "none" for a plain server.
	Adapter string `json:"adapter"`
	// Port on the sandbox's loopback that the entrypoint serves; 0 lets sandboxd
	// pick a free one (isolation none). The agent reads it from EnvPort.
	Port int `json:"port"`
	// ReadyPath is the GET path that answers 2xx when the entrypoint is ready;
	// empty means that an accepted connection is enough.
	ReadyPath string `json:"readyPath,omitempty"`
	// Serves says that Port and ReadyPath are the runtime's: an agent of the adapter
	// push that serves nothing is ready once it asks for an input.
	Serves bool `json:"serves,omitempty"`
	// RunPath is where an AG-UI agent takes POSTs of RunAgentInput.
	RunPath string `json:"runPath,omitempty"`
	// Limits of the process itself, 0 meaning none; cgroups (where writable)
	// are the driver's and come on top.
	MaxMemoryBytes int64 `json:"maxMemoryBytes,omitempty"`
	MaxProcs       int64 `json:"maxProcs,omitempty"`
	// MaxFileBytes bounds each file that the process writes; 0 is no bound.
	MaxFileBytes int64 `json:"maxFileBytes,omitempty"`
}

// The environment that sandboxd gives to the agent.
const (
	// EnvAgentURL is the base URL for /v1/agent/*, e.g. "http://127.0.0.1:7777".
	EnvAgentURL = "HOLDFAST_URL"
	// EnvPort is the port the agent has to serve.
	EnvPort = "PORT"
	// A program of the adapter exec gets these of its input too: the ids of thread and
	// run, and the id and text of the newest message of a user.
	EnvThread    = "HOLDFAST_THREAD_ID"
	EnvRun       = "HOLDFAST_RUN_ID"
	EnvMessageID = "HOLDFAST_MESSAGE_ID"
	EnvMessage   = "HOLDFAST_MESSAGE"
)

// Grant is what a redeemed bind gives: the session's identity and its token.
type Grant struct {
	Tenant     string `json:"tenant"`
	Session    string `json:"session"`
	Generation uint64 `json:"generation"`
	PodUID     string `json:"podUid"`
	// Token authorises /v1/agent/* upward; it is renewed before ExpiresUnix.
	Token       string `json:"token"`
	ExpiresUnix int64  `json:"expiresUnix"`
	// Config is the session's config as given at create; any JSON object.
	Config json.RawMessage `json:"config,omitempty"`
	// PolicyRevision is the revision in force when the bind was granted.
	PolicyRevision uint64 `json:"policyRevision"`
}
