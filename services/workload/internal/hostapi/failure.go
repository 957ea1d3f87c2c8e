package hostapi

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// sentinels are the errors that callers tell apart, by their names on the wire.
var sentinels = map[string]error{
	"not-found": driver.ErrNotFound, "workspace-gone": driver.ErrWorkspaceGone, "not-running": driver.ErrNotRunning,
	"busy": driver.ErrBusy, "invalid": driver.ErrInvalid, "start": driver.ErrStart, "entrypoint": driver.ErrEntrypoint,
	"bind-refused": driver.ErrBindRefused, "in-use": driver.ErrInUse, "closed": driver.ErrClosed,
	"older-intent": driver.ErrOlderIntent, "isolation": driver.ErrIsolationUnavailable, "unreachable": driver.ErrUnreachable,
	"deadline": context.DeadlineExceeded, "cancelled": context.Canceled,
}

// Failure is an error on the wire.
type Failure struct {
	// Detail is what the error said.
	Detail string `json:"detail"`
	// Is names the sentinels that it is.
	Is []string `json:"is,omitempty"`
	// The typed errors that it has.
	OlderIntent *driver.OlderIntentError `json:"olderIntent,omitempty"`
	Isolation   *driver.IsolationError   `json:"isolation,omitempty"`
	Problem     *sandboxapi.Problem      `json:"problem,omitempty"`
}

// FailureOf words an error.
func FailureOf(err error) *Failure {
	f := &Failure{Detail: err.Error()}
	for name, sentinel := range sentinels {
		if errors.Is(err, sentinel) {
			f.Is = append(f.Is, name)
		}
	}
	f.OlderIntent, _ = errors.AsType[*driver.OlderIntentError](err)
	f.Isolation, _ = errors.AsType[*driver.IsolationError](err)
	f.Problem, _ = errors.AsType[*sandboxapi.Problem](err)
	return f
}

// Err gives the error back. A name that this build doesn't know is left out: the
// rest still says what happened.
func (f *Failure) Err() error {
	e := &remoteError{detail: f.Detail}
	if f.OlderIntent != nil {
		e.causes = append(e.causes, f.OlderIntent)
	}
	if f.Isolation != nil {
		e.causes = append(e.causes, f.Isolation)
	}
	if f.Problem != nil {
		e.causes = append(e.causes, f.Problem)
	}
	for _, name := range f.Is {
		if sentinel, ok := sentinels[name]; ok {
			e.causes = append(e.causes, sentinel)
		}
	}
	return e
}

// remoteError is an error of the other end.
type remoteError struct {
	detail string
	causes []error
}

func (e *remoteError) Error() string { return e.detail }

// Unwrap gives the errors that it is.
func (e *remoteError) Unwrap() []error { return e.causes }
