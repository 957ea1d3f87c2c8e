package hub

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apispec"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

// client is a WebSocket's other end. What comes is checked against the document.
type client struct {
	t  testing.TB
	ws *websocket.Conn
}

func (w *world) dial(t testing.TB, header http.Header) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return websocket.Dial(ctx, w.server.URL+"/v1/ws", &websocket.DialOptions{HTTPHeader: header})
}

func (w *world) connect(t testing.TB, header http.Header) *client {
	t.Helper()
	ws, _, err := w.dial(t, header)
	if err != nil {
		t.Fatal(err)
	}
	ws.SetReadLimit(4 << 20)
	t.Cleanup(func() { _ = ws.CloseNow() })
	return &client{t: t, ws: ws}
}

// connectSlow is connect with a small buffer for what comes.
func (w *world) connectSlow(t testing.TB) *client {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err == nil {
			err = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		}
		return conn, err
	}}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, w.server.URL+"/v1/ws", &websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	ws.SetReadLimit(4 << 20)
	t.Cleanup(func() { _ = ws.CloseNow() })
	return &client{t: t, ws: ws}
}

func (c *client) send(m api.WSMessage) {
	c.t.Helper()
	raw, err := api.EncodeWS(m)
	if err != nil {
		c.t.Fatal(err)
	}
	c.sendRaw(websocket.MessageText, raw)
}

func (c *client) sendRaw(kind websocket.MessageType, raw []byte) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := c.ws.Write(ctx, kind, raw); err != nil {
		c.t.Fatal(err)
	}
}

// read gives the next message, or the code of the close.
func (c *client) read() (api.WSMessage, api.CloseCode) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	_, raw, err := c.ws.Read(ctx)
	if err != nil {
		if ce, ok := errors.AsType[websocket.CloseError](err); ok {
			return nil, api.CloseCode(ce.Code)
		}
		c.t.Fatalf("read: %v", err)
	}
	if err := apispec.ValidateWS(raw); err != nil {
		c.t.Errorf("message: %v\n%s", err, raw)
	}
	m, err := api.DecodeWS(raw)
	if err != nil {
		c.t.Fatal(err)
	}
	return m, 0
}

// expect reads a message of a type, passing over heartbeats.
func expect[M api.WSMessage](c *client) M {
	c.t.Helper()
	for {
		m, code := c.read()
		if code != 0 {
			c.t.Fatalf("closed with %v", code)
		}
		if got, ok := m.(M); ok {
			return got
		}
		if _, ok := m.(*api.WSHeartbeat); !ok {
			var want M
			c.t.Fatalf("got %T %+v, want %T", m, m, want)
		}
	}
}

func (c *client) frame() (string, api.Frame) {
	c.t.Helper()
	m := expect[*api.WSFrame](c)
	var f api.Frame
	if err := json.Unmarshal(m.Frame, &f); err != nil {
		c.t.Fatal(err)
	}
	return m.Subscription, f
}

func (c *client) subscribe(ref, session string, after string) string {
	c.t.Helper()
	m := &api.WSSubscribe{Ref: ref, Session: session, After: after}
	if session == "" {
		m.Inbox = true
	}
	c.send(m)
	s := expect[*api.WSSubscribed](c)
	if s.Ref != ref {
		c.t.Fatalf("subscribed %q, want %q", s.Ref, ref)
	}
	return s.Subscription
}

func TestWebSocketFollowsManySessions(t *testing.T) {
	w := newWorld(t, nil)
	a, b := sid("a"), sid("b")
	w.create(t, testTenant, a)
	w.create(t, testTenant, b)
	c := w.connect(t, nil)
	subA := c.subscribe("1", a, "")
	sub, f := c.frame()
	if sub != subA || word(f) != "n1" || f.Session != a {
		t.Fatalf("got %s of %s on %q", word(f), f.Session, sub)
	}
	subB := c.subscribe("2", b, f.Cursor)
	w.note(t, b)
	if sub, f = c.frame(); sub != subB || f.Session != b || word(f) != "n2" {
		t.Fatalf("got %s of %s on %q", word(f), f.Session, sub)
	}
	w.say(t, a, "r-1", 1, 2, 1)
	if sub, f = c.frame(); sub != subA || word(f) != "r-1:1-2" {
		t.Fatalf("got %s on %q", word(f), sub)
	}
	c.send(&api.WSUnsubscribe{Ref: "3", Subscription: subA})
	if ack := expect[*api.WSAck](c); ack.Ref != "3" || ack.Status != http.StatusNoContent {
		t.Fatalf("ack %+v", ack)
	}
	w.note(t, a)
	w.note(t, b)
	if sub, f = c.frame(); sub != subB || word(f) != "n3" {
		t.Fatalf("after unsubscribing got %s on %q", word(f), sub)
	}
	c.send(&api.WSUnsubscribe{Ref: "4", Subscription: subA})
	if p := expect[*api.WSProblem](c); p.Ref != "4" || p.Problem.Code != api.CodeNotFound {
		t.Fatalf("problem %+v", p)
	}
}

func TestWebSocketRequests(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.SubscriptionsPerSocket = 1 })
	id := sid("a")
	w.create(t, testTenant, id)
	w.create(t, "other", sid("b"))
	call := id + ".c-1"
	hash := strings.Repeat("0a", 32)
	c := w.connect(t, nil)
	c.send(&api.WSPing{Ref: "p"})
	if p := expect[*api.WSPong](c); p.Ref != "p" {
		t.Errorf("pong %q", p.Ref)
	}
	c.send(&api.WSDecide{Ref: "d", ID: call, Decision: api.AnswerApprove, ArgsHash: hash})
	if ack := expect[*api.WSAck](c); ack.Ref != "d" || ack.Status != http.StatusCreated || ack.Seq != 7 || ack.Approval.ID != call {
		t.Errorf("ack %+v", ack)
	}
	c.send(&api.WSSend{Ref: "m", Session: id, Content: "ls", IdempotencyKey: "k"})
	if ack := expect[*api.WSAck](c); ack.Ref != "m" || ack.Status != http.StatusAccepted || ack.Message.RunID != "r-1" {
		t.Errorf("ack %+v", ack)
	}
	for name, tt := range map[string]struct {
		m    api.WSMessage
		want api.Code
	}{
		"another tenant's session": {&api.WSSubscribe{Ref: "x", Session: sid("b")}, api.CodeNotFound},
		"bad cursor":               {&api.WSSubscribe{Ref: "x", Session: id, After: "AAAA"}, api.CodeInvalidCursor},
		"session and inbox":        {&api.WSSubscribe{Ref: "x", Session: id, Inbox: true}, api.CodeInvalidRequest},
		"nonsense to decide":       {&api.WSDecide{Ref: "x", ID: call, Decision: "maybe", ArgsHash: hash}, api.CodeInvalidRequest},
	} {
		c.send(tt.m)
		if p := expect[*api.WSProblem](c); p.Ref != "x" || p.Problem.Code != tt.want {
			t.Errorf("%s: %+v, want %s", name, p, tt.want)
		}
	}
	c.subscribe("s", id, "")
	c.frame()
	c.send(&api.WSSubscribe{Ref: "t", Session: id})
	if p := expect[*api.WSProblem](c); p.Problem.Code != api.CodeQuotaExceeded {
		t.Errorf("one too many: %+v", p)
	}
	foreign := w.connect(t, http.Header{"Test-Tenant": {"other"}})
	foreign.send(&api.WSDecide{Ref: "d", ID: call, Decision: api.AnswerApprove, ArgsHash: hash})
	if p := expect[*api.WSProblem](foreign); p.Problem.Code != api.CodeNotFound {
		t.Errorf("another tenant's answer: %+v", p)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if got := fmt.Sprint(w.commands); !strings.Contains(got, "decide "+call+" approve by alice in acme") || !strings.Contains(got, `send `+id+` "ls"`) {
		t.Errorf("commands: %s", got)
	}
}

func TestPermissionIsCheckedAtEachRequest(t *testing.T) {
	w := newWorld(t, nil)
	id := sid("a")
	w.create(t, testTenant, id)
	c := w.connect(t, nil)
	c.subscribe("1", id, "")
	c.frame()
	w.mu.Lock()
	w.refused = problem.New(api.CodeForbidden, "no more")
	w.mu.Unlock()
	c.send(&api.WSSend{Ref: "m", Session: id, Content: "x"})
	if p := expect[*api.WSProblem](c); p.Problem.Code != api.CodeForbidden {
		t.Errorf("message: %+v", p)
	}
	c.send(&api.WSSubscribe{Ref: "s", Session: id})
	if p := expect[*api.WSProblem](c); p.Problem.Code != api.CodeForbidden {
		t.Errorf("subscribe: %+v", p)
	}
	w.mu.Lock()
	w.refused = problem.New(api.CodeUnauthenticated, "who?")
	w.mu.Unlock()
	c.send(&api.WSSend{Ref: "m", Session: id, Content: "x"})
	if m, code := c.read(); code != api.CloseUnauthenticated {
		t.Errorf("got %+v, code %v", m, code)
	}
	if len(w.commands) != 0 {
		t.Errorf("commands got through: %v", w.commands)
	}
}

func TestOrigin(t *testing.T) {
	w := newWorld(t, nil)
	for name, tt := range map[string]struct {
		origin, cookie string
		ok             bool
	}{
		"bearer, no origin":      {"", "", true},
		"bearer, ours":           {testOrigin, "", true},
		"bearer, another":        {"http://evil.example", "", false},
		"cookie, ours":           {testOrigin, "holdfast_session=x", true},
		"cookie, no origin":      {"", "holdfast_session=x", false},
		"cookie, another port":   {"http://127.0.0.1:7071", "holdfast_session=x", false},
		"cookie, another scheme": {"https://127.0.0.1:7070", "holdfast_session=x", false},
		"cookie, loopback":       {w.server.URL, "holdfast_session=x", true}, // not in the Config
		"cookie, null":           {"null", "holdfast_session=x", false},
	} {
		h := http.Header{}
		if tt.origin != "" {
			h.Set("Origin", tt.origin)
		}
		if tt.cookie != "" {
			h.Set("Cookie", tt.cookie)
		}
		ws, res, err := w.dial(t, h)
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			_ = ws.CloseNow()
			continue
		}
		body, _ := io.ReadAll(res.Body)
		if res.StatusCode != http.StatusForbidden || !strings.Contains(string(body), string(api.CodeOriginRefused)) {
			t.Errorf("%s: status %d, %s", name, res.StatusCode, body)
		}
	}
	w.wantProblem(t, "no upgrade", "/v1/ws", "", api.CodeInvalidRequest)
}

func TestCloseCodes(t *testing.T) {
	for name, tt := range map[string]struct {
		kind websocket.MessageType
		raw  string
		want api.CloseCode
	}{
		"not JSON":     {websocket.MessageText, "hello", api.CloseBadMessage},
		"a reply":      {websocket.MessageText, `{"type":"ack","ref":"1","status":200}`, api.CloseBadMessage},
		"binary":       {websocket.MessageBinary, `{"type":"ping"}`, api.CloseBadMessage},
		"far too much": {websocket.MessageText, `{"type":"ping","ref":"` + strings.Repeat("x", api.WSReadLimit) + `"}`, api.CloseTooBig},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			c := w.connect(t, nil)
			c.sendRaw(tt.kind, []byte(tt.raw))
			if m, code := c.read(); code != tt.want {
				t.Errorf("got %+v, code %v, want %v", m, code, tt.want)
			}
		})
	}
	t.Run("shutdown", func(t *testing.T) {
		w := newWorld(t, nil)
		id := sid("a")
		w.create(t, testTenant, id)
		c := w.connect(t, nil)
		c.subscribe("1", id, "")
		c.frame()
		go w.stop()
		if m, code := c.read(); code != api.CloseGoingAway {
			t.Errorf("got %+v, code %v", m, code)
		}
	})
}

func TestHeartbeats(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Heartbeat = 20 * time.Millisecond })
	c := w.connect(t, nil)
	for range 3 {
		m, code := c.read()
		if _, ok := m.(*api.WSHeartbeat); !ok {
			t.Fatalf("got %T, code %v", m, code)
		}
	}
	res, cancel := w.get(t, "/v1/stream", "")
	defer cancel()
	defer res.Body.Close()
	for sse := api.NewSSEReader(res.Body, 0); ; {
		e, err := sse.Next()
		if err != nil {
			t.Fatal(err)
		}
		if e.IsComment && e.Comment == "heartbeat" {
			return
		}
	}
}

// TestSilentClientIsClosed connects a client that answers no pings.
func TestSilentClientIsClosed(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Heartbeat = 20 * time.Millisecond })
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, w.server.URL+"/v1/ws", &websocket.DialOptions{
		OnPingReceived: func(context.Context, []byte) bool { return false },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer ws.CloseNow()
	for {
		if _, _, err = ws.Read(ctx); err != nil {
			break
		}
	}
	if code := api.CloseCode(websocket.CloseStatus(err)); code != api.CloseSilent {
		t.Errorf("closed with %v: %v", code, err)
	}
}

// readOrGone is read of a connection that may break off.
func (c *client) readOrGone() (api.WSMessage, api.CloseCode) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	_, raw, err := c.ws.Read(ctx)
	if err != nil {
		if ce, ok := errors.AsType[websocket.CloseError](err); ok {
			return nil, api.CloseCode(ce.Code)
		}
		return nil, 0
	}
	m, err := api.DecodeWS(raw)
	if err != nil {
		c.t.Fatal(err)
	}
	return m, 0
}

// TestShutdownLeavesSilentClients stops while a client doesn't answer the close.
func TestShutdownLeavesSilentClients(t *testing.T) {
	w := newWorld(t, nil)
	conn := dialRaw(t, w, "/v1/ws", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==")
	if _, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	w.stop()
	if took := time.Since(began); took > 2*closeGrace {
		t.Errorf("the stop took %v", took)
	}
}
