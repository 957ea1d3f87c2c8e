package entrypoint

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"syscall"
	"time"
)

const (
	// watchEvery is how often an agent that isn't ours is looked after.
	watchEvery = 500 * time.Millisecond
	// gone is how it looks when it has died.
	gone = "closed its port"
)

// WatchConfig says what to watch. Log is required, and Addr or Answers.
type WatchConfig struct {
	// Addr is where the agent serves, "host:port"; empty for one that serves nothing.
	Addr string
	// ReadyPath is the GET path that answers 2xx when the agent is ready; empty means that
	// an accepted connection is enough.
	ReadyPath string
	// Answers waits until the agent is ready, in the place of Addr and ReadyPath; false
	// means that the context ended first.
	Answers func(context.Context) bool
	Log     *slog.Logger
}

// Watched is an entrypoint that others start and end: the container beside sandboxd's
// in a Pod. It is waited for and looked after, no more:
//
//	starting ──answers──▶ ready ──nobody listens on its port any more──▶ starting
//
// It never fails for good: that is for those to see who start it. One that serves
// nothing stays ready.
type Watched struct {
	*standing

	cfg    WatchConfig
	cancel context.CancelFunc
	done   chan struct{}
}

// Watch watches until Stop.
func Watch(cfg WatchConfig) *Watched {
	ctx, cancel := context.WithCancel(context.Background())
	w := &Watched{standing: newStanding(), cfg: cfg, cancel: cancel, done: make(chan struct{})}
	go w.keep(ctx)
	return w
}

// Stop ends the watching; the agent goes on. It may be called again.
func (w *Watched) Stop(time.Duration) error {
	w.stop()
	w.cancel()
	<-w.done
	return nil
}

func (w *Watched) keep(ctx context.Context) {
	defer close(w.done)
	answers := w.cfg.Answers
	if answers == nil {
		answers = func(ctx context.Context) bool { return probe(ctx, w.cfg.Addr, w.cfg.ReadyPath) }
	}
	for answers(ctx) {
		w.cfg.Log.Info("the agent answers", "addr", w.cfg.Addr)
		ended := make(chan struct{})
		w.answer(&Incarnation{
			URL: &url.URL{Scheme: "http", Host: w.cfg.Addr}, Done: ended, Exit: func() string { return gone },
		})
		if !w.outlive(ctx) {
			return
		}
		w.cfg.Log.Warn("the agent is gone", "addr", w.cfg.Addr)
		w.end(gone)
		w.set(func(s *Status) { s.Restarts++ })
		close(ended)
	}
}

// outlive waits for the end of the agent; false means that ctx ended first. A port
// that refuses has no listener. An agent that is busy answers nothing but still has one,
// so nothing more is asked of it.
func (w *Watched) outlive(ctx context.Context) bool {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
		if w.cfg.Addr == "" {
			continue
		}
		dialer := net.Dialer{Timeout: probeTimeout}
		conn, err := dialer.DialContext(ctx, "tcp", w.cfg.Addr)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return true
		}
		if err == nil {
			_ = conn.Close() // nothing was said on it
		}
	}
}
