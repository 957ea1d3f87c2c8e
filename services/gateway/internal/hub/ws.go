package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apispec"
	"github.com/holdfast-io/holdfast/services/gateway/internal/auth"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

// The operations whose rules a WebSocket's requests follow.
const (
	opConnect = "connectWebSocket"
	opSession = "streamSession"
	opInbox   = "streamInbox"
	opDecide  = "decideApproval"
	opSend    = "sendMessage"
)

const (
	inFlight   = 8               // requests of one socket that are worked on at once
	closeGrace = 2 * time.Second // for a client to answer a close
)

// socket is one WebSocket: a goroutine that reads, and one that writes while there
// is something to write.
type socket struct {
	hub  *Hub
	req  *http.Request
	ws   *websocket.Conn
	conn *connection
	// ctx ends with the connection: reads and requests, not writes.
	ctx    context.Context
	cancel context.CancelFunc

	work    sync.WaitGroup
	slots   chan struct{}
	pinging atomic.Bool

	mu   sync.Mutex
	subs map[string]*socketSub
	next int
}

// socketSub is a subscription of a socket.
type socketSub struct {
	src    source
	cancel context.CancelFunc
	done   chan struct{} // closed when the history was sent
}

// ServeWebSocket serves one WebSocket: GET /v1/ws, messages as in asyncapi.yaml.
// A browser's Origin has to be one of the Config's, and one is needed where a
// cookie says who it is.
func (h *Hub) ServeWebSocket(w http.ResponseWriter, r *http.Request, who auth.Principal) {
	if err := h.checkOrigin(r, who); err != nil {
		h.cfg.Fail(w, r, err)
		return
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		h.cfg.Fail(w, r, problem.New(api.CodeInvalidRequest, "This takes a WebSocket.").At("header/Upgrade", "isn't websocket"))
		return
	}
	s := &socket{hub: h, req: r, slots: make(chan struct{}, inFlight), subs: map[string]*socketSub{}}
	conn, err := h.enter(who)
	if err != nil {
		h.cfg.Fail(w, r, err)
		return
	}
	defer h.exit(conn)
	// Origin was compared exactly: the library's own check would let the host pass
	// under another scheme. Without compression a connection costs little memory.
	s.ws, err = websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return // Accept has answered
	}
	s.ws.SetReadLimit(-1)                                                    // receive bounds it, with a code of ours
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(r.Context())) // hijacked: the request's own ends when it likes
	h.mu.Lock()
	s.conn = conn
	conn.beat = s.beat
	h.mu.Unlock()
	conn.out.open(s.wake)

	code := s.read() //nolint:contextcheck // requests end with the connection, whose context is kept
	conn.out.close(code)
	s.cancel()
	s.unsubscribeAll()
	s.work.Wait()
	_ = s.ws.CloseNow() // after a handshake, or instead of one
}

func (h *Hub) checkOrigin(r *http.Request, who auth.Principal) error {
	if r.Header.Get("Origin") == "" && who.Via == auth.ViaBearer {
		return nil
	}
	return h.cfg.Origins.Check(r)
}

// read handles requests until the connection ends, and gives why it should.
func (s *socket) read() api.CloseCode {
	for {
		data, code := s.receive()
		if code != 0 {
			return code
		}
		request, ref, err := apispec.DecodeWSRequest(data)
		if err != nil {
			if _, shape := errors.AsType[*api.Error](err); !shape {
				return api.CloseBadMessage
			}
			s.refuse(ref, err)
			continue
		}
		if !s.handle(request) {
			return gone
		}
	}
}

// receive reads one message.
func (s *socket) receive() ([]byte, api.CloseCode) {
	kind, r, err := s.ws.Reader(s.ctx)
	if err != nil {
		return nil, gone
	}
	if kind != websocket.MessageText {
		return nil, api.CloseBadMessage
	}
	data, err := io.ReadAll(io.LimitReader(r, api.WSReadLimit+1))
	switch {
	case err != nil:
		return nil, gone
	case len(data) > api.WSReadLimit:
		return nil, api.CloseTooBig
	}
	return data, 0
}

// handle starts a request. False says that the connection is closing.
func (s *socket) handle(request api.WSMessage) bool {
	switch m := request.(type) {
	case *api.WSPing:
		return s.reply(&api.WSPong{Ref: m.Ref})
	case *api.WSUnsubscribe:
		s.unsubscribe(m)
		return true
	case *api.WSSubscribe:
		return s.start(m.Ref, func() error { return s.subscribe(m) })
	case *api.WSDecide:
		return s.start(m.Ref, func() error { return s.decide(m) })
	case *api.WSSend:
		return s.start(m.Ref, func() error { return s.send(m) })
	default:
		panic(fmt.Sprintf("hub: %T passed as a request", request)) // DecodeWSRequest gives no other
	}
}

// start works on a request beside reading, so that one that waits holds up no
// other; several at once, but not many.
func (s *socket) start(ref string, do func() error) bool {
	select {
	case s.slots <- struct{}{}:
	case <-s.ctx.Done():
		return false
	}
	s.work.Go(func() {
		defer func() { <-s.slots }()
		if err := do(); err != nil {
			s.refuse(ref, err)
		}
	})
	return true
}

// refuse answers a request with a problem. Without a valid token or login the
// connection ends.
func (s *socket) refuse(ref string, err error) {
	p := problem.From(err)
	if p.Code == api.CodeUnauthenticated {
		s.conn.out.close(api.CloseUnauthenticated)
		return
	}
	if p.Status() >= http.StatusInternalServerError {
		s.hub.cfg.Logger.Warn("request over WebSocket failed", "code", p.Code, "err", err)
	}
	s.reply(&api.WSProblem{Ref: ref, Problem: p.API().Problem})
}

func (s *socket) reply(m api.WSMessage) bool {
	raw, err := api.EncodeWS(m)
	if err != nil {
		s.hub.cfg.Logger.Error("message not encoded", "type", m.WSType(), "err", err)
		return true
	}
	return s.conn.out.put(item{raw: raw})
}

// admit asks again who this is and whether it may: tokens end, and roles change,
// while a connection stays.
func (s *socket) admit(operation string) (auth.Principal, error) {
	op, ok := apispec.ByID(operation)
	if !ok {
		panic("hub: no operation " + operation) // a misspelt constant
	}
	return s.hub.cfg.Admit(op, s.req)
}

// unsubscribe ends a subscription.
func (s *socket) unsubscribe(m *api.WSUnsubscribe) {
	s.mu.Lock()
	sub := s.subs[m.Subscription]
	if sub != nil { // nil is a name whose subscribing isn't done
		delete(s.subs, m.Subscription)
	}
	s.mu.Unlock()
	if sub == nil {
		s.refuse(m.Ref, problem.New(api.CodeNotFound, "There is no such subscription on this connection."))
		return
	}
	s.work.Go(func() { // its history may be waiting for room
		sub.stop()
		s.reply(&api.WSAck{Ref: m.Ref, Status: http.StatusNoContent})
	})
}

func (s *socketSub) stop() {
	s.cancel()
	<-s.done
	s.src.detach()
}

func (s *socket) unsubscribeAll() {
	s.mu.Lock()
	subs := s.subs
	s.subs = nil
	s.mu.Unlock()
	for _, sub := range subs {
		if sub != nil {
			sub.stop()
		}
	}
}

// beat says that the connection is there, and looks whether the client is.
func (s *socket) beat(now time.Time) {
	if _, err := s.admit(opConnect); err != nil && problem.From(err).Code == api.CodeUnauthenticated {
		s.conn.out.close(api.CloseUnauthenticated)
		return
	}
	s.reply(&api.WSHeartbeat{Time: now.UTC()})
	if !s.pinging.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer s.pinging.Store(false)
		ctx, cancel := context.WithTimeout(s.ctx, s.hub.cfg.Heartbeat)
		defer cancel()
		if err := s.ws.Ping(ctx); err != nil && s.ctx.Err() == nil {
			s.conn.out.close(api.CloseSilent)
		}
	}()
}
