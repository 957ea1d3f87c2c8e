package verbs

import "time"

// The verbs of every service that reacts, on what it gave up on.
const (
	ParkedList  = "parked-list"
	ParkedRetry = "parked-retry"
)

// ParkedListResult answers ParkedList: what the service has parked of the tenant, the
// longest ago first. ParkedRetry has no body: the session stands in the request.
type ParkedListResult struct {
	Items []Parked `json:"items"`
}

// Parked is a session that the service gave up on.
type Parked struct {
	Session string `json:"session"`
	// Reason is the last failure.
	Reason   string    `json:"reason"`
	Failures int       `json:"failures"`
	At       time.Time `json:"at"`
}
