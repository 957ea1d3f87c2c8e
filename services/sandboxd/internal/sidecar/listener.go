package sidecar

import (
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

// side is where a connection comes from: the agent takes no room from others.
func side(c net.Conn) string {
	if withinPod(c.RemoteAddr().String(), c.LocalAddr()) {
		return "inside"
	}
	return "outside"
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
