package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// WSReadLimit is the largest message a client may send over the WebSocket, in
// bytes; a larger one closes with [CloseTooBig]. It is more than the largest content
// (16 MiB), so that one that is too large is refused as what it is.
const WSReadLimit = 24 << 20

// WSType is the `type` of a message over the WebSocket.
type WSType string

// The types: the first five are requests of clients, the others replies of the
// gateway.
const (
	WSTypeSubscribe   WSType = "subscribe"
	WSTypeUnsubscribe WSType = "unsubscribe"
	WSTypeDecide      WSType = "decide"
	WSTypeMessage     WSType = "message"
	WSTypePing        WSType = "ping"

	WSTypeSubscribed WSType = "subscribed"
	WSTypeFrame      WSType = "frame"
	WSTypeAck        WSType = "ack"
	WSTypeProblem    WSType = "problem"
	WSTypePong       WSType = "pong"
	WSTypeHeartbeat  WSType = "heartbeat"
)

// WSMessage is one message over the WebSocket: sealed, so that who handles
// them can be checked to handle all.
type WSMessage interface {
	// WSType is the message's `type`.
	WSType() WSType
}

// WSSubscribe follows a session, or the inbox: exactly one of the two.
type WSSubscribe struct {
	// Ref is the client's own word, echoed in `subscribed` or `problem`.
	Ref     string    `json:"ref"`
	Session SessionID `json:"session,omitempty"`
	Inbox   bool      `json:"inbox,omitempty"`
	// After is the cursor of the last frame that the client has; empty is from
	// the beginning for a session, from now for the inbox.
	After Cursor `json:"after,omitempty"`
}

// WSUnsubscribe ends a subscription; no frame of it comes after its ack.
type WSUnsubscribe struct {
	Ref          string `json:"ref"`
	Subscription string `json:"subscription"`
}

// WSDecide answers a question, as POST /v1/approvals/{id}/decisions.
type WSDecide struct {
	Ref      string   `json:"ref"`
	ID       CallID   `json:"id"`
	Decision Answer   `json:"decision"`
	ArgsHash ArgsHash `json:"argsHash"`
	Comment  string   `json:"comment,omitempty"`
}

// WSSend sends a message, as POST /v1/sessions/{id}/messages.
type WSSend struct {
	Ref            string    `json:"ref"`
	Session        SessionID `json:"session"`
	Content        string    `json:"content"`
	WhenBusy       WhenBusy  `json:"whenBusy,omitempty"`
	IdempotencyKey string    `json:"idempotencyKey,omitempty"`
}

// WSPing asks for a [WSPong]. Browsers can't send the protocol's own pings.
type WSPing struct {
	Ref string `json:"ref,omitempty"`
}

// WSSubscribed says that a subscription stands and what it is called.
type WSSubscribed struct {
	Ref string `json:"ref"`
	// Subscription names it on this connection.
	Subscription string `json:"subscription"`
}

// WSFrame is a frame of a subscription. The frame is raw because the gateway
// encodes it once for all its viewers.
type WSFrame struct {
	Subscription string          `json:"subscription"`
	Frame        json.RawMessage `json:"frame"`
}

// WSAck says that a request was done.
type WSAck struct {
	Ref string `json:"ref"`
	// Status is what the REST call would have answered: 200, 201, 202 or 204.
	Status int `json:"status"`
	// Seq is Holdfast-Seq of the REST call; 0 if nothing was appended.
	Seq Seq `json:"seq,omitempty"`
	// Approval answers `decide`.
	Approval *Approval `json:"approval,omitempty"`
	// Message answers `message`.
	Message *MessageAccepted `json:"message,omitempty"`
}

// WSProblem says that a request was refused. The connection stays.
type WSProblem struct {
	Ref     string  `json:"ref"`
	Problem Problem `json:"problem"`
}

// WSPong answers [WSPing].
type WSPong struct {
	Ref string `json:"ref,omitempty"`
}

// WSHeartbeat comes when nothing else was said for a while.
type WSHeartbeat struct {
	Time time.Time `json:"time"`
}

// WSType is subscribe.
func (*WSSubscribe) WSType() WSType { return WSTypeSubscribe }

// WSType is unsubscribe.
func (*WSUnsubscribe) WSType() WSType { return WSTypeUnsubscribe }

// WSType is decide.
func (*WSDecide) WSType() WSType { return WSTypeDecide }

// WSType is message.
func (*WSSend) WSType() WSType { return WSTypeMessage }

// WSType is ping.
func (*WSPing) WSType() WSType { return WSTypePing }

// WSType is subscribed.
func (*WSSubscribed) WSType() WSType { return WSTypeSubscribed }

// WSType is frame.
func (*WSFrame) WSType() WSType { return WSTypeFrame }

// WSType is ack.
func (*WSAck) WSType() WSType { return WSTypeAck }

// WSType is problem.
func (*WSProblem) WSType() WSType { return WSTypeProblem }

// WSType is pong.
func (*WSPong) WSType() WSType { return WSTypePong }

// WSType is heartbeat.
func (*WSHeartbeat) WSType() WSType { return WSTypeHeartbeat }

// newWSMessage makes an empty message of a type, nil for an unknown one. It is
// the one list of all messages; a test holds it to asyncapi.yaml.
func newWSMessage(t WSType) WSMessage {
	switch t {
	case WSTypeSubscribe:
		return &WSSubscribe{}
	case WSTypeUnsubscribe:
		return &WSUnsubscribe{}
	case WSTypeDecide:
		return &WSDecide{}
	case WSTypeMessage:
		return &WSSend{}
	case WSTypePing:
		return &WSPing{}
	case WSTypeSubscribed:
		return &WSSubscribed{}
	case WSTypeFrame:
		return &WSFrame{}
	case WSTypeAck:
		return &WSAck{}
	case WSTypeProblem:
		return &WSProblem{}
	case WSTypePong:
		return &WSPong{}
	case WSTypeHeartbeat:
		return &WSHeartbeat{}
	default:
		return nil
	}
}

// EncodeWS is the JSON of a message, with its type first.
func EncodeWS(m WSMessage) ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", m.WSType(), err)
	}
	head := fmt.Appendf(nil, `{"type":%q`, m.WSType())
	if len(body) > len("{}") {
		head = append(head, ',')
	}
	return append(head, body[1:]...), nil
}

// ErrUnknownWSType is of a message whose type this version doesn't have. A
// client skips it: newer gateways say more.
var ErrUnknownWSType = errors.New("unknown type of message")

// DecodeWS is the message in JSON of one text frame. It checks the shape, not
// the values: the gateway validates requests against asyncapi.yaml first
// (apispec.ValidateWS).
func DecodeWS(data []byte) (WSMessage, error) {
	var head struct {
		Type WSType `json:"type"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("decode message: %w", err)
	}
	m := newWSMessage(head.Type)
	if m == nil {
		return nil, fmt.Errorf("%w: %.64q", ErrUnknownWSType, head.Type)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(m); err != nil {
		return nil, fmt.Errorf("decode %s: %w", head.Type, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("decode %s: more than one value", head.Type)
	}
	return m, nil
}

// CloseCode is why the gateway closed a WebSocket. Its range says whether to
// come back, also for codes that a client doesn't know.
type CloseCode int

// The codes; asyncapi.yaml (x-close-codes) has their meanings.
const (
	CloseGoingAway  CloseCode = 4000
	CloseTooSlow    CloseCode = 4001
	CloseSilent     CloseCode = 4002
	CloseSourceLost CloseCode = 4003

	CloseBadMessage      CloseCode = 4500
	CloseUnauthenticated CloseCode = 4501
	CloseTooBig          CloseCode = 4502
)

// CloseCodes are all of them, with the word that is sent as the reason.
var CloseCodes = map[CloseCode]string{
	CloseGoingAway:       "going-away",
	CloseTooSlow:         "too-slow",
	CloseSilent:          "silent",
	CloseSourceLost:      "source-lost",
	CloseBadMessage:      "bad-message",
	CloseUnauthenticated: "unauthenticated",
	CloseTooBig:          "too-big",
}

// String is the word of the code, sent as the reason of the close.
func (c CloseCode) String() string {
	if name, ok := CloseCodes[c]; ok {
		return name
	}
	return fmt.Sprintf("close-%d", int(c))
}

// Reconnect says whether coming back, with the last cursors, can help. Codes
// outside 4000–4999 are the network's or a proxy's: come back.
func (c CloseCode) Reconnect() bool { return c < 4500 || c > 4999 }
