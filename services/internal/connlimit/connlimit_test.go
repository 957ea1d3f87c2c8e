package connlimit_test

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/services/internal/connlimit"
)

// client is a listener's way to be dialed.
type client struct {
	t    *testing.T
	dial func() (net.Conn, error)
}

// open dials, and says whether the connection is kept: whoever accepts greets.
func (c client) open() (conn net.Conn, kept bool) {
	c.t.Helper()
	conn, err := c.dial()
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		c.t.Fatal(err)
	}
	_, err = io.ReadFull(conn, make([]byte, 1))
	return conn, err == nil
}

// serve greets every connection that is accepted, and closes it when its other end does.
func serve(t *testing.T, l net.Listener) {
	t.Helper()
	done := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = conn.Write([]byte{1})
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.Close()
				_ = conn.Close() // counts once
			}()
		}
	}()
}

func from(t *testing.T, address, to string) client {
	return client{t, func() (net.Conn, error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
		return d.DialContext(t.Context(), "tcp", to)
	}}
}

// Whoever has too many connections gets no more, and others do; one that ends makes room.
func TestEachHasItsOwnShare(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, connlimit.New(l, 2, connlimit.ByAddress))
	many, other := from(t, "127.0.0.2", l.Addr().String()), from(t, "127.0.0.3", l.Addr().String())
	first, kept := many.open()
	if _, second := many.open(); !kept || !second {
		t.Fatal("not even its share")
	}
	if _, third := many.open(); third {
		t.Error("more than its share")
	}
	if _, kept := other.open(); !kept {
		t.Error("another has no room")
	}
	_ = first.Close()
	within, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for kept = false; !kept; {
		if within.Err() != nil {
			t.Fatal("what ended makes no room")
		}
		_, kept = many.open()
	}
	if _, more := many.open(); more {
		t.Error("what ended once makes room twice")
	}
}

// Sockets of the machine have no address, and no bound.
func TestNoAddressNoBound(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	serve(t, connlimit.New(l, 1, connlimit.ByAddress))
	c := client{t, func() (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(t.Context(), "unix", path)
	}}
	for range 3 {
		if _, kept := c.open(); !kept {
			t.Fatal("it is bounded")
		}
	}
}

// One direction can end alone, as a proxied upgrade does it.
func TestCloseWrite(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	bounded := connlimit.New(l, 1, connlimit.ByAddress)
	t.Cleanup(func() { _ = bounded.Close() })
	dialed, err := from(t, "127.0.0.1", l.Addr().String()).dial()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dialed.Close() }()
	conn, err := bounded.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok {
		t.Fatal("it can't")
	}
	if err := half.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := dialed.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("read: %v", err)
	}
}
