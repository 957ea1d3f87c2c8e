package supervise

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/drive"
)

const (
	// headerTimeout bounds how long a client may take to say what it wants, and idleTimeout
	// how long it may keep a connection for nothing: longer than a [sandboxapi.Client] does.
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
)

// Config says what a sandbox is made of. All is required but Agent.
type Config struct {
	// PodUID is told to whoever asks for its health.
	PodUID string
	// Process is told, too: who is bound has to be this one.
	Process string
	// Isolation is the grade in force.
	Isolation string
	// Binder redeems its bind.
	Binder Binder
	// Relay is where the agent reaches sandboxd; the sandbox closes it.
	Relay net.Listener
	// SpoolDir keeps what the agent says; it exists, and the agent can't see it.
	SpoolDir string
	// Agent is who works in it; nil for a runtime without one.
	Agent *Agent
	Log   *slog.Logger
}

// Sandbox is all that runs in one. Its API is served by whoever started it, in the way
// that fits the place ([Sandbox.Serve]).
type Sandbox struct {
	cfg     Config
	binding *binding
	entry   Entrypoint
	runs    *drive.Driver
	servers []*http.Server
	serving sync.WaitGroup
}

// Start brings everything up but the way in.
func Start(cfg Config) (*Sandbox, error) {
	s := &Sandbox{cfg: cfg, binding: newBinding(cfg.Binder, cfg.Log)}
	relay := newRelay(s.binding.Grant, cfg.Binder.Upstream)
	inside := http.Handler(relay)
	if cfg.Agent != nil {
		push, err := s.startAgent(*cfg.Agent)
		if err != nil {
			return nil, errors.Join(err, cfg.Relay.Close())
		}
		if push != nil {
			inside = newInbox(push, relay)
		}
	}
	s.Serve(cfg.Relay, inside, 0)
	return s, nil
}

// Grant is what the sandbox's bind gave it, or nil before it is bound.
func (s *Sandbox) Grant() *sandboxapi.Grant { return s.binding.Grant() }

// API is all that the bound session may ask, and what a sandbox answers before.
func (s *Sandbox) API() http.Handler { return (&api{Sandbox: s}).handler() }

// Threshold is what a sandbox answers to those of whom nothing is known: how it is,
// without whose it is, and to a bind. All else is refused by the handler given.
func (s *Sandbox) Threshold(refuse http.HandlerFunc) http.Handler {
	return (&api{Sandbox: s, strangers: true}).threshold(refuse)
}

// Serve serves a handler until Stop, to requests with headers of maxHeader bytes, or of
// what is usual for 0. Call it before Stop.
func (s *Sandbox) Serve(l net.Listener, h http.Handler, maxHeader int) {
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
	}
	s.servers = append(s.servers, srv)
	s.serving.Go(func() {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.cfg.Log.Error("server ended", "addr", l.Addr().String(), "err", err)
		}
	})
}

// Stop ends the run, then the agent, then the way in, so that readers of the
// spool still see the run's end.
func (s *Sandbox) Stop(grace time.Duration) error {
	s.binding.Close()
	deadline := time.Now().Add(grace)
	if s.runs != nil {
		s.runs.Stop()
	}
	var err error
	if s.entry != nil {
		err = s.entry.Stop(grace)
	}
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	for _, srv := range s.servers {
		if srv.Shutdown(ctx) != nil {
			err = errors.Join(err, srv.Close())
		}
	}
	s.serving.Wait()
	if up := s.cfg.Binder.Upstream(); up != nil {
		up.CloseIdle()
	}
	return err
}
