package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Code says, for machines and for good, what went wrong. openapi.yaml has the
// meaning of each (ProblemCode, x-problems).
type Code string

// The codes. They are added to, never changed: clients switch on them.
const (
	CodeInvalidRequest       Code = "invalid-request"
	CodeInvalidCursor        Code = "invalid-cursor"
	CodeUnauthenticated      Code = "unauthenticated"
	CodeForbidden            Code = "forbidden"
	CodeOriginRefused        Code = "origin-refused"
	CodeNotAnApprover        Code = "not-an-approver"
	CodeRequesterExcluded    Code = "requester-excluded"
	CodeBindRefused          Code = "bind-refused"
	CodeNotFound             Code = "not-found"
	CodeRuntimeNotFound      Code = "runtime-not-found"
	CodePolicyNotFound       Code = "policy-not-found"
	CodeMethodNotAllowed     Code = "method-not-allowed"
	CodeIllegalTransition    Code = "illegal-transition"
	CodeSessionEnded         Code = "session-ended"
	CodeSessionInUse         Code = "session-in-use"
	CodeRunBusy              Code = "run-busy"
	CodeAlreadyDecided       Code = "already-decided"
	CodeAlreadyStarted       Code = "already-started"
	CodeApprovalExpired      Code = "approval-expired"
	CodeArgsChanged          Code = "args-changed"
	CodePayloadTooLarge      Code = "payload-too-large"
	CodeContentTooLarge      Code = "content-too-large"
	CodeUnsupportedMediaType Code = "unsupported-media-type"
	CodeIdempotencyConflict  Code = "idempotency-conflict"
	CodePolicyInvalid        Code = "policy-invalid"
	CodeRuntimeInvalid       Code = "runtime-invalid"
	CodeQuotaExceeded        Code = "quota-exceeded"
	CodeInternal             Code = "internal"
	CodeSandboxUnreachable   Code = "sandbox-unreachable"
	CodeNotReady             Code = "not-ready"
	CodeOutcomeUnknown       Code = "outcome-unknown"
	CodeProjectionBehind     Code = "projection-behind"
	CodeHistoryUnavailable   Code = "history-unavailable"
	CodeStorageLow           Code = "storage-low"
	CodeUnknownEventType     Code = "unknown-event-type"
	CodeLogFaulted           Code = "log-faulted"
	CodeBlobUnavailable      Code = "blob-unavailable"
)

// meaning is what HTTP and people are told of a code.
type meaning struct {
	status int
	title  string
}

// meanings is the one table from code to HTTP; a test holds it to x-problems
// in openapi.yaml.
var meanings = map[Code]meaning{
	CodeInvalidRequest:       {http.StatusBadRequest, "Invalid request"},
	CodeInvalidCursor:        {http.StatusBadRequest, "Invalid cursor"},
	CodeUnauthenticated:      {http.StatusUnauthorized, "Unauthenticated"},
	CodeForbidden:            {http.StatusForbidden, "Forbidden"},
	CodeOriginRefused:        {http.StatusForbidden, "Origin refused"},
	CodeNotAnApprover:        {http.StatusForbidden, "Not an approver"},
	CodeRequesterExcluded:    {http.StatusForbidden, "Requester excluded"},
	CodeBindRefused:          {http.StatusForbidden, "Bind refused"},
	CodeNotFound:             {http.StatusNotFound, "Not found"},
	CodeRuntimeNotFound:      {http.StatusNotFound, "Runtime not found"},
	CodePolicyNotFound:       {http.StatusNotFound, "Policy not found"},
	CodeMethodNotAllowed:     {http.StatusMethodNotAllowed, "Method not allowed"},
	CodeIllegalTransition:    {http.StatusConflict, "Illegal transition"},
	CodeSessionEnded:         {http.StatusConflict, "Session ended"},
	CodeSessionInUse:         {http.StatusConflict, "Session in use"},
	CodeRunBusy:              {http.StatusConflict, "Run busy"},
	CodeAlreadyDecided:       {http.StatusConflict, "Already decided"},
	CodeAlreadyStarted:       {http.StatusConflict, "Already started"},
	CodeApprovalExpired:      {http.StatusGone, "Approval expired"},
	CodeArgsChanged:          {http.StatusPreconditionFailed, "Arguments changed"},
	CodePayloadTooLarge:      {http.StatusRequestEntityTooLarge, "Payload too large"},
	CodeContentTooLarge:      {http.StatusRequestEntityTooLarge, "Content too large"},
	CodeUnsupportedMediaType: {http.StatusUnsupportedMediaType, "Unsupported media type"},
	CodeIdempotencyConflict:  {http.StatusUnprocessableEntity, "Idempotency conflict"},
	CodePolicyInvalid:        {http.StatusUnprocessableEntity, "Policy invalid"},
	CodeRuntimeInvalid:       {http.StatusUnprocessableEntity, "Runtime invalid"},
	CodeQuotaExceeded:        {http.StatusTooManyRequests, "Quota exceeded"},
	CodeInternal:             {http.StatusInternalServerError, "Internal error"},
	CodeSandboxUnreachable:   {http.StatusBadGateway, "Sandbox unreachable"},
	CodeNotReady:             {http.StatusServiceUnavailable, "Not ready"},
	CodeOutcomeUnknown:       {http.StatusServiceUnavailable, "Outcome unknown"},
	CodeProjectionBehind:     {http.StatusServiceUnavailable, "Projection behind"},
	CodeHistoryUnavailable:   {http.StatusServiceUnavailable, "History unavailable"},
	CodeStorageLow:           {http.StatusServiceUnavailable, "Storage low"},
	CodeUnknownEventType:     {http.StatusServiceUnavailable, "Unknown event type"},
	CodeLogFaulted:           {http.StatusServiceUnavailable, "Log faulted"},
	CodeBlobUnavailable:      {http.StatusServiceUnavailable, "Blob unavailable"},
}

// ProblemContentType is the media type of every error body (RFC 9457).
const ProblemContentType = "application/problem+json"

// problemURN prefixes a code in a problem's type.
const problemURN = "urn:holdfast:problem:"

// Codes are all codes of this version, sorted.
func Codes() []Code { return slices.Sorted(maps.Keys(meanings)) }

// Known says whether c is one of this version's codes.
func (c Code) Known() bool { _, ok := meanings[c]; return ok }

// Status is c's HTTP status; 500 for a code that this version doesn't know.
func (c Code) Status() int {
	if m, ok := meanings[c]; ok {
		return m.status
	}
	return http.StatusInternalServerError
}

// Title is c's short name for people, the same for every occurrence.
func (c Code) Title() string {
	if m, ok := meanings[c]; ok {
		return m.title
	}
	return meanings[CodeInternal].title
}

// NewProblem is the problem of a code with type, title and status filled in.
// detail is for people and may be empty; it must hold nothing secret.
func NewProblem(code Code, detail string) Problem {
	return Problem{Type: problemURN + string(code), Title: code.Title(), Status: code.Status(), Code: code, Detail: detail}
}

// Error is a [Problem] as a Go error: what the server's side returns, what the
// client's side gets back. Two are the same to errors.Is when their codes are:
//
//	errors.Is(err, api.Err(api.CodeNotFound))
type Error struct {
	// Problem is the body.
	Problem Problem
	// RetryAfter is when to try again, in whole seconds; 0 is not said.
	RetryAfter time.Duration
	// Cause is what led here, on the server's side. It is for logs and never sent.
	Cause error
}

// Err is the error of a code, without detail.
func Err(code Code) *Error { return &Error{Problem: NewProblem(code, "")} }

// Errf is the error of a code with a detail for people. A %w operand becomes
// the Cause as well, so its text must be fit to be shown.
func Errf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Problem: NewProblem(code, err.Error()), Cause: errors.Unwrap(err)}
}

// Error is "title: detail", with the places that are wrong.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Problem.Title)
	if e.Problem.Detail != "" {
		b.WriteString(": " + e.Problem.Detail)
	}
	for _, f := range e.Problem.Errors {
		b.WriteString("; " + f.Pointer + ": " + f.Detail)
	}
	return b.String()
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Is says whether target is an *Error of the same code.
func (e *Error) Is(target error) bool {
	other, ok := target.(*Error)
	return ok && other.Problem.Code == e.Problem.Code
}

// CodeOf is the code that err carries, or "" if it carries none.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Problem.Code
	}
	return ""
}

// Write sends the problem as the answer. The error is that of the connection:
// the client is gone and there is nobody left to tell.
func (e *Error) Write(w http.ResponseWriter) error {
	body, err := json.Marshal(e.Problem)
	if err != nil {
		return fmt.Errorf("encode problem %s: %w", e.Problem.Code, err)
	}
	h := w.Header()
	h.Set("Content-Type", ProblemContentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if e.RetryAfter > 0 {
		// Rounded up: a client that comes back too early is refused again.
		h.Set("Retry-After", strconv.FormatInt(int64((e.RetryAfter+time.Second-1)/time.Second), 10))
	}
	w.WriteHeader(e.Problem.Status)
	_, err = w.Write(append(body, '\n'))
	return err
}
