package command

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
	"github.com/nats-io/nats.go/micro"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/blob"
	"github.com/holdfast-io/holdfast/services/internal/correlate"
	"github.com/holdfast-io/holdfast/services/internal/failpoint"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

const (
	// maxInFlight is how many commands a server works on at a time; more are
	// refused with not-ready, which is better than a queue that outlives deadlines.
	maxInFlight = 512
	// maxLarge is how many large requests are in memory at a time; more wait, as long
	// as their deadlines let them.
	maxLarge = 16
	// replyTime is how long a large reply may take into TRANSIT.
	replyTime = 5 * time.Second
	// maxTime bounds what a request's own deadline may ask for.
	maxTime = 2 * time.Minute
	// whenFull is the advice that goes with a refusal of a full or stopping server.
	whenFull = time.Second
	// protocol is the version that micro reports; it has to be there.
	protocol = "1.0.0"
	// inboxes is how the subjects of replies begin. A service may answer whatever
	// subject a request names, so it must not be talked into writing elsewhere.
	inboxes = "_INBOX"
)

// Server answers the commands of one service.
type Server struct {
	service  events.Service
	log      *slog.Logger
	nc       *nats.Conn
	micro    micro.Service
	slots    chan struct{}
	large    chan struct{}
	ctx      context.Context
	cancel   context.CancelFunc
	inFlight sync.WaitGroup

	mu       sync.Mutex
	stopping bool // Stop was called
	closed   bool // nothing more is begun
	stopped  chan struct{}
}

// Serve subscribes the handlers, by verb, and returns at once. A verb is one token
// of a subject. nc is not closed by Stop.
func Serve(nc *nats.Conn, service events.Service, handlers map[string]Handler, logger *slog.Logger) (*Server, error) {
	return serve(nc, service, handlers, logger, maxInFlight)
}

func serve(nc *nats.Conn, service events.Service, handlers map[string]Handler, logger *slog.Logger, limit int) (*Server, error) {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{
		service: service, log: logger.With("service", service), nc: nc,
		slots: make(chan struct{}, limit), large: make(chan struct{}, maxLarge), ctx: ctx, cancel: cancel, stopped: make(chan struct{}),
	}
	svc, err := micro.AddService(nc, micro.Config{
		Name: "holdfast-" + string(service), Version: protocol, QueueGroup: string(service),
		Description: "commands of Holdfast's " + string(service) + " service",
		ErrorHandler: func(_ micro.Service, err *micro.NATSError) {
			s.log.Error("command subscription failed", "subject", err.Subject, "error", err)
		},
	})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("serve commands of %s: %w", service, err)
	}
	s.micro = svc
	for verb, h := range handlers {
		if !events.ValidToken(verb) {
			err = &events.BadTokenError{What: "verb", Value: verb}
		} else {
			err = svc.AddEndpoint(verb, s.endpoint(verb, h), micro.WithEndpointSubject("cmd."+string(service)+".*."+verb))
		}
		if err != nil {
			cancel()
			return nil, errors.Join(fmt.Errorf("serve %s %s: %w", service, verb, err), svc.Stop())
		}
	}
	// Once this returns, a command sent by anyone arrives.
	if err := nc.Flush(); err != nil {
		cancel()
		return nil, errors.Join(fmt.Errorf("serve commands of %s: %w", service, err), svc.Stop())
	}
	return s, nil
}

// Stop takes no more commands, lets those that were taken finish until ctx ends,
// then cancels them, and returns when all have been answered. It can be called
// again; each call waits.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	first := !s.stopping
	s.stopping = true
	s.mu.Unlock()
	var err error
	if first {
		if err = s.drain(ctx); err != nil {
			err = fmt.Errorf("stop commands of %s: %w", s.service, err)
		}
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		go func() {
			s.inFlight.Wait()
			s.cancel()
			close(s.stopped)
		}()
	}
	select {
	case <-s.stopped:
	case <-ctx.Done():
		s.cancel()
		<-s.stopped
	}
	return err
}

// drain ends the subscriptions and returns when what had been delivered to them
// has been handed to a handler: it was taken, so it is answered.
func (s *Server) drain(ctx context.Context) error {
	if err := s.micro.Stop(); err != nil {
		return err
	}
	if s.nc.IsClosed() {
		return nil
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, maxTime)
		defer cancel()
	}
	if err := s.nc.FlushWithContext(ctx); err != nil {
		return err
	}
	passed := make(chan struct{})
	if err := s.nc.Barrier(func() { close(passed) }); err != nil {
		return err
	}
	select {
	case <-passed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// endpoint hands each request of a verb to a goroutine of its own: the
// subscription's goroutine must not wait for a session.
func (s *Server) endpoint(verb string, h Handler) micro.HandlerFunc {
	return func(m micro.Request) {
		if !strings.HasPrefix(m.Reply(), inboxes) {
			s.log.Error("command refused: its reply would go elsewhere than to an inbox",
				"subject", m.Subject(), "reply", m.Reply())
			return
		}
		if !s.begin() {
			s.respond(m, verb, Reply{Problem: busy("The service is stopping; nothing changed.")})
			return
		}
		select {
		case s.slots <- struct{}{}:
		default:
			s.inFlight.Done()
			s.respond(m, verb, Reply{Problem: busy("The service has too much to do; nothing changed.")})
			return
		}
		go func() {
			defer s.inFlight.Done()
			defer func() { <-s.slots }()
			reply := s.handle(m, verb, h)
			failpoint.Hit("command." + string(s.service) + "." + verb + ".before-reply")
			s.respond(m, verb, reply)
		}()
	}
}

// begin counts a request in, unless the server has stopped taking them.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.inFlight.Add(1)
	return true
}

func busy(detail string) *problem.Error {
	p := problem.New(api.CodeNotReady, detail)
	p.RetryAfter = whenFull
	return p
}

// handle decodes, checks and runs one request.
func (s *Server) handle(m micro.Request, verb string, h Handler) Reply {
	tenant, req, err := decodeRequest(m)
	if err != nil {
		return Reply{Problem: problem.From(err)}
	}
	now := time.Now()
	if !now.Before(req.Deadline) {
		return Reply{Problem: problem.New(api.CodeNotReady, "The deadline had passed when the command arrived; nothing changed.")}
	}
	deadline := req.Deadline
	if last := now.Add(maxTime); deadline.After(last) {
		deadline = last
	}
	ctx, cancel := context.WithDeadline(correlate.With(s.ctx, correlate.IDs{Request: req.RequestID, Trace: req.Trace}), deadline)
	defer cancel()
	reply, err := s.receive(ctx, verb, h, tenant, req)
	if err != nil {
		reply.Problem = problem.From(err)
		s.report(ctx, reply.Problem, verb, tenant, req)
		return reply
	}
	s.log.DebugContext(ctx, "command done", "verb", verb, "tenant", tenant, "session", req.Session,
		"command", req.CommandID, "actor", req.Actor.String(), "n", reply.N, "repeated", reply.Repeated, "took", time.Since(now))
	return reply
}

// receive gets a large request's body and runs the handler.
func (s *Server) receive(ctx context.Context, verb string, h Handler, tenant string, req Request) (Reply, error) {
	if req.Large == nil {
		return s.run(ctx, verb, h, tenant, req)
	}
	select {
	case s.large <- struct{}{}:
		defer func() { <-s.large }()
	case <-ctx.Done():
		return Reply{}, busy("The service has too many large commands; nothing changed.")
	}
	body, err := req.Large.receive(ctx, s.nc, s.service, tenant)
	if lost, gone := errors.AsType[*events.LostError](err); gone {
		return Reply{}, problem.Wrap(api.CodeBlobUnavailable, "The command's contents did not arrive; nothing changed. Send it again.", lost)
	}
	if err != nil {
		return Reply{}, err
	}
	req.Body, req.Large = body, nil
	return s.run(ctx, verb, h, tenant, req)
}

// run calls the handler; a panic is a fault of ours in one command and must not
// take the others down with it.
func (s *Server) run(ctx context.Context, verb string, h Handler, tenant string, req Request) (reply Reply, err error) {
	defer func() {
		if r := recover(); r != nil {
			s.log.ErrorContext(ctx, "command handler panicked", "verb", verb, "tenant", tenant, "session", req.Session,
				"command", req.CommandID, "panic", r, "stack", string(debug.Stack()))
			reply, err = Reply{}, problem.New(api.CodeInternal, "")
		}
	}()
	return h(ctx, tenant, req)
}

func decodeRequest(m micro.Request) (tenant string, req Request, err error) {
	if n := len(m.Data()); n > MaxMessageBytes {
		return "", req, problem.Newf(api.CodePayloadTooLarge, "The command has %d bytes, at most %d in one message.", n, MaxMessageBytes)
	}
	// The subscription is for cmd.<service>.*.<verb>, so there is a third token.
	tenant = strings.Split(m.Subject(), ".")[2]
	if !events.ValidToken(tenant) {
		return "", req, &events.BadTokenError{What: "tenant", Value: tenant}
	}
	if err := decodeStrictly(m.Data(), &req); err != nil {
		return "", Request{}, invalidBody(err)
	}
	return tenant, req, req.Validate()
}

// report logs what somebody should look at; refusals are the client's business.
func (s *Server) report(ctx context.Context, p *problem.Error, verb, tenant string, req Request) {
	level := slog.LevelDebug
	switch p.Code {
	case api.CodeInternal, api.CodeUnknownEventType, api.CodeLogFaulted:
		level = slog.LevelError
	case api.CodeNotReady, api.CodeOutcomeUnknown:
		level = slog.LevelWarn
	default:
	}
	s.log.Log(ctx, level, "command not done", "verb", verb, "tenant", tenant, "session", req.Session,
		"command", req.CommandID, "actor", req.Actor.String(), "code", p.Code, "error", p)
}

// respond sends the reply. One that can't be sent leaves the client with
// outcome-unknown, which is the truth.
func (s *Server) respond(m micro.Request, verb string, reply Reply) {
	b, err := encodeReply(reply)
	if err == nil && len(b) > MaxMessageBytes {
		b, err = s.parcelled(m, reply, b)
	}
	if err != nil {
		// It did take effect where N is set; only the answer can't be carried.
		s.log.Error("command reply can't be carried", "verb", verb, "error", err)
		p := problem.New(api.CodeInternal, "It was done, but its result can't be carried.")
		if _, later := errors.AsType[*blob.UnavailableError](err); later {
			p = problem.New(api.CodeBlobUnavailable, "It was done, but its result can't be carried now: ask again with the same idempotency key.")
		}
		if b, err = encodeReply(Reply{N: reply.N, Seq: reply.Seq, Problem: p}); err != nil {
			return
		}
	}
	if err := m.Respond(b); err != nil {
		s.log.Warn("command reply not sent", "verb", verb, "error", err)
	}
}

// parcelled sends a large reply ahead, and gives the one that names it.
func (s *Server) parcelled(m micro.Request, reply Reply, whole []byte) ([]byte, error) {
	if len(whole) > MaxBodyBytes {
		return nil, fmt.Errorf("%w: reply of %d bytes, at most %d", events.ErrTooLarge, len(whole), MaxBodyBytes)
	}
	ctx, cancel := context.WithTimeout(s.ctx, replyTime)
	defer cancel()
	p, err := send(ctx, s.nc, s.service, strings.Split(m.Subject(), ".")[2], whole)
	if err != nil {
		return nil, err
	}
	return json.Marshal(wireReply{N: reply.N, Seq: reply.Seq, Repeated: reply.Repeated, Large: &p})
}
