// Package hostapi is what the workload service and a host say to each other over
// NATS. A host is the process that runs sandboxes: its driver, called from there.
//
//	workload ── host.<host>.do.<verb>  {timeoutMs, body} ──▶ host: one method of its driver
//	         ◀── {result} or {failure} ──
//	host     ── host.<host>.ask.<verb> {timeoutMs, body} ──▶ any replica of workload: redeem, renew
//	         ◀── {result} or {failure} ──
//	host     ── host.<host>.tell.ended  driver.Event ──▶ one replica of workload; a hint
//
// Every verb can be repeated, so a request whose answer is lost is sent again; that
// is also how the end of a host is noticed in the middle of one. Failures keep what
// package driver's callers tell apart: the errors of the driver and of sandboxd are
// the same for errors.Is and errors.As on both ends.
//
// Times are spans, not clocks: the two machines' clocks may differ.
package hostapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// The manners of the subjects.
const (
	mannerDo   = "do"
	mannerAsk  = "ask"
	mannerTell = "tell"
)

// Verb is one of what is said.
type Verb string

// What a host is told to do: driver.Driver's methods, and Hello, which only has it
// answer.
const (
	VerbHello   Verb = "hello"
	VerbClaim   Verb = "claim"
	VerbResume  Verb = "resume"
	VerbSuspend Verb = "suspend"
	VerbRelease Verb = "release"
	VerbLocate  Verb = "locate"
	VerbBind    Verb = "bind"
	VerbReady   Verb = "ready"
	VerbList    Verb = "list"
	VerbPool    Verb = "pool"
)

// What a host asks: a bind to be redeemed, or a token of it to be renewed.
const (
	VerbRedeem Verb = "redeem"
	VerbRenew  Verb = "renew"
)

// DoSubject is where a host takes a verb; AllDo where it takes all.
func DoSubject(host string, v Verb) (string, error) {
	return events.HostSubject(host, mannerDo, string(v))
}

// AllDo is where a host takes every verb.
func AllDo(host string) (string, error) { return events.HostSubject(host, mannerDo, "*") }

// AskSubject is where a host asks.
func AskSubject(host string, v Verb) (string, error) {
	return events.HostSubject(host, mannerAsk, string(v))
}

// TellSubject is where a host publishes its driver's events.
func TellSubject(host string) (string, error) { return events.HostSubject(host, mannerTell, "ended") }

// PageSize bounds the sandboxes of one answer to VerbList: a message takes 1 MiB.
const PageSize = 1000

// The bodies of the verbs; those of Claim and Resume are driver.Claim, of Locate
// and Ready driver.Ref.
type (
	// Effect is the body of Suspend and Release.
	Effect struct {
		driver.Ref
		Intent uint64 `json:"intent"`
		// KeepWorkspace is Release's.
		KeepWorkspace bool `json:"keepWorkspace,omitempty"`
	}
	// Bind is the body of Bind.
	Bind struct {
		driver.Ref
		Bind string `json:"bind"`
	}
	// List asks for what comes after a sandbox, from the first for the zero Ref.
	List struct {
		After driver.Ref `json:"after"`
	}
	// Page answers it: PageSize sandboxes at most. More says that others follow.
	Page struct {
		Found []driver.Found `json:"found"`
		More  bool           `json:"more,omitempty"`
	}
	// Pool is the body of Pool.
	Pool struct {
		Runtime driver.RuntimeSpec `json:"runtime"`
		Size    int                `json:"size"`
	}
	// Redemption is the body of Redeem and Renew; the answer is sandboxapi.Grant.
	Redemption struct {
		PodUID string `json:"podUid"`
		Bind   string `json:"bind"`
	}
	// None is the body or the answer of what has none.
	None struct{}
)

// Request is what is sent.
type Request struct {
	// TimeoutMs is how long the sender waits, from when it arrives.
	TimeoutMs int64           `json:"timeoutMs"`
	Body      json.RawMessage `json:"body,omitempty"`
}

// Reply is what comes back.
type Reply struct {
	Result  json.RawMessage `json:"result,omitempty"`
	Failure *Failure        `json:"failure,omitempty"`
}

const (
	// patience is how long one answer is waited for before the request is sent again.
	patience = 5 * time.Second
	// limit bounds a call without a deadline of its own; a cold start takes 20 s at most.
	limit = 60 * time.Second
)

// Call sends a request and decodes its answer. It gives up with driver.ErrUnreachable
// where nobody answers, and with ctx's error when ctx ends.
func Call[T any](ctx context.Context, nc *nats.Conn, subject string, body any) (T, error) {
	var zero T
	raw, err := json.Marshal(body)
	if err != nil {
		return zero, fmt.Errorf("encode %s: %w", subject, err)
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		m, err := attempt(bounded, nc, subject, raw)
		switch {
		case err == nil:
			return decode[T](subject, m.Data)
		case ctx.Err() != nil:
			return zero, ctx.Err()
		case bounded.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
			return zero, fmt.Errorf("%w: %s: %w", driver.ErrUnreachable, subject, err)
		}
	}
}

// attempt sends a request once. What would wait for a reconnect isn't sent: it would
// arrive after its sender gave up.
func attempt(ctx context.Context, nc *nats.Conn, subject string, body json.RawMessage) (*nats.Msg, error) {
	if !nc.IsConnected() {
		return nil, nats.ErrDisconnected
	}
	deadline, _ := ctx.Deadline()
	raw, err := json.Marshal(Request{TimeoutMs: max(1, time.Until(deadline).Milliseconds()), Body: body})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return nc.RequestWithContext(ctx, subject, raw)
}

func decode[T any](subject string, raw []byte) (T, error) {
	var (
		reply  Reply
		result T
	)
	if err := json.Unmarshal(raw, &reply); err != nil {
		return result, fmt.Errorf("answer of %s: %w", subject, err)
	}
	if reply.Failure != nil {
		return result, reply.Failure.Err()
	}
	if len(reply.Result) == 0 {
		return result, nil
	}
	if err := json.Unmarshal(reply.Result, &result); err != nil {
		return result, fmt.Errorf("answer of %s: %w", subject, err)
	}
	return result, nil
}
