package sidecar

import (
	"errors"
	"net"
	"net/netip"
	"sync"
)

// maxConns is how many connections may be open at a time from within the Pod, and how
// many from outside.
const maxConns = 512

// withinPod says whether a connection comes from the Pod itself, where the agent is: from
// a loopback address, or from the very address that it goes to.
func withinPod(remote string, local net.Addr) bool {
	from, err := netip.ParseAddrPort(remote)
	if err != nil {
		return true // of no network: only a machine's own sockets have none
	}
	if from.Addr().Unmap().IsLoopback() {
		return true
	}
	if local == nil {
		return false
	}
	to, err := netip.ParseAddrPort(local.String())
	return err == nil && to.Addr().Unmap() == from.Addr().Unmap()
}

// bounded is a listener that drops connections over maxConns at once.
type bounded struct {
	net.Listener

	inside, outside chan struct{}
}

func newBounded(l net.Listener, most int) *bounded {
	return &bounded{Listener: l, inside: make(chan struct{}, most), outside: make(chan struct{}, most)}
}

// Accept implements [net.Listener].
func (b *bounded) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		slots := b.outside
		if withinPod(conn.RemoteAddr().String(), conn.LocalAddr()) {
			slots = b.inside
		}
		select {
		case slots <- struct{}{}:
			return &counted{Conn: conn, leave: sync.OnceFunc(func() { <-slots })}, nil
		default:
			_ = conn.Close() // its end says all
		}
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

// admitted is a listener whose connections were admitted by a CONNECT on another.
type admitted struct {
	addr  net.Addr
	conns chan net.Conn
	done  chan struct{}
	close func()
}

func newAdmitted(addr net.Addr) *admitted {
	done := make(chan struct{})
	return &admitted{addr: addr, conns: make(chan net.Conn), done: done, close: sync.OnceFunc(func() { close(done) })}
}

// add hands a connection over, or ends it where nobody accepts any more.
func (a *admitted) add(conn net.Conn) {
	select {
	case a.conns <- conn:
	case <-a.done:
		_ = conn.Close() // nothing was said on it
	}
}

// Accept implements [net.Listener].
func (a *admitted) Accept() (net.Conn, error) {
	select {
	case conn := <-a.conns:
		return conn, nil
	case <-a.done:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (a *admitted) Close() error {
	a.close()
	return nil
}

// Addr implements [net.Listener].
func (a *admitted) Addr() net.Addr { return a.addr }
