// Package ops is what a process says about itself to those who run it, apart from
// what it serves to anybody else: [Listen] answers /healthz, /readyz and /metrics on
// a listener of its own, [Profiles] Go's profiles on yet another.
//
// Neither asks who is there: they belong on loopback or on a network of operators.
// Profiles are apart because they show what is in memory, which metrics never do.
package ops

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// stopWithin bounds the end of a scrape under way.
const stopWithin = time.Second

// Config is what a process says.
type Config struct {
	// Metrics are answered at /metrics.
	Metrics prometheus.Gatherer
	// Ready says why the process can't do its work; nil while it can. Its words are
	// for operators.
	Ready  func(ctx context.Context) error
	Logger *slog.Logger
}

// Listen begins to answer at address (host:port), until ctx ends. An address that
// can't be had is an error.
func Listen(ctx context.Context, address string, cfg Config) (*Server, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := cfg.Ready(r.Context()); err != nil {
			answer(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		answer(w, http.StatusOK, "ready")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(cfg.Metrics, promhttp.HandlerOpts{}))
	return serve(ctx, address, mux, cfg.Logger)
}

// Profiles begins to answer net/http/pprof's pages at /debug/pprof/, until ctx ends.
func Profiles(ctx context.Context, address string, logger *slog.Logger) (*Server, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return serve(ctx, address, mux, logger)
}

// Server is a listener that answers.
type Server struct {
	// Addr is where it listens, with the port that was chosen for 0.
	Addr string

	done chan struct{}
}

// Wait returns when the server has ended, after ctx has.
func (s *Server) Wait() { <-s.done }

func serve(ctx context.Context, address string, handler http.Handler, logger *slog.Logger) (*Server, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for operators: %w", err)
	}
	s := &Server{Addr: l.Addr().String(), done: make(chan struct{})}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			logger.Error("operators' listener failed", "address", s.Addr, "error", err)
		}
	}()
	go func() {
		defer close(s.done)
		<-ctx.Done()
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
		defer cancel()
		if server.Shutdown(stop) != nil {
			_ = server.Close() // a profile that is being taken is cut
		}
	}()
	return s, nil
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // the probe may be gone; there is nobody left to tell
}
