package sandboxapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

// RelayAuthority is what a CONNECT to a host's relay names. Which sandbox is meant
// says the access token alone, so that the two can't differ.
const RelayAuthority = "sandbox:7777"

// relayTimeout bounds the handshake with a relay.
const relayTimeout = 10 * time.Second

// Endpoint is where a sandboxd is reached.
type Endpoint struct {
	// URL is "unix:/path" or "http://host:port".
	URL string
	// Access is the token for a host's relay, where URL is one's; "" where sandboxd
	// itself answers there.
	Access string
}

// errRelay marks an answer that no relay gives.
var errRelay = errors.New("the host's relay answers nonsense")

// transport makes a transport to the endpoint and the base URL for requests. By way of a
// relay each connection is one CONNECT, which makes it a plain stream of bytes to
// one incarnation, so that nothing on it is buffered, changed or given to another.
func (e Endpoint) transport() (*http.Transport, *url.URL, error) {
	if e.Access == "" {
		return NewTransport(e.URL)
	}
	dial, _, err := dialerOf(e.URL)
	if err != nil {
		return nil, nil, err
	}
	through := func(ctx context.Context) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, relayTimeout)
		defer cancel()
		conn, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		if err := e.connect(ctx, conn); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return conn, nil
	}
	return transportBy(through), &url.URL{Scheme: "http", Host: "sandbox"}, nil
}

// connect makes the connection one to the sandbox that the token names. The relay's
// refusal is a [*Problem].
func (e Endpoint) connect(ctx context.Context, conn net.Conn) error {
	unwatch := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // a connection that can't has ended
	_, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\nAuthorization: Bearer %s\r\n\r\n", RelayAuthority, e.Access)
	if err != nil {
		unwatch()
		return fmt.Errorf("ask the host's relay: %w", err)
	}
	answer := bufio.NewReader(conn)
	resp, err := http.ReadResponse(answer, &http.Request{Method: http.MethodConnect})
	if !unwatch() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("ask the host's relay: %w", err)
	}
	if resp.StatusCode == http.StatusOK { // its "body" is the connection, which is the caller's
		if answer.Buffered() > 0 {
			return fmt.Errorf("%w: something before any request", errRelay)
		}
		return nil
	}
	defer func() { _ = resp.Body.Close() }()
	p := NewProblem(resp.StatusCode, CodeInternal, "the host's relay answered "+resp.Status)
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err != nil {
		return fmt.Errorf("ask the host's relay: %w", err)
	}
	_ = json.Unmarshal(raw, p) // what isn't a problem leaves the status as the reason
	return p
}

// answerTimeout bounds the answer to a CONNECT, which is a line.
const answerTimeout = 10 * time.Second

// AnswerConnect answers a CONNECT that is to be granted and gives its connection, from
// here on a plain stream of bytes, the caller's to close. It is nil where there is none
// to be had: whoever asked is gone, or speaks before it is answered, as nobody does
// that follows the protocol.
func AnswerConnect(w http.ResponseWriter) net.Conn {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		NewProblem(http.StatusInternalServerError, CodeInternal, "the connection can't be taken over").Write(w)
		return nil
	}
	err = conn.SetDeadline(time.Now().Add(answerTimeout))
	if err == nil {
		_, err = io.WriteString(conn, "HTTP/1.1 200 Connected\r\n\r\n")
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil || buffered.Reader.Buffered() > 0 {
		_ = conn.Close() // nothing was said on it that could be lost
		return nil
	}
	return conn
}
