package verbs

import "time"

// The workload service's verbs on what exists and no session or runtime of the log has.
const (
	SweepList   = "sweep-list"
	SweepRemove = "sweep-remove"
)

// Why something is a stray.
const (
	StrayUnknownSession = "unknown-session"
	StrayUnknownRuntime = "unknown-runtime"
	StrayOtherEpoch     = "other-epoch"
)

// What came of removing one.
const (
	StrayRemoved = "removed"
	StrayGone    = "gone" // it is no stray, or is under another UID by now: nothing was done
	StrayFailed  = "failed"
)

// StrayName says which one it is.
type StrayName struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// Stray is something that exists, and that the log has no use for.
type Stray struct {
	StrayName
	Why        string    `json:"why"`
	Session    string    `json:"session,omitempty"`
	Generation uint64    `json:"generation,omitempty"`
	Runtime    string    `json:"runtime,omitempty"`
	Revision   uint64    `json:"revision,omitempty"`
	Epoch      string    `json:"epoch,omitempty"`
	Since      time.Time `json:"since,omitzero"`
}

// SweepListResult answers SweepList: the tenant's, in the order in which they are removed.
type SweepListResult struct {
	Items []Stray `json:"items"`
}

// SweepRemoveBody is the body of SweepRemove: what was listed, and is to be removed.
type SweepRemoveBody struct {
	Items []StrayName `json:"items"`
}

// SweepRemoveResult answers it, in the order of the question.
type SweepRemoveResult struct {
	Items []StrayOutcome `json:"items"`
}

// StrayOutcome is what came of one; Detail says why it failed.
type StrayOutcome struct {
	StrayName
	Outcome string `json:"outcome"`
	Detail  string `json:"detail,omitempty"`
}
