package entrypoint

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
)

// neighbour serves as the container beside would, until stopped; seen gets each connection.
func neighbour(t *testing.T, addr string, h http.Handler, seen chan<- struct{}) (at string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h, ConnState: func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			select {
			case seen <- struct{}{}:
			default:
			}
		}
	}}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(l) }()
	stop = func() { _ = server.Close(); <-ended }
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

func watch(t *testing.T, cfg WatchConfig) *Watched {
	t.Helper()
	cfg.Log = slog.New(slog.DiscardHandler)
	w := Watch(cfg)
	t.Cleanup(func() {
		for range 2 {
			if err := w.Stop(time.Second); err != nil {
				t.Error(err)
			}
		}
	})
	return w
}

// within bounds a wait of a test.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// TestWatched: an agent that others start is waited for, seen to die, and waited for again.
func TestWatched(t *testing.T) {
	var healthy atomic.Bool
	answers := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !healthy.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	seen := make(chan struct{})
	addr, stop := neighbour(t, "127.0.0.1:0", answers, seen)
	w := watch(t, WatchConfig{Addr: addr, ReadyPath: "/health"})
	hasty, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := w.WaitReady(hasty); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("before it answers: %v", err)
	}
	healthy.Store(true)
	first, err := w.WaitReady(within(t))
	if err != nil || first.URL.Host != addr {
		t.Fatalf("%+v, %v", first, err)
	}
	healthy.Store(false) // busy, but there
	for range 2 {        // the second look comes when the first has had its say
		select {
		case <-seen:
		case <-within(t).Done():
			t.Fatal("nobody looks after it")
		}
	}
	if s, _ := w.Status(); s.State != sandboxapi.EntrypointReady || s.Restarts != 0 {
		t.Errorf("while it lives: %+v", s)
	}
	stop()
	select {
	case <-first.Done:
	case <-within(t).Done():
		t.Fatal("its end wasn't noticed")
	}
	if s, _ := w.Status(); s.State != sandboxapi.EntrypointStarting || s.Restarts != 1 || s.Reason != first.Exit() {
		t.Errorf("after its end: %+v", s)
	}
	healthy.Store(true)
	neighbour(t, addr, answers, nil)
	second, err := w.WaitReady(within(t))
	if err != nil || second == first {
		t.Errorf("when it is back: %+v, %v", second, err)
	}
}

// TestWatchedServesNothing: one that has no port is ready once it says so.
func TestWatchedServesNothing(t *testing.T) {
	says := make(chan struct{})
	w := watch(t, WatchConfig{Answers: func(ctx context.Context) bool {
		select {
		case <-says:
			return true
		case <-ctx.Done():
			return false
		}
	}})
	if s, _ := w.Status(); s.State != sandboxapi.EntrypointStarting {
		t.Errorf("at first: %+v", s)
	}
	close(says)
	inc, err := w.WaitReady(within(t))
	if err != nil || inc.URL.Host != "" {
		t.Fatalf("%+v, %v", inc, err)
	}
	if err := w.Stop(0); err != nil {
		t.Fatal(err)
	}
	if _, err := w.WaitReady(t.Context()); !errors.Is(err, ErrStopped) {
		t.Errorf("after the end: %v", err)
	}
}
