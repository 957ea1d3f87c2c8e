package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/services/internal/correlate"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

// Client sends commands. Its zero value but for NC is ready to use, by any number
// of goroutines.
type Client struct {
	// NC is the connection to send by.
	NC *nats.Conn
	// Timeout is how long to wait where neither the context nor the request says;
	// 0 means 10 s, and 2 s more for each MiB of the body.
	Timeout time.Duration
}

const (
	defaultTimeout = 10 * time.Second
	// perMegabyte is what a large body may take longer: it is stored, read, decoded and
	// hashed on its way.
	perMegabyte = 2 * time.Second
	// margin is what the client waits longer than the service works, so that the
	// service's own "outcome-unknown" arrives before the client has to guess it.
	margin = 250 * time.Millisecond
)

// Do sends a command and waits for its answer until the request's deadline, or the
// context's. The error is always a *problem.Error; the reply's N and Seq may be set
// beside it. An empty CommandID gets a random one, which is right only for what
// nobody repeats.
func (c *Client) Do(ctx context.Context, service events.Service, tenant, verb string, req Request) (Reply, error) {
	reply, p := c.do(ctx, service, tenant, verb, req)
	if p != nil {
		return reply, p
	}
	return reply, nil
}

func (c *Client) do(ctx context.Context, service events.Service, tenant, verb string, req Request) (Reply, *problem.Error) {
	subject, err := events.CommandSubject(service, tenant, verb)
	if err != nil {
		return Reply{}, problem.From(err)
	}
	if req.CommandID == "" {
		req.CommandID = events.RandomID(events.PrefixCommand)
	}
	ids := correlate.Of(ctx)
	req.RequestID, req.Trace = cmp.Or(req.RequestID, ids.Request), cmp.Or(req.Trace, ids.Trace)
	req.Deadline = c.deadline(ctx, req.Deadline, len(req.Body)).UTC()
	if err := req.Validate(); err != nil {
		return Reply{}, problem.From(err)
	}
	if len(req.Body) > MaxBodyBytes {
		return Reply{}, problem.Newf(api.CodePayloadTooLarge, "The command has %d bytes, at most %d.", len(req.Body), MaxBodyBytes)
	}
	body, err := json.Marshal(req)
	if err != nil {
		return Reply{}, problem.Wrap(api.CodeInvalidRequest, "The command's body is not JSON.", err)
	}
	if !c.NC.IsConnected() {
		// Buffered until a reconnect it would be sent after its sender gave up.
		return Reply{}, notTaken(service, nats.ErrDisconnected)
	}
	if err := ctx.Err(); err != nil {
		return Reply{}, notTaken(service, err)
	}
	ctx, cancel := context.WithDeadline(ctx, req.Deadline.Add(margin))
	defer cancel()
	if len(body) > MaxMessageBytes {
		if body, err = c.parcelled(ctx, service, tenant, req); err != nil {
			return Reply{}, problem.From(err)
		}
	}
	m, err := c.NC.RequestWithContext(ctx, subject, body)
	if err != nil {
		return Reply{}, unanswered(service, err)
	}
	reply, err := decodeReply(m.Data, func(p parcel) (json.RawMessage, error) { return p.receive(ctx, c.NC, service, tenant) })
	if err != nil {
		return reply, problem.Wrap(api.CodeOutcomeUnknown, "The answer can't be read: ask again with the same idempotency key.", err)
	}
	return reply, reply.Problem
}

// parcelled sends the body ahead, and gives the request that names it.
func (c *Client) parcelled(ctx context.Context, service events.Service, tenant string, req Request) ([]byte, error) {
	p, err := send(ctx, c.NC, service, tenant, req.Body)
	if err != nil {
		return nil, err
	}
	req.Body, req.Large = nil, &p
	body, err := json.Marshal(req)
	if err == nil && len(body) > MaxMessageBytes {
		err = problem.Newf(api.CodePayloadTooLarge, "The command has %d bytes besides its body.", len(body))
	}
	return body, err
}

// deadline is the earliest of what the request and the context say, the latter
// less the margin, or the client's own timeout.
func (c *Client) deadline(ctx context.Context, asked time.Time, size int) time.Time {
	timeout := c.Timeout
	if timeout <= 0 {
		timeout = defaultTimeout + perMegabyte*time.Duration(size>>20)
	}
	d, now := asked, time.Now()
	if at, ok := ctx.Deadline(); ok {
		// A context with little time left still leaves the service most of it.
		if at = at.Add(-min(margin, at.Sub(now)/10)); d.IsZero() || at.Before(d) {
			d = at
		}
	}
	if d.IsZero() {
		d = now.Add(timeout)
	}
	return d
}

// unanswered tells what was never taken from what may have been.
func unanswered(service events.Service, err error) *problem.Error {
	switch {
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, nats.ErrConnectionClosed),
		errors.Is(err, nats.ErrConnectionDraining), errors.Is(err, nats.ErrReconnectBufExceeded):
		return notTaken(service, err)
	case errors.Is(err, nats.ErrMaxPayload):
		return problem.Wrap(api.CodePayloadTooLarge, "The command is over the limit of one message.", err)
	default:
		return problem.Wrap(api.CodeOutcomeUnknown,
			fmt.Sprintf("The %s service did not answer in time: ask again with the same idempotency key.", service), err)
	}
}

func notTaken(service events.Service, err error) *problem.Error {
	p := problem.Wrap(api.CodeNotReady, fmt.Sprintf("The %s service can't be reached; nothing changed.", service), err)
	p.RetryAfter = whenFull
	return p
}

// pointer makes a JSON pointer of encoding/json's dotted path.
func pointer(path string) string {
	if path == "" {
		return ""
	}
	return "/" + strings.ReplaceAll(path, ".", "/")
}
