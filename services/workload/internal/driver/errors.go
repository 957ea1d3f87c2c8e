package driver

import (
	"errors"
	"fmt"
)

// Errors that callers tell apart with errors.Is.
var (
	// ErrOlderIntent refuses an effect that a later one has overtaken; see
	// OlderIntentError.
	ErrOlderIntent = errors.New("older intent")
	// ErrNotFound says that the session has no such sandbox.
	ErrNotFound = errors.New("no such sandbox")
	// ErrWorkspaceGone says that the session's volume, which an earlier incarnation
	// had, isn't there any more. No empty one is made in its place.
	ErrWorkspaceGone = errors.New("the session's workspace is gone")
	// ErrNotRunning says that the sandbox is suspended or lost.
	ErrNotRunning = errors.New("sandbox is not running")
	// ErrBusy says that another generation of the session still runs.
	ErrBusy = errors.New("another generation of the session is running")
	// ErrIsolationUnavailable says that the wanted isolation can't be had here;
	// see IsolationError for what is missing and the way out.
	ErrIsolationUnavailable = errors.New("isolation unavailable")
	// ErrInvalid refuses a claim or runtime that no driver could run.
	ErrInvalid = errors.New("invalid")
	// ErrStart says that the sandbox didn't come up.
	ErrStart = errors.New("sandbox did not start")
	// ErrEntrypoint says that the agent's process failed for good.
	ErrEntrypoint = errors.New("entrypoint failed")
	// ErrBindRefused says that the sandbox is another's or the bind wasn't granted.
	ErrBindRefused = errors.New("bind refused")
	// ErrInUse says that another driver works on the same data.
	ErrInUse = errors.New("data directory is in use")
	// ErrUnreachable says that who was asked, the host of the sandboxes or the workload
	// service, doesn't answer. Whether sandboxes still run there isn't known, so nothing
	// follows but to ask again.
	ErrUnreachable = errors.New("nobody answers")
	// ErrForeign says that somebody else has something under the sandbox's name, or put
	// it there anew: it is neither used nor removed.
	ErrForeign = errors.New("the name of the sandbox is somebody else's")
	// ErrClosed says that the driver has been closed.
	ErrClosed = errors.New("driver is closed")
)

// OlderIntentError is an ErrOlderIntent with the numbers.
type OlderIntentError struct {
	Ref
	Intent   uint64 `json:"intent"`
	Recorded uint64 `json:"recorded"`
}

func (e *OlderIntentError) Error() string {
	return fmt.Sprintf("session %s: intent %d is older than %d, which has been carried out", e.Session, e.Intent, e.Recorded)
}

// Is makes the error an ErrOlderIntent.
func (e *OlderIntentError) Is(target error) bool { return target == ErrOlderIntent }

// EntrypointError is an ErrEntrypoint whose driver knows what the agent printed last.
type EntrypointError struct {
	// Reason says how it ended.
	Reason string
	// Words are the agent's last, for its session alone: an agent prints secrets, so the
	// error doesn't say them.
	Words string
}

func (e *EntrypointError) Error() string { return fmt.Sprintf("%v: %s", ErrEntrypoint, e.Reason) }

// Is makes the error an ErrEntrypoint.
func (e *EntrypointError) Is(target error) bool { return target == ErrEntrypoint }

// IsolationError is an ErrIsolationUnavailable that names what is missing and
// what to do about it.
type IsolationError struct {
	Missing string `json:"missing"`
	WayOut  string `json:"wayOut"`
}

func (e *IsolationError) Error() string {
	return fmt.Sprintf("isolation unavailable: %s; %s", e.Missing, e.WayOut)
}

// Is makes the error an ErrIsolationUnavailable.
func (e *IsolationError) Is(target error) bool { return target == ErrIsolationUnavailable }
