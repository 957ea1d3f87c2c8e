package sandboxapi

import "encoding/json"

// Headers that name the bound session on every request into a sandbox.
const (
	HeaderSession    = "Holdfast-Session"
	HeaderGeneration = "Holdfast-Generation"
)

// Paths of sandboxd's HTTP API.
const (
	// PathHealth answers GET with Health at any time.
	PathHealth = "/holdfast/health"
	// PathReady answers GET ?wait=<seconds> with Health once the entrypoint
	// answers or the wait is over (200 ready, 503 not yet or failed).
	PathReady = "/holdfast/ready"
	// PathBind takes POST BindRequest: 200 with Health when bound (again 200 for
	// the same bind, also after a lost reply), 409 when bound to another, 403
	// when the parent refused.
	PathBind = "/holdfast/bind"
	// PathRuns takes POST RunRequest: 202 started, 200 known already, 409 while
	// another run is open. Below it: /{run}/spool and /{run}/cancel.
	PathRuns = "/holdfast/runs"
	// PathInvoke prefixes what is proxied to the entrypoint: the rest of the path
	// and the query arrive there unchanged, WebSocket upgrades too.
	PathInvoke = "/invoke"
)

// BindRequest hands a signed bind (a JWT without secrets) to an unbound sandboxd, which
// hands it to the gateway with its own Secret.
type BindRequest struct {
	Bind string `json:"bind"`
	// Secret proves to the gateway the process that the bind is for.
	Secret string `json:"secret,omitempty"`
}

// EntrypointState says how far the agent's process is.
type EntrypointState string

// The states of an entrypoint.
const (
	EntrypointNone     EntrypointState = "none"
	EntrypointStarting EntrypointState = "starting"
	EntrypointReady    EntrypointState = "ready"
	EntrypointFailed   EntrypointState = "failed"
)

// Answers says whether an entrypoint that is so can be asked: there is none that would have
// to be waited for.
func (s EntrypointState) Answers() bool { return s == EntrypointReady || s == EntrypointNone }

// Health is what sandboxd says of itself.
type Health struct {
	PodUID string `json:"podUid"`
	// Process is the one that answers, as a bind names it; empty where a bind needs none.
	Process    string          `json:"process,omitempty"`
	Isolation  string          `json:"isolation"`
	Bound      bool            `json:"bound"`
	Session    string          `json:"session,omitempty"`
	Generation uint64          `json:"generation,omitempty"`
	Entrypoint EntrypointState `json:"entrypoint"`
	// Restarts counts how often the entrypoint was started again.
	Restarts int `json:"restarts"`
	// Reason says why the entrypoint failed, and then also the last 4 KiB at most
	// that it printed: the agent's words, which belong into no log.
	Reason string `json:"reason,omitempty"`
	// OpenRun is the run being driven, if any.
	OpenRun string `json:"openRun,omitempty"`
}

// RunRequest starts one turn. Input is the RunAgentInput (AG-UI 1.0) that is
// POSTed to the agent unchanged.
type RunRequest struct {
	RunID string          `json:"runId"`
	Input json.RawMessage `json:"input"`
}

// SpoolLine is one line (NDJSON) of GET /holdfast/runs/{run}/spool?from=<k>:
// every event with K ≥ from, then live ones, until the run's terminal event.
// K is contiguous from 1 in the run and given when the event is spooled, so
// the same K is the same event whoever reads it. The last line of a finished
// run has End set and no event. Blank lines are heartbeats.
type SpoolLine struct {
	K     uint64          `json:"k,omitempty"`
	Event json.RawMessage `json:"event,omitempty"`
	// End closes the spool. Outcome is "success", "interrupt", "cancelled" or
	// "error" (from the agent's RUN_ERROR, or made by sandboxd when the agent died
	// or broke the protocol; then Reason says why).
	End     bool   `json:"end,omitempty"`
	Outcome string `json:"outcome,omitempty"`
	Reason  string `json:"reason,omitempty"`
}
