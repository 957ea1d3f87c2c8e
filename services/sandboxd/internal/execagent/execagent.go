// Package execagent is `sandboxd exec-agent -- argv…`, the agent's container of a Pod for
// the adapter exec: there it serves AG-UI on the Pod's loopback, and runs the program for
// each message, by the same rules as sandboxd does on a host (package drive's Exec).
//
//	sandboxd sidecar ── POST /run, RunAgentInput ──▶ exec-agent ── stdin ──▶ program
//	                 ◀── server-sent events ──────              ◀── a line an event ──
//
// One program runs at a time. Closing the request ends it; nothing that it started
// outlives it, and its workspace does.
package execagent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/drive"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/entrypoint"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/supervise"
)

const (
	exitUsage = 64
	// maxInput bounds a RunAgentInput, as sandboxd does.
	maxInput = 64 << 20
	// headerTimeout bounds how long the asker may take to say what it wants.
	headerTimeout = 10 * time.Second
	// turnWait is how long a run waits for the program before it, which may still be ending.
	turnWait = drive.DefaultGrace + 3*time.Second
	// stopGrace is left to the last answers after the program was made to end.
	stopGrace = time.Second
)

// Run is the main. It serves until SIGTERM, and returns the exit code: 0 after an orderly
// stop, 1 otherwise, 64 for arguments that make no sense.
func Run(args []string) int {
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	port := os.Getenv(sandboxapi.EnvPort)
	if port == "" {
		port = strconv.Itoa(sandboxapi.DefaultExecPort)
	}
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "usage: sandboxd exec-agent -- PROGRAM [ARGUMENT …]")
		return exitUsage
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := run(args, net.JoinHostPort(loopback(os.Getenv(sandboxapi.EnvAgentURL)), port), log); err != nil {
		log.Error("exec-agent ends", "err", err)
		return 1
	}
	return 0
}

// loopback is the host of the relay, where sandboxd looks for its agent too.
func loopback(relay string) string {
	u, err := url.Parse(relay)
	if err != nil || u.Hostname() == "" {
		return "127.0.0.1"
	}
	return u.Hostname()
}

func run(argv []string, addr string, log *slog.Logger) error {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	reaper, err := entrypoint.NewReaper()
	if err != nil {
		return err
	}
	defer reaper.Stop()
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	a := &agent{turn: make(chan struct{}, 1), program: drive.Exec{
		Command: func(env []string) *exec.Cmd {
			cmd := exec.Command(argv[0], argv[1:]...)
			cmd.Env = slices.Concat(os.Environ(), env)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			return cmd
		},
		Reaper: reaper, Grace: drive.DefaultGrace, MaxEvent: drive.DefaultMaxEvent,
	}}
	server := &http.Server{
		Handler: a.handler(), ReadHeaderTimeout: headerTimeout, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx }, // its end is every program's
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	bounded, cancel := context.WithTimeout(context.Background(), drive.DefaultGrace+stopGrace)
	defer cancel()
	if server.Shutdown(bounded) != nil {
		err = server.Close()
	}
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// agent answers on the container's port.
type agent struct {
	turn    chan struct{} // held by the one run
	program drive.Agent
}

func (a *agent) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+supervise.DefaultRunPath, a.postRun)
	return mux
}

func (a *agent) postRun(w http.ResponseWriter, r *http.Request) {
	input, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxInput))
	if err != nil {
		status := http.StatusBadRequest
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			status = http.StatusRequestEntityTooLarge
		}
		http.Error(w, err.Error(), status)
		return
	}
	late := time.NewTimer(turnWait)
	defer late.Stop()
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-late.C:
		http.Error(w, "another run is open", http.StatusConflict)
		return
	case <-r.Context().Done():
		return
	}
	say := &stream{w: w, flush: http.NewResponseController(w)}
	err = drive.Once(r.Context(), a.program, input, drive.DefaultMaxEvent, drive.DefaultMaxSpool, say.event)
	if errors.Is(err, drive.ErrInvalid) {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
	}
	// Any other error is that of a connection at whose end nobody is any more.
}

// stream writes server-sent events.
type stream struct {
	w     http.ResponseWriter
	flush *http.ResponseController
	begun bool
}

func (s *stream) event(e []byte) error {
	if !s.begun {
		s.w.Header().Set("Content-Type", "text/event-stream")
		s.begun = true
	}
	// An event is one line: it came as one, or was encoded here.
	if _, err := fmt.Fprintf(s.w, "data: %s\n\n", e); err != nil {
		return err
	}
	return s.flush.Flush()
}
