package natstest

import (
	"context"
	"net"
	"sync"
	"testing"
)

// Proxy stands between a client and a server and loses, where it is told to, what
// goes one way: requests that never arrive, or answers that never come back.
type Proxy struct {
	target   string
	listener net.Listener
	wg       sync.WaitGroup

	mu           sync.Mutex
	conns        map[net.Conn]struct{}
	loseRequests bool
	loseAnswers  bool
	closed       bool
}

// NewProxy stands before a server's address until the test ends.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("proxy: %v", err)
	}
	p := &Proxy{target: target, listener: l, conns: map[net.Conn]struct{}{}}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
		_ = l.Close()
		p.cut()
		p.wg.Wait()
	})
	return p
}

// URL is where a client connects.
func (p *Proxy) URL() string { return "nats://" + p.listener.Addr().String() }

// LoseAnswers drops from now on what the server says.
func (p *Proxy) LoseAnswers() { p.set(false, true) }

// LoseRequests drops from now on what the client says.
func (p *Proxy) LoseRequests() { p.set(true, false) }

// Heal cuts what is connected, as its streams have holes, and loses nothing more.
func (p *Proxy) Heal() {
	p.set(false, false)
	p.cut()
}

func (p *Proxy) set(requests, answers bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loseRequests, p.loseAnswers = requests, answers
}

func (p *Proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
	clear(p.conns)
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		srv, err := new(net.Dialer).DialContext(context.Background(), "tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		if !p.keep(client, srv) {
			return
		}
		p.wg.Go(func() { p.pipe(srv, client, func() bool { return p.loseRequests }) })
		p.wg.Go(func() { p.pipe(client, srv, func() bool { return p.loseAnswers }) })
	}
}

func (p *Proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.closed {
			_ = c.Close()
			continue
		}
		p.conns[c] = struct{}{}
	}
	return !p.closed
}

// pipe copies until either end closes, dropping what lose says.
func (p *Proxy) pipe(dst, src net.Conn, lose func() bool) {
	defer func() { _, _ = dst.Close(), src.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		p.mu.Lock()
		dropped := lose()
		p.mu.Unlock()
		if n > 0 && !dropped {
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
