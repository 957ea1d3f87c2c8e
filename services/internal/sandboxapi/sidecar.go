package sandboxapi

// The environment of `sandboxd sidecar`, which is all that it is told before its bind.
// Nothing of it is a secret, and nothing a session's: it stands in a Pod's template.
const (
	// EnvPodUID is the Pod's UID, by the downward API.
	EnvPodUID = "HOLDFAST_POD_UID"
	// EnvBindKey is the public half of the workload service's key, as base64 of its 32
	// bytes.
	EnvBindKey = "HOLDFAST_BIND_KEY"
	// EnvAdapter is the runtime's: "agui", "exec", "push", or "none", which is the default.
	EnvAdapter = "HOLDFAST_ADAPTER"
	// EnvAgentPort is where the agent serves on the Pod's loopback; empty where it serves
	// nothing. An exec-agent's default is DefaultExecPort.
	EnvAgentPort = "HOLDFAST_AGENT_PORT"
	// EnvReadyPath and EnvRunPath are as in AgentProcess.
	EnvReadyPath = "HOLDFAST_READY_PATH"
	EnvRunPath   = "HOLDFAST_RUN_PATH"
	// EnvIsolation is the grade in force; "none" is the default, and claims nothing.
	EnvIsolation = "HOLDFAST_ISOLATION"
	// EnvSpool is the directory for what the agent says, which the agent can't see. It
	// outlives a restart of the container.
	EnvSpool = "HOLDFAST_SPOOL"
	// EnvTokenFile is the projected service-account token, in sandboxd's container alone;
	// DefaultTokenFile is the default.
	EnvTokenFile = "HOLDFAST_TOKEN_FILE"
	// EnvListen and EnvRelay are where sandboxd is reached from outside and by the agent;
	// DefaultListen and DefaultRelay are the defaults.
	EnvListen = "HOLDFAST_LISTEN"
	EnvRelay  = "HOLDFAST_RELAY"
)

// Defaults of the environment.
const (
	DefaultTokenFile = "/var/run/secrets/holdfast/token"
	DefaultListen    = ":7778"
	DefaultRelay     = "127.0.0.1:7777"
	DefaultExecPort  = 7779
)

// Paths on the gateway's listener for agents by which a Pod's sandboxd redeems its bind
// and renews its token: a POST of BindRequest with the Pod's token, answered by Grant.
const (
	PathRedeem = "/v1/agent/bind"
	PathRenew  = "/v1/agent/renew"
)
