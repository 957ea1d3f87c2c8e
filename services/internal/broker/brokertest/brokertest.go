// Package brokertest gives a test a NATS of its own: the embedded server with the
// real users and permissions, on a temporary folder, installed.
package brokertest

import (
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/install"
)

// Server is a running broker, installed.
type Server struct {
	*broker.Broker
	// Genesis is the log's identity.
	Genesis eventlog.Genesis

	t    testing.TB
	mu   sync.Mutex
	want bool
	got  []Denial
}

// Denial is a permission violation that a user got.
type Denial struct {
	User broker.User
	Err  error
}

// Start starts and installs a server that ends with the test. A permission
// violation fails the test, unless ExpectDenials was called: it would otherwise
// only look like a timeout.
func Start(t testing.TB) *Server {
	t.Helper()
	return StartWith(t, broker.Config{}, install.Options{})
}

// StartWith is Start with a config, where Dir and Logger may be left out, and
// options of the installer.
func StartWith(t testing.TB, cfg broker.Config, opts install.Options) *Server {
	t.Helper()
	s := &Server{t: t}
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.OnDenied = s.denied
	b, err := broker.Start(cfg)
	if err != nil {
		t.Fatalf("start broker: %v", err)
	}
	t.Cleanup(b.Stop)
	t.Cleanup(s.check)
	s.Broker = b
	if s.Genesis, err = install.RunWith(t.Context(), s.JS(broker.UserInstaller), opts); err != nil {
		t.Fatalf("install: %v", err)
	}
	return s
}

// NC connects as a user, until the test ends.
func (s *Server) NC(u broker.User) *nats.Conn {
	s.t.Helper()
	nc, err := s.Connect(s.t.Context(), u)
	if err != nil {
		s.t.Fatalf("connect as %s: %v", u, err)
	}
	s.t.Cleanup(nc.Close)
	return nc
}

// JS is NC with JetStream.
func (s *Server) JS(u broker.User) jetstream.JetStream {
	s.t.Helper()
	js, err := jetstream.New(s.NC(u))
	if err != nil {
		s.t.Fatalf("jetstream as %s: %v", u, err)
	}
	return js
}

// ExpectDenials lets permission violations pass; Denials lists them.
func (s *Server) ExpectDenials() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.want = true
}

// Denials gives the permission violations so far.
func (s *Server) Denials() []Denial {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Denial(nil), s.got...)
}

func (s *Server) denied(u broker.User, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, Denial{User: u, Err: err})
}

func (s *Server) check() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.want {
		return
	}
	for _, d := range s.got {
		s.t.Errorf("NATS denied %s: %v", d.User, d.Err)
	}
}

// Eventually polls a condition until it holds, and fails the test when it doesn't
// within the time: for what has no signal to wait on.
func Eventually(t testing.TB, within time.Duration, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within %s: %s", within, what)
		}
	}
}
