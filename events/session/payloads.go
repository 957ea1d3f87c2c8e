package session

import (
	"encoding/json"
	"time"

	"github.com/holdfast-io/holdfast/events"
)

// Payload is one fact about a session. The set is sealed: a type of event that
// isn't in the registry can't be decoded or written.
//
//sumtype:decl
type Payload interface{ eventType() string }

// RuntimeRef names the runtime revision that a session is pinned to.
type RuntimeRef struct {
	Name     string `json:"name"`
	Revision uint64 `json:"revision"`
}

// Terms are what the runtime's revision and the create say of a session's life;
// pinned in session.created so that every decider finds them in the state.
type Terms struct {
	Kind     string `json:"kind"`
	Adapter  string `json:"adapter"`
	Policy   string `json:"policy"`
	OnIdle   string `json:"onIdle"`
	OnLoss   string `json:"onLoss"`
	Suspends bool   `json:"suspends"` // has a workspace volume, or is stateless
	// The timeouts; Idle and Max may be shortened by the create.
	Claim               events.Duration `json:"claim"`
	Idle                events.Duration `json:"idle"`
	Max                 events.Duration `json:"max"`
	SuspendWhileWaiting events.Duration `json:"suspendWhileWaiting"`
	DrainGrace          events.Duration `json:"drainGrace"`
	Redact              []string        `json:"redact,omitempty"`
}

// Created starts a session.
type Created struct {
	Owner   string            `json:"owner"`
	Runtime RuntimeRef        `json:"runtime"`
	Terms   Terms             `json:"terms"`
	Config  json.RawMessage   `json:"config,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Parent  string            `json:"parent,omitempty"`
	// BodyHash is over the request's body: another body under the same
	// Idempotency-Key is refused.
	BodyHash string `json:"bodyHash,omitempty"`
}

// MessageReceived queues a user's message for a run. Several messages that came
// together are as many events with one RunID. Version 2 brought Tools.
type MessageReceived struct {
	MessageID string          `json:"messageId"`
	RunID     string          `json:"runId"`
	Content   json.RawMessage `json:"content"`
	Requester string          `json:"requester"`
	// Tools are those that the client runs itself, for this run and its
	// continuations.
	Tools []Tool `json:"tools,omitempty"`
	// CancelOpen wants the run that is open or parked cancelled first.
	CancelOpen bool   `json:"cancelOpen,omitempty"`
	BodyHash   string `json:"bodyHash,omitempty"`
}

// Tool is what a client offers to run itself, in AG-UI's words: Parameters is a
// JSON schema of the arguments.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
}

// ActivityNoted says that a holder uses the sandbox until a time; the zero time
// releases.
type ActivityNoted struct {
	Holder string    `json:"holder"`
	Until  time.Time `json:"until"`
}

// SuspendRequested wants the sandbox put away. Cause is "request", "idle" or "waiting".
type SuspendRequested struct {
	Cause string `json:"cause"`
}

// ResumeRequested wants it back. Cause is "request", "message", "answer" or "run".
type ResumeRequested struct {
	Cause string `json:"cause"`
}

// Extended moves deadlines: the maximum age, the idle timeout, or both.
type Extended struct {
	MaxAt *time.Time       `json:"maxAt,omitempty"`
	Idle  *events.Duration `json:"idle,omitempty"`
}

// Expired says that the maximum age was reached.
type Expired struct {
	MaxAt time.Time `json:"maxAt"`
}

// Terminated says that somebody ended the session.
type Terminated struct {
	Reason string `json:"reason,omitempty"`
}

// EndRequested ends a session for a cause of its own life: idle with onIdle end
// (completed), or a workload that failed or was lost for good (failed).
type EndRequested struct {
	Outcome Outcome `json:"outcome"`
	Cause   string  `json:"cause"`
}

// Ended is the last event of a session's life: nothing of it exists any more.
type Ended struct {
	Outcome Outcome `json:"outcome"`
	Cause   string  `json:"cause"`
}

// ClaimRequested comes before anything is created outside. Deadline is ours.
type ClaimRequested struct {
	Generation uint64    `json:"generation"`
	Deadline   time.Time `json:"deadline"`
}

// Claimed says that a sandbox belongs to this generation.
type Claimed struct {
	Generation uint64           `json:"generation"`
	SandboxUID string           `json:"sandboxUid"`
	PodUID     string           `json:"podUid"`
	Restarts   int              `json:"restarts"`
	Path       string           `json:"path"` // warm or cold
	Isolation  string           `json:"isolation"`
	LayersMs   map[string]int64 `json:"layersMs,omitempty"`
}

// Ready says that the sandbox is bound and its entrypoint answered.
type Ready struct {
	Generation uint64           `json:"generation"`
	SandboxUID string           `json:"sandboxUid"`
	PodUID     string           `json:"podUid"`
	Restarts   int              `json:"restarts"`
	Path       string           `json:"path"`
	Isolation  string           `json:"isolation"`
	LayersMs   map[string]int64 `json:"layersMs,omitempty"`
}

// Suspended says that no process runs any more; the workspace is kept.
type Suspended struct {
	Generation uint64 `json:"generation"`
}

// Resumed is Ready again in the same generation, with a new Pod UID.
type Resumed struct {
	Generation uint64           `json:"generation"`
	PodUID     string           `json:"podUid"`
	Restarts   int              `json:"restarts"`
	Isolation  string           `json:"isolation"`
	LayersMs   map[string]int64 `json:"layersMs,omitempty"`
}

// Draining says that the sandbox's place is to be left: its node is cordoned, or its Pod
// asked to go. A session that may be suspended is as soon as nobody uses it, and comes up
// elsewhere; what is under way goes on for Terms.DrainGrace, and then the sandbox is lost.
type Draining struct {
	Generation uint64 `json:"generation"`
	PodUID     string `json:"podUid"`
	Cause      string `json:"cause"`
}

// Stayed says that the sandbox needn't leave its place any more, because its node takes
// Pods again.
type Stayed struct {
	Generation uint64 `json:"generation"`
	PodUID     string `json:"podUid"`
}

// Lost says that the sandbox is gone without our doing, or has to be given up because it
// had to leave its place and was in use for longer than Terms.DrainGrace. WorkspaceKept tells
// whether a next generation finds its files again.
type Lost struct {
	Generation    uint64 `json:"generation"`
	PodUID        string `json:"podUid"`
	Cause         string `json:"cause"`
	WorkspaceKept bool   `json:"workspaceKept"`
}

// Failed says that a claim or a resume came to nothing.
type Failed struct {
	Generation uint64 `json:"generation"`
	Cause      string `json:"cause"`
	Detail     string `json:"detail,omitempty"`
}

// Released says that nothing of the generation exists outside any more.
type Released struct {
	Generation uint64 `json:"generation"`
}

// RunStarted opens a turn, for a queued message or, with ParentRunID, as the
// continuation of an interrupted run.
type RunStarted struct {
	RunID       string `json:"runId"`
	ParentRunID string `json:"parentRunId,omitempty"`
	Instance    string `json:"instance"`
	Generation  uint64 `json:"generation"`
	PodUID      string `json:"podUid"`
	Requester   string `json:"requester"`
}

// RunTakenOver says that another runner drives the run from now on.
type RunTakenOver struct {
	RunID    string `json:"runId"`
	Instance string `json:"instance"`
}

// RunMessageRecorded keeps one completed AG-UI message of a run: Message is the
// whole message object ({id, role, content, toolCalls?, toolCallId?}).
type RunMessageRecorded struct {
	RunID     string          `json:"runId"`
	MessageID string          `json:"messageId"`
	Role      string          `json:"role"`
	Message   json.RawMessage `json:"message"`
	K         uint64          `json:"k"`
}

// RunCancelRequested wants a run to stop.
type RunCancelRequested struct {
	RunID string `json:"runId"`
}

// RunInterrupted parks a run: Calls are the ids whose answers it needs.
type RunInterrupted struct {
	RunID      string          `json:"runId"`
	LastK      uint64          `json:"lastK"`
	Calls      []string        `json:"calls"`
	Interrupts json.RawMessage `json:"interrupts,omitempty"`
	State      json.RawMessage `json:"state,omitempty"`
}

// RunFinished ends a run: Outcome is "success" or "cancelled". A queued run may
// be cancelled before it starts, an interrupted one while it waits.
type RunFinished struct {
	RunID   string          `json:"runId"`
	LastK   uint64          `json:"lastK"`
	Outcome string          `json:"outcome"`
	State   json.RawMessage `json:"state,omitempty"`
}

// RunFailed ends a run for a reason: the agent's own, a broken protocol, or a
// lost sandbox.
type RunFailed struct {
	RunID  string `json:"runId"`
	LastK  uint64 `json:"lastK"`
	Cause  string `json:"cause"`
	Detail string `json:"detail,omitempty"`
}

// CallProposed says what an agent wants to do. Args are canonical (RFC 8785).
type CallProposed struct {
	CallID      string          `json:"callId"`
	AgentCallID string          `json:"agentCallId"`
	RunID       string          `json:"runId"`
	Tool        string          `json:"tool"`
	Args        json.RawMessage `json:"args"`
	ArgsHash    string          `json:"argsHash"`
	Requester   string          `json:"requester"`
	Modes       []string        `json:"modes"`
}

// CallDecided is the policy's word: Decision is allow, deny or ask.
type CallDecided struct {
	CallID      string `json:"callId"`
	Decision    string `json:"decision"`
	Rule        string `json:"rule"`
	Policy      string `json:"policy"`
	Revision    uint64 `json:"revision"`
	Enforcement string `json:"enforcement"`
	Reason      string `json:"reason,omitempty"`
	// ExecuteBy bounds the start of an allowed call.
	ExecuteBy time.Time `json:"executeBy,omitzero"`
}

// CallHumanConfirmRequired puts the question to people.
type CallHumanConfirmRequired struct {
	CallID           string          `json:"callId"`
	Mode             string          `json:"mode"` // hold or park
	Approvers        []string        `json:"approvers,omitempty"`
	ExcludeRequester bool            `json:"excludeRequester,omitempty"`
	Deadline         time.Time       `json:"deadline,omitzero"` // zero: never
	OnDeadline       string          `json:"onDeadline"`
	ExecuteWithin    events.Duration `json:"executeWithin"`
	Risk             string          `json:"risk,omitempty"`
	Message          string          `json:"message,omitempty"`
	Isolation        string          `json:"isolation"`
}

// CallVoteCast is one person's vote.
type CallVoteCast struct {
	CallID   string `json:"callId"`
	By       string `json:"by"`
	Decision string `json:"decision"` // approve or deny
	Comment  string `json:"comment,omitempty"`
	ArgsHash string `json:"argsHash"`
}

// CallAnswerRefused records an answer that did not count and why (a problem code).
type CallAnswerRefused struct {
	CallID   string `json:"callId"`
	By       string `json:"by"`
	Decision string `json:"decision"`
	ArgsHash string `json:"argsHash,omitempty"`
	Code     string `json:"code"`
}

// CallApproved lets the call be started until ExecuteBy.
type CallApproved struct {
	CallID    string    `json:"callId"`
	By        string    `json:"by"`
	ArgsHash  string    `json:"argsHash"`
	ExecuteBy time.Time `json:"executeBy"`
}

// CallDenied is a person's no.
type CallDenied struct {
	CallID string `json:"callId"`
	By     string `json:"by"`
	Reason string `json:"reason,omitempty"`
}

// CallExpired says that nobody answered in time.
type CallExpired struct {
	CallID   string    `json:"callId"`
	Deadline time.Time `json:"deadline"`
}

// CallCancelled says that the question is moot: its run was cancelled or failed,
// or the session ends.
type CallCancelled struct {
	CallID string `json:"callId"`
	Cause  string `json:"cause"`
}

// CallSuperseded says that the agent asked the same again with other arguments.
type CallSuperseded struct {
	CallID string `json:"callId"`
	By     string `json:"by"` // the call that takes its place
}

// CallStarted comes before the agent is told to go: at most one for a call.
type CallStarted struct {
	CallID   string `json:"callId"`
	RunID    string `json:"runId"`
	Nonce    string `json:"nonce"`
	ArgsHash string `json:"argsHash"`
}

// CallDelegated hands a call to the client whose tool it is: the client has until
// Deadline to bring the result. ToolCallID is the call's id in the conversation.
type CallDelegated struct {
	CallID     string    `json:"callId"`
	ToolCallID string    `json:"toolCallId"`
	RunID      string    `json:"runId"`
	Deadline   time.Time `json:"deadline"`
}

// CallCompleted reports what came of it. The nonce of a delegated call is the id of
// the message that brought its result.
type CallCompleted struct {
	CallID    string          `json:"callId"`
	Nonce     string          `json:"nonce"`
	ExitCode  *int            `json:"exitCode,omitempty"`
	Output    string          `json:"output,omitempty"`
	Truncated bool            `json:"truncated,omitempty"`
	Error     string          `json:"error,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
}

// CallLapsed closes a call that was allowed or approved and never started
// ("unstarted"), or started or delegated and never reported ("unfinished").
type CallLapsed struct {
	CallID string `json:"callId"`
	Kind   string `json:"kind"`
	Cause  string `json:"cause,omitempty"`
}
