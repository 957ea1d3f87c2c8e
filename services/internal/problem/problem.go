// Package problem is how every service says what went wrong: RFC 9457 problems
// as typed errors.
//
// A decider or a handler returns an [*Error] with one of the API's codes; it
// travels in the reply of a command unchanged and becomes HTTP in one place, by
// package api ([Error.API]). Which status and title a code has stands in that
// package's table: nobody repeats it.
//
// [From] turns any other error into a problem. Two rules decide how: nothing is
// called a refusal that may have taken effect (that is outcome-unknown), and
// nothing that isn't meant for the client gets into a detail (that is internal,
// and the cause is for the log).
package problem

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/api"
)

// typePrefix and a code make a problem's type: wire.md.
const typePrefix = "urn:holdfast:problem:"

// Field says what is wrong with one place of a request. Pointer is a JSON pointer
// into the body, or query/<name>, header/<name>, path/<name>.
type Field = api.FieldError

// Error is a problem. Its JSON is that of wire.md and of the API's Problem
// schema: type, title and status are written from the code.
type Error struct {
	// Code is stable and for machines.
	Code api.Code
	// Detail is for people: what happened here, and the way out where there is one.
	Detail string
	// Phase and Allowed say, after an illegal move, where the session (or call) is
	// and which moves are legal.
	Phase   string
	Allowed []string
	// Winner is the decision that counts, in the shape of the API's Decision, when
	// another answer came first.
	Winner json.RawMessage
	// Errors are the places that are wrong, where the request itself is.
	Errors []Field
	// RetryAfter is when to ask again, 0 for no advice. It isn't part of the JSON:
	// HTTP has a header for it and a command's reply a field.
	RetryAfter time.Duration

	// cause is what [From] was given; only errors.Is, errors.As and logs see it.
	cause error
	// status and title are another build's, kept where the code isn't in this
	// build's table: a newer service may answer an older gateway.
	status int
	title  string
}

// New makes a problem with a detail, which may be empty.
func New(code api.Code, detail string) *Error { return &Error{Code: code, Detail: detail} }

// Newf is New with a formatted detail.
func Newf(code api.Code, format string, args ...any) *Error {
	return &Error{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// Wrap is New with a cause that errors.Is and errors.As find and that the client
// never sees.
func Wrap(code api.Code, detail string, cause error) *Error {
	return &Error{Code: code, Detail: detail, cause: cause}
}

// Error gives code and detail; the cause too, since this is what logs show.
func (e *Error) Error() string {
	text := string(e.Code)
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	return text
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.cause }

// Is says whether target is a problem of the same code, so that
// errors.Is(err, problem.New(code, "")) asks for a code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// Type is the problem's RFC 9457 type.
func (e *Error) Type() string { return typePrefix + string(e.Code) }

// Status is the HTTP status of the code; 500 for one that nobody knows.
func (e *Error) Status() int {
	if e.status != 0 && !e.Code.Known() {
		return e.status
	}
	return e.Code.Status()
}

// Title is the code in words for people.
func (e *Error) Title() string {
	if e.title != "" && !e.Code.Known() {
		return e.title
	}
	return e.Code.Title()
}

// API gives the problem as the API's error, which knows how to be an HTTP answer.
func (e *Error) API() *api.Error {
	out := &api.Error{
		Problem: api.Problem{
			Type: e.Type(), Title: e.Title(), Status: e.Status(), Detail: e.Detail, Code: e.Code,
			Errors: e.Errors, Phase: e.Phase, Allowed: e.Allowed,
		},
		RetryAfter: e.RetryAfter,
		Cause:      e.cause,
	}
	if len(e.Winner) > 0 {
		if err := json.Unmarshal(e.Winner, &out.Problem.Winner); err != nil {
			out.Cause = errors.Join(e.cause, fmt.Errorf("winner: %w", err))
		}
	}
	return out
}

// wire is the JSON form.
type wire struct {
	Type    string          `json:"type"`
	Title   string          `json:"title"`
	Status  int             `json:"status"`
	Detail  string          `json:"detail,omitempty"`
	Code    api.Code        `json:"code"`
	Errors  []Field         `json:"errors,omitempty"`
	Phase   string          `json:"phase,omitempty"`
	Allowed []string        `json:"allowed,omitempty"`
	Winner  json.RawMessage `json:"winner,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (e *Error) MarshalJSON() ([]byte, error) {
	return json.Marshal(wire{
		Type: e.Type(), Title: e.Title(), Status: e.Status(), Detail: e.Detail, Code: e.Code,
		Errors: e.Errors, Phase: e.Phase, Allowed: e.Allowed, Winner: e.Winner,
	})
}

// UnmarshalJSON implements json.Unmarshaler. A code that this build doesn't know
// keeps the status and title it came with.
func (e *Error) UnmarshalJSON(b []byte) error {
	var w wire
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	*e = Error{
		Code: w.Code, Detail: w.Detail, Phase: w.Phase, Allowed: w.Allowed, Winner: w.Winner, Errors: w.Errors,
	}
	if !w.Code.Known() {
		e.title = w.Title
		if w.Status >= 400 && w.Status <= 599 {
			e.status = w.Status
		}
	}
	return nil
}
