package baddays_test

import (
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/migrations/pgtest"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
	"github.com/holdfast-io/holdfast/services/holdfast/dev"
)

// relay stands between the program and Postgres, and holds each piece of what passes
// for as long as it is told to.
type relay struct {
	t        *testing.T
	listener net.Listener
	target   string

	mu    sync.Mutex
	delay time.Duration
	conns map[net.Conn]bool
}

// behindRelay is a database of its own behind a relay.
func behindRelay(t *testing.T) (*relay, harness.Option) {
	t.Helper()
	dsn, err := url.Parse(pgtest.New(t))
	if err != nil {
		t.Fatal(err)
	}
	query := dsn.Query()
	dir, err := os.MkdirTemp("", "hf-relay-") // short: a socket is in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	name := ".s.PGSQL." + query.Get("port")
	r := &relay{t: t, target: filepath.Join(query.Get("host"), name), conns: map[net.Conn]bool{}}
	if r.listener, err = net.Listen("unix", filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
	var accepting sync.WaitGroup
	accepting.Go(func() { r.accept(&accepting) })
	t.Cleanup(func() {
		_ = r.listener.Close()
		r.mu.Lock()
		for c := range r.conns {
			_ = c.Close()
		}
		r.delay = 0
		r.mu.Unlock()
		accepting.Wait()
	})
	query.Set("host", dir)
	dsn.RawQuery = query.Encode()
	return r, func(c *dev.Config) { c.PostgresURL = dsn.String() }
}

// slow has everything wait from now on.
func (r *relay) slow(by time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = by
}

func (r *relay) accept(running *sync.WaitGroup) {
	for {
		in, err := r.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("unix", r.target)
		if err != nil {
			_ = in.Close()
			continue
		}
		r.mu.Lock()
		r.conns[in], r.conns[out] = true, true
		r.mu.Unlock()
		running.Go(func() { r.pass(out, in) })
		running.Go(func() { r.pass(in, out) })
	}
}

// pass moves what comes from one side to the other, late, until either is closed.
func (r *relay) pass(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			r.hold()
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// hold waits out the delay of now.
func (r *relay) hold() {
	r.mu.Lock()
	d := r.delay
	r.mu.Unlock()
	if d > 0 {
		<-time.After(d)
	}
}
