// Package connlimit bounds how many connections a listener has at a time, apart for each
// of those whom it must not trust, so that none of them takes the room of the others: the
// agent and those outside at sandboxd's port of a Pod, one sandbox and the others at the
// gateway's listener for agents.
package connlimit

import (
	"errors"
	"net"
	"sync"
)

// Listener drops connections of which its key has too many.
type Listener struct {
	net.Listener

	most int
	of   func(net.Conn) string

	mu   sync.Mutex
	open map[string]int
}

// New bounds the connections of each key to most at a time. of gives a connection's key;
// those of "" aren't bounded.
func New(l net.Listener, most int, of func(net.Conn) string) *Listener {
	return &Listener{Listener: l, most: most, of: of, open: map[string]int{}}
}

// ByAddress is the address that a connection comes from, without its port; "" where there
// is none, as of sockets of the machine.
func ByAddress(c net.Conn) string {
	if tcp, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return tcp.IP.String()
	}
	return ""
}

// Accept implements [net.Listener].
func (l *Listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		key := l.of(conn)
		if key == "" {
			return conn, nil
		}
		if l.enter(key) {
			return &counted{Conn: conn, leave: sync.OnceFunc(func() { l.leave(key) })}, nil
		}
		_ = conn.Close() // its end says all
	}
}

func (l *Listener) enter(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[key] >= l.most {
		return false
	}
	l.open[key]++
	return true
}

func (l *Listener) leave(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[key]--; l.open[key] == 0 {
		delete(l.open, key)
	}
}

// counted is a connection that counts until it is closed.
type counted struct {
	net.Conn

	leave func()
}

// Close implements [net.Conn].
func (c *counted) Close() error {
	c.leave()
	return c.Conn.Close()
}

// CloseWrite ends one direction, where a connection can.
func (c *counted) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}
