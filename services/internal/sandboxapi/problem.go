package sandboxapi

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// The codes of problems that sandboxd answers with.
const (
	CodeInvalid          = "invalid"
	CodeNotFound         = "not-found"
	CodeNotBound         = "not-bound"
	CodeOtherSession     = "other-session"
	CodeBoundToAnother   = "bound-to-another"
	CodeBindRefused      = "bind-refused"
	CodeRunOpen          = "run-open"
	CodeNoAdapter        = "no-adapter"
	CodeNoEntrypoint     = "no-entrypoint"
	CodeNotReady         = "not-ready"
	CodeSpoolGone        = "spool-gone"
	CodeTooLarge         = "too-large"
	CodeRunOver          = "run-over"
	CodeRunFailed        = "run-failed"
	CodeGap              = "events-missing"
	CodeQuotaExceeded    = "quota-exceeded"
	CodeUpstreamDown     = "upstream-unreachable"
	CodeEntrypointFailed = "entrypoint-failed"
	CodeStopping         = "stopping"
	// Of a host's relay: a missing or wrong access token, and a token for an
	// incarnation that doesn't run there (any more).
	CodeNoAccess    = "no-access"
	CodeSandboxGone = "sandbox-gone"
	CodeInternal    = "internal"
)

// Problem is an RFC 9457 problem, the body of every error of sandboxd's API.
// It is an error, so that a [Client]'s caller can ask for it by errors.As.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Code   string `json:"code"`
}

// NewProblem makes a problem of one of the codes above.
func NewProblem(status int, code, detail string) *Problem {
	return &Problem{
		Type:   "urn:holdfast:problem:" + code,
		Title:  http.StatusText(status),
		Status: status,
		Detail: detail,
		Code:   code,
	}
}

// Error implements error.
func (p *Problem) Error() string {
	if p.Detail == "" {
		return fmt.Sprintf("sandbox: %s (%d)", p.Code, p.Status)
	}
	return fmt.Sprintf("sandbox: %s (%d): %s", p.Code, p.Status, p.Detail)
}

// Write answers a request with the problem.
func (p *Problem) Write(w http.ResponseWriter) {
	body, err := json.Marshal(p)
	if err != nil { // strings and an int always encode
		panic(err)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	// The client may be gone; there is nobody left to tell.
	_, _ = w.Write(body)
}
