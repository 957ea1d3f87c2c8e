// Package command carries clients' commands to the service that decides them:
// NATS request and reply on cmd.<service>.<tenant>.<verb>, by nats.go/micro.
//
// Only clients' commands use it (and a few reads that need the decider's own
// state); services coordinate by events. Several replicas of a service share a
// queue group, so any of them gets a command; compare-and-set on the session's
// subject makes that safe.
//
//	client                                server
//	  Do ── {commandId, actor, deadline, body} ──▶ decode strictly, check, bound
//	                                               goroutine: Handler(ctx until deadline)
//	  ◀──── {n, seq, repeated, result} or {problem} ──
//
// # What an error means
//
// Every failure is a *problem.Error. A refusal is definite. not-ready says that
// the command was not taken: nobody listens, the service is full or stopping.
// outcome-unknown says that it was sent and no answer came, so it may still take
// effect: repeat it under the same command id.
//
// # Large commands
//
// A body or an answer that doesn't fit into a message ([MaxMessageBytes]) is put into
// the stream TRANSIT first, whole, and the message says where. Where it can't be put
// there, nothing was sent (blob-unavailable); where an answer can't be fetched, it is
// as if none had come.
//
// # Deadlines
//
// A request carries the time until which its sender waits. The handler's context
// ends then, a request that arrives later is not begun, and the client stops
// waiting a moment after, so that the service's own answer wins where there is one.
package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

// maxCommandID is events.Envelope's bound on a command id.
const maxCommandID = 200

// Request is a command on its way.
type Request struct {
	// CommandID is done at most once on a subject; repeating a command means
	// sending the same id. Client.Do makes one where it is empty.
	CommandID string `json:"commandId"`
	// Actor is who wants it, as the gateway established.
	Actor events.Actor `json:"actor"`
	// Roles and Groups are the actor's in the tenant, where the decision depends on
	// them (who may answer).
	Roles  []string `json:"roles,omitempty"`
	Groups []string `json:"groups,omitempty"`
	// Session is the session that the command is for; empty where it is for none.
	Session string `json:"session,omitempty"`
	// Deadline is until when the sender waits.
	Deadline time.Time `json:"deadline"`
	// RequestID is the client's request that it comes from, for logs, and Trace a W3C
	// traceparent. Client.Do takes both from the context where they are empty.
	RequestID string `json:"requestId,omitempty"`
	Trace     string `json:"trace,omitempty"`
	// Body is the verb's own arguments.
	Body json.RawMessage `json:"body,omitempty"`
	// Large stands in Body's place while that is too large for a message. Client and
	// Server see to it; nobody else does.
	Large *parcel `json:"large,omitempty"`
}

// Validate checks what every request needs. The error is a problem.
func (r Request) Validate() error {
	var wrong []problem.Field
	add := func(pointer, detail string) {
		wrong = append(wrong, problem.Field{Pointer: pointer, Detail: detail})
	}
	if r.CommandID == "" || len(r.CommandID) > maxCommandID {
		add("/commandId", fmt.Sprintf("has to have 1 to %d characters", maxCommandID))
	}
	if r.Actor.Kind == "" || r.Actor.ID == "" {
		add("/actor", "needs kind and id")
	}
	if r.Session != "" && !events.ValidToken(r.Session) {
		add("/session", "is not a session's id")
	}
	if r.Deadline.IsZero() {
		add("/deadline", "is missing")
	}
	if len(wrong) == 0 {
		return nil
	}
	p := problem.New(api.CodeInvalidRequest, "The command is not well formed.")
	p.Errors = wrong
	return p
}

// Reply is a command's answer.
type Reply struct {
	// N and Seq are the version and the stream sequence of the command's last event,
	// or of the state that was read where nothing was appended.
	N   uint64
	Seq uint64
	// Repeated says that the command had been done before.
	Repeated bool
	// Result is the verb's own answer.
	Result json.RawMessage
	// Problem is set where it was refused. N and Seq may be set beside it: a refused
	// answer is recorded too.
	Problem *problem.Error
}

// Handler decides one verb. An error becomes a problem by problem.From; the reply
// may be given beside it.
type Handler func(ctx context.Context, tenant string, req Request) (Reply, error)

// Decode reads a request's body strictly: unknown fields, a second value and an
// empty body are invalid-request problems.
func Decode[T any](req Request) (T, error) {
	var body T
	if err := decodeStrictly(req.Body, &body); err != nil {
		var zero T
		return zero, invalidBody(err)
	}
	return body, nil
}

// Result encodes a handler's answer into a reply.
func Result(n, seq uint64, repeated bool, result any) (Reply, error) {
	r := Reply{N: n, Seq: seq, Repeated: repeated}
	if result == nil {
		return r, nil
	}
	b, err := json.Marshal(result)
	if err != nil {
		return r, fmt.Errorf("encode result: %w", err)
	}
	r.Result = b
	return r, nil
}

// wireReply is a Reply as sent. The problem's advice to retry isn't part of its
// JSON, so it stands beside it.
type wireReply struct {
	N            uint64          `json:"n,omitempty"`
	Seq          uint64          `json:"seq,omitempty"`
	Repeated     bool            `json:"repeated,omitempty"`
	Result       json.RawMessage `json:"result,omitempty"`
	Problem      *problem.Error  `json:"problem,omitempty"`
	RetryAfterMs int64           `json:"retryAfterMs,omitempty"`
	// Large is where all of this reply is, if it is too large for a message; N, Seq and
	// Repeated stand here too.
	Large *parcel `json:"large,omitempty"`
}

func encodeReply(r Reply) ([]byte, error) {
	w := wireReply{N: r.N, Seq: r.Seq, Repeated: r.Repeated, Result: r.Result, Problem: r.Problem}
	if r.Problem != nil {
		w.RetryAfterMs = r.Problem.RetryAfter.Milliseconds()
	}
	return json.Marshal(w)
}

// decodeReply isn't strict: a newer service may say more. open gets what a parcel
// holds.
func decodeReply(b []byte, open func(parcel) (json.RawMessage, error)) (Reply, error) {
	var w wireReply
	if err := json.Unmarshal(b, &w); err != nil {
		return Reply{}, err
	}
	if w.Large != nil {
		whole, err := open(*w.Large)
		if err == nil {
			w = wireReply{}
			err = json.Unmarshal(whole, &w)
		}
		if err != nil {
			return Reply{N: w.N, Seq: w.Seq, Repeated: w.Repeated}, err
		}
	}
	r := Reply{N: w.N, Seq: w.Seq, Repeated: w.Repeated, Result: w.Result, Problem: w.Problem}
	if r.Problem != nil {
		r.Problem.RetryAfter = time.Duration(w.RetryAfterMs) * time.Millisecond
	}
	return r, nil
}

// errTrailing says that something follows the one value that was expected.
var errTrailing = errors.New("something follows the JSON value")

func decodeStrictly(b []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errTrailing
	}
	return nil
}

// invalidBody says where decoding failed, as exactly as encoding/json knows.
func invalidBody(err error) *problem.Error {
	p := problem.Wrap(api.CodeInvalidRequest, "The command's body can't be read.", err)
	var wrongType *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrongType):
		p.Errors = []problem.Field{{
			Pointer: pointer(wrongType.Field),
			Detail:  fmt.Sprintf("%s where %s belongs", wrongType.Value, wrongType.Type.Kind()),
		}}
	case errors.Is(err, io.EOF):
		p.Errors = []problem.Field{{Detail: "is missing"}}
	default:
		p.Errors = []problem.Field{{Detail: err.Error()}}
	}
	return p
}
