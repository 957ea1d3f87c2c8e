package session

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/events"
)

// Outcome is how a session ended.
type Outcome string

// The outcomes.
const (
	OutcomeCompleted  Outcome = "completed"
	OutcomeTerminated Outcome = "terminated"
	OutcomeExpired    Outcome = "expired"
	OutcomeFailed     Outcome = "failed"
)

// State is a session's fold. Read it freely, change it only by Apply.
type State struct {
	Tenant, ID string
	// N and Seq are the last event's version and stream sequence; 0 when the
	// session doesn't exist.
	N, Seq    uint64
	CreatedAt time.Time
	UpdatedAt time.Time

	Owner     string
	CreatedBy events.Actor
	Runtime   RuntimeRef
	Terms     Terms
	Config    json.RawMessage
	Labels    map[string]string
	Parent    string
	BodyHash  string
	MaxAt     time.Time

	// WantRunning is the desired life short of ending: a sandbox, or none.
	WantRunning bool
	// Suspending is set from suspend-requested until the workload service says
	// what came of it: a suspend that was begun is finished before a resume.
	Suspending bool
	// Ending is set by expired, terminated and end-requested; EndOutcome and
	// EndCause are then what session.ended will say.
	Ending     bool
	EndOutcome Outcome
	EndCause   string
	Ended      bool

	// IntentN is the version of the event that last changed what is wanted of the
	// sandbox; external effects carry it.
	IntentN uint64
	// WantedAt is when a sandbox was last asked for: a resume's deadline counts
	// from it.
	WantedAt time.Time

	Workload Workload

	// Holders maps who uses the sandbox to until when, beside an open run.
	Holders map[string]time.Time
	// LastActivity is when something last happened that idleness counts from.
	LastActivity time.Time

	// Run is the open one, Interrupted the parked one whose answers are awaited or
	// whose continuation is due; Queue holds messages whose runs have not started.
	Run         *Run
	Interrupted *Parked
	Queue       []Queued
	// RunIDs are all runs ever queued, started or finished, with their state.
	RunIDs map[string]RunState

	// Calls by id. CallOrder keeps the order of proposal.
	Calls     map[string]*Call
	CallOrder []string
	// open counts calls that aren't final and pending those that wait for people.
	open, pending int
}

// WorkloadStatus is the observed sandbox of the current generation.
type WorkloadStatus string

// The statuses of a workload.
const (
	WorkloadNone      WorkloadStatus = ""
	WorkloadRequested WorkloadStatus = "requested"
	WorkloadClaimed   WorkloadStatus = "claimed"
	WorkloadReady     WorkloadStatus = "ready"
	WorkloadSuspended WorkloadStatus = "suspended"
	WorkloadLost      WorkloadStatus = "lost"
	WorkloadFailed    WorkloadStatus = "failed"
	WorkloadReleased  WorkloadStatus = "released"
)

// Workload is one incarnation of the sandbox.
type Workload struct {
	Generation    uint64
	Status        WorkloadStatus
	SandboxUID    string
	PodUID        string
	Restarts      int
	Path          string
	Isolation     string
	LayersMs      map[string]int64
	ClaimDeadline time.Time
	// WasReady says that this session had a ready sandbox before.
	WasReady bool
	// Failures counts the claims and resumes that came to nothing since a sandbox
	// was ready last.
	Failures int
	Cause    string
	Since    time.Time
	// DrainingAt is since when the place of a ready sandbox is to be left; zero where it
	// isn't.
	DrainingAt time.Time
}

// RunState is how far a run is.
type RunState string

// The states of a run. Interrupted is final for the run itself: its
// continuation is another run.
const (
	RunQueued      RunState = "queued"
	RunRunning     RunState = "running"
	RunInterruptd  RunState = "interrupted"
	RunContinued   RunState = "continued"
	RunSucceeded   RunState = "success"
	RunCancelled   RunState = "cancelled"
	RunFailedState RunState = "failed"
)

// Queued is a run that hasn't started, and the last message for it.
type Queued struct {
	MessageID string
	RunID     string
	Requester string
	Tools     []Tool
	// CancelOpen wants what is open or parked before it cancelled.
	CancelOpen bool
	N          uint64
	At         time.Time
}

// Run is the open run.
type Run struct {
	ID, Parent string
	// Root is the first run of the chain of continuations that this one ends.
	Root            string
	Instance        string
	Generation      uint64
	PodUID          string
	Requester       string
	StartedAt       time.Time
	StartN          uint64
	CancelRequested bool
	// Tools are those that the client runs itself.
	Tools []Tool
	// Resumes are the calls that the parked run before waited for: the answers that
	// this run's resume[] carries.
	Resumes []string
	// Recorded are the ids of the messages recorded so far.
	Recorded map[string]bool
}

// Parked is an interrupted run.
type Parked struct {
	RunID, Root string
	Requester   string
	Calls       []string
	Interrupts  json.RawMessage
	Tools       []Tool
	At          time.Time
	N           uint64
}

// CallState is how far a call is.
type CallState string

// The states of a call, from the design: proposed → allowed | denied | pending →
// approved | denied | expired | cancelled | superseded, then started or delegated
// to the client → completed, or lapsed.
const (
	CallStateProposed   CallState = "proposed"
	CallStateAllowed    CallState = "allowed"
	CallStatePending    CallState = "pending"
	CallStateApproved   CallState = "approved"
	CallStateDenied     CallState = "denied"
	CallStateExpired    CallState = "expired"
	CallStateCancelled  CallState = "cancelled"
	CallStateSuperseded CallState = "superseded"
	CallStateStarted    CallState = "started"
	CallStateDelegated  CallState = "delegated"
	CallStateCompleted  CallState = "completed"
	CallStateLapsed     CallState = "lapsed"
)

// Final says that nothing more will come of the call.
func (c CallState) Final() bool {
	switch c {
	case CallStateDenied, CallStateExpired, CallStateCancelled, CallStateSuperseded, CallStateCompleted, CallStateLapsed:
		return true
	case CallStateProposed, CallStateAllowed, CallStatePending, CallStateApproved, CallStateStarted, CallStateDelegated:
		return false
	}
	return false
}

// Answered says that a question of the call, if there was one, is settled.
func (c CallState) Answered() bool { return c != CallStateProposed && c != CallStatePending }

// Awaited says that somebody outside has to do something before a parked run can
// go on: people answer, or the client brings the result of its tool.
func (c CallState) Awaited() bool { return !c.Answered() || c == CallStateDelegated }

// ModeDelegate stands alone among a proposal's modes and says that the client runs the
// tool: once the policy lets it, the call is delegated instead of started.
const ModeDelegate = "delegate"

// Call is a tool call and all that followed.
type Call struct {
	ID, AgentCallID string
	// RunID proposed it, as part of the chain of continuations that began with Root.
	RunID, Root string
	Tool        string
	Args        json.RawMessage
	ArgsHash    string
	Requester   string
	Modes       []string
	State       CallState
	ProposedAt  time.Time
	ProposedN   uint64

	Decision    string
	Rule        string
	Policy      string
	Revision    uint64
	Enforcement string
	Reason      string
	ExecuteBy   time.Time

	// Asked is the question; nil where none was put.
	Asked *CallHumanConfirmRequired
	// Answer is the final answer of a person or of the deadline.
	Answer *Answer
	// Refusals counts the answers that did not count, so that a flood of them is
	// not recorded for ever.
	Refusals int

	// Delegated says that the client was handed the call.
	Delegated bool

	Nonce     string
	StartedIn string
	StartedAt time.Time
	Completed *CallCompleted
	// At is when the call reached its state, N the version it did so at.
	At time.Time
	N  uint64
}

// ForClient says that the client runs the call's tool, not the agent.
func (c *Call) ForClient() bool { return c.Delegated || slices.Contains(c.Modes, ModeDelegate) }

// Answer is what settled a question.
type Answer struct {
	Decision string // approve or deny
	By       string
	Comment  string
	At       time.Time
	ArgsHash string
}

// New gives the State of a session that doesn't exist yet.
func New() *State {
	return &State{
		Holders: map[string]time.Time{},
		RunIDs:  map[string]RunState{},
		Calls:   map[string]*Call{},
	}
}

// Exists says whether the session was created.
func (s *State) Exists() bool { return s.N > 0 }

// Over says that the session has ended: it is of no interest to those who keep states in
// memory.
func (s *State) Over() bool { return s.Ended }

// OpenCalls counts the calls that aren't final.
func (s *State) OpenCalls() int { return s.open }

// Waiting counts the calls that wait for a person.
func (s *State) Waiting() int { return s.pending }

// Awaits says that a question to people is open, or that a parked run waits for
// what its client has to bring: idleness doesn't end a session then.
func (s *State) Awaits() bool {
	return s.pending > 0 || s.Interrupted != nil && !s.ContinuationDue()
}

// InUse says whether the sandbox may not be put away: a run is open, or a holder
// has noted its use until later than now. The latest such time comes with it
// (zero for an open run).
func (s *State) InUse(now time.Time) (bool, time.Time) {
	if s.Run != nil {
		return true, time.Time{}
	}
	until := s.inUseUntil()
	return until.After(now), until
}

func (s *State) inUseUntil() time.Time {
	var latest time.Time
	for _, t := range s.Holders {
		if t.After(latest) {
			latest = t
		}
	}
	return latest
}

// ContinuationDue says that all calls of the parked run are settled, so that
// its continuation may start.
func (s *State) ContinuationDue() bool {
	if s.Interrupted == nil {
		return false
	}
	for _, id := range s.Interrupted.Calls {
		if c := s.Calls[id]; c != nil && c.State.Awaited() {
			return false
		}
	}
	return true
}

// ChainOpen says whether the chain of continuations that began with the run root
// is open or parked, so that its calls may still be answered and started.
func (s *State) ChainOpen(root string) bool {
	return s.Run != nil && s.Run.Root == root || s.Interrupted != nil && s.Interrupted.Root == root
}

// RunDue says that a run could start as soon as the workload is ready.
func (s *State) RunDue() bool {
	if s.Run != nil || s.Ending {
		return false
	}
	if s.Interrupted != nil {
		return s.ContinuationDue()
	}
	return len(s.Queue) > 0
}
