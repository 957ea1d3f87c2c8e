package hostapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// Handler answers one verb's body.
type Handler func(ctx context.Context, body json.RawMessage) (any, error)

// Handle makes a Handler of a function of the body.
func Handle[B, R any](do func(context.Context, B) (R, error)) Handler {
	return func(ctx context.Context, raw json.RawMessage) (any, error) {
		var body B
		if err := json.Unmarshal(raw, &body); err != nil {
			return nil, fmt.Errorf("%w: body: %w", driver.ErrInvalid, err)
		}
		return do(ctx, body)
	}
}

// Answerer answers requests, each in a goroutine of its own.
type Answerer struct {
	handlers map[Verb]Handler
	log      *slog.Logger
	nc       *nats.Conn
	sub      *nats.Subscription
	ctx      context.Context
	cancel   context.CancelFunc
	running  sync.WaitGroup
	once     sync.Once
	ended    error
}

// inboxes is how subjects of replies begin; who may answer wherever a request says
// must not be talked into writing elsewhere (see package command).
const inboxes = "_INBOX"

// flushTimeout bounds how long the end waits for the server.
const flushTimeout = 2 * time.Second

// longest bounds what a request may ask for; NATS takes an answer for three minutes.
const longest = 2 * time.Minute

// Answer subscribes as one of a queue group. Once it returns, what is sent arrives.
func Answer(nc *nats.Conn, subject, queue string, handlers map[Verb]Handler, logger *slog.Logger) (*Answerer, error) {
	ctx, cancel := context.WithCancel(context.Background())
	a := &Answerer{handlers: handlers, log: logger, nc: nc, ctx: ctx, cancel: cancel}
	var err error
	if a.sub, err = nc.QueueSubscribe(subject, queue, a.take); err == nil {
		err = nc.Flush()
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("answer %s: %w", subject, err)
	}
	return a, nil
}

// Stop takes nothing more, cancels what is under way and waits for it. It can be
// called again.
func (a *Answerer) Stop() error {
	a.once.Do(func() {
		a.ended = a.sub.Unsubscribe()
		if errors.Is(a.ended, nats.ErrConnectionClosed) {
			a.ended = nil
		}
		// Once the server knows, who asks is told at once that nobody answers. A server
		// that is away finds out by itself.
		if a.nc.IsConnected() {
			_ = a.nc.FlushTimeout(flushTimeout)
		}
		// What the subscription's goroutine has in hand is counted once this passed.
		passed := make(chan struct{})
		if a.nc.Barrier(func() { close(passed) }) == nil {
			<-passed
		}
		a.cancel()
	})
	a.running.Wait()
	return a.ended
}

func (a *Answerer) take(m *nats.Msg) {
	if !strings.HasPrefix(m.Reply, inboxes) {
		a.log.Error("request refused: its reply would go elsewhere than to an inbox", "subject", m.Subject, "reply", m.Reply)
		return
	}
	a.running.Go(func() {
		raw, err := json.Marshal(a.reply(m))
		if err == nil && int64(len(raw)) > a.nc.MaxPayload() {
			err = nats.ErrMaxPayload
		}
		if err != nil {
			a.log.Error("answer can't be encoded", "subject", m.Subject, "err", err)
			raw = []byte(`{"failure":{"detail":"the answer can't be carried"}}`)
		}
		if err := m.Respond(raw); err != nil {
			a.log.Warn("answer not sent", "subject", m.Subject, "err", err)
		}
	})
}

// errPanic stands for a fault of ours in one request, which must not cost a host all
// of its sandboxes.
var errPanic = errors.New("internal error")

// run calls the handler and outlives it.
func (a *Answerer) run(ctx context.Context, verb Verb, handle Handler, body json.RawMessage) (result any, err error) {
	defer func() {
		if r := recover(); r != nil {
			a.log.Error("handler panicked", "verb", verb, "panic", r, "stack", string(debug.Stack()))
			result, err = nil, errPanic
		}
	}()
	return handle(ctx, body)
}

func (a *Answerer) reply(m *nats.Msg) Reply {
	var req Request
	if err := json.Unmarshal(m.Data, &req); err != nil {
		return Reply{Failure: FailureOf(fmt.Errorf("%w: request: %w", driver.ErrInvalid, err))}
	}
	verb := Verb(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:])
	handle, ok := a.handlers[verb]
	if !ok {
		return Reply{Failure: FailureOf(fmt.Errorf("%w: unknown verb %q", driver.ErrInvalid, verb))}
	}
	ctx, cancel := context.WithTimeout(a.ctx, min(time.Duration(req.TimeoutMs)*time.Millisecond, longest))
	defer cancel()
	result, err := a.run(ctx, verb, handle, req.Body)
	if err != nil {
		return Reply{Failure: FailureOf(err)}
	}
	raw, err := json.Marshal(result)
	if err != nil {
		return Reply{Failure: FailureOf(err)}
	}
	return Reply{Result: raw}
}
