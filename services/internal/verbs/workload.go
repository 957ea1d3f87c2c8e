package verbs

import (
	"encoding/json"
	"time"
)

// The verbs of the workload service.
const (
	Locate        = "locate"
	RuntimeApply  = "runtime-apply"
	RuntimeRemove = "runtime-remove"
)

// LocateBody is the body of Locate; generation 0 means the current one.
type LocateBody struct {
	Generation uint64 `json:"generation"`
}

// LocateResult is where a session's sandboxd answers: "unix:/path" or
// "http://host:port". It is never part of an event.
type LocateResult struct {
	Endpoint   string `json:"endpoint"`
	PodUID     string `json:"podUid"`
	Generation uint64 `json:"generation"`
	// Access is the token for the relay that answers there, good until AccessUntil;
	// empty where sandboxd itself does.
	Access      string    `json:"access,omitempty"`
	AccessUntil time.Time `json:"accessUntil,omitzero"`
}

// ApplyBody is the body of RuntimeApply and PolicyApply: the spec as JSON.
type ApplyBody struct {
	Name string          `json:"name"`
	Spec json.RawMessage `json:"spec"`
}

// ApplyResult answers them: the revision in force and whether it is new.
type ApplyResult struct {
	Revision uint64 `json:"revision"`
	Changed  bool   `json:"changed"`
}

// RemoveBody is the body of RuntimeRemove and PolicyRemove.
type RemoveBody struct {
	Name string `json:"name"`
}
