package supervise

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
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/drive"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/entrypoint"
)

const (
	// headerTimeout bounds how long a client may take to say what it wants.
	headerTimeout = 10 * time.Second
)

// errParentGone is the end of the control channel.
var errParentGone = errors.New("the parent is gone")

// Run is the main of `sandboxd supervise`. It takes the two descriptors of
// [sandboxapi.ControlFD] and [sandboxapi.ListenFD], and returns the exit code:
// 0 after an orderly stop, 1 otherwise. Either way nothing of the sandbox is left.
func Run() int {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := run(log); err != nil {
		log.Error("sandboxd ends", "err", err)
		return 1
	}
	return 0
}

func run(log *slog.Logger) (err error) {
	conn, listener, err := inherited()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // its end is what it had to say
	control := sandboxapi.NewChannel(conn)
	first, err := control.Receive()
	if err != nil {
		return fmt.Errorf("receive boot: %w", err)
	}
	if first.Type != sandboxapi.ControlBoot {
		return fmt.Errorf("receive boot: got %q first", first.Type)
	}
	sandbox, err := start(first.Boot, control, listener, log)
	if err != nil {
		return err
	}
	grace, cause := sandbox.obey(control)
	return errors.Join(cause, sandbox.stop(grace))
}

// inherited takes over the parent's two descriptors. They come without
// close-on-exec, and the agent must not have them.
func inherited() (net.Conn, net.Listener, error) {
	unix.CloseOnExec(sandboxapi.ControlFD)
	unix.CloseOnExec(sandboxapi.ListenFD)
	controlFile := os.NewFile(sandboxapi.ControlFD, "control")
	listenFile := os.NewFile(sandboxapi.ListenFD, "listen")
	conn, err := net.FileConn(controlFile)
	if err != nil {
		return nil, nil, fmt.Errorf("control channel: %w", err)
	}
	listener, err := net.FileListener(listenFile)
	if err != nil {
		return nil, nil, fmt.Errorf("listening socket: %w", err)
	}
	return conn, listener, errors.Join(controlFile.Close(), listenFile.Close())
}

// sandbox is all that runs in one.
type sandbox struct {
	binding *binding
	reaper  *entrypoint.Reaper
	entry   *entrypoint.Entrypoint
	runs    *drive.Driver
	servers []*http.Server
	idle    func()
	serving sync.WaitGroup
	log     *slog.Logger
}

// start brings everything up, the way in last.
func start(boot *sandboxapi.Boot, control *sandboxapi.Channel, listener net.Listener, log *slog.Logger) (*sandbox, error) {
	s := &sandbox{binding: newBinding(boot.PodUID, control, log), log: log}
	relay, idle, err := newRelay(boot.Upstream, s.binding.Grant)
	if err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	s.idle = idle
	relayListener, err := net.Listen("tcp", boot.RelayAddr)
	if err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	if s.reaper, err = entrypoint.NewReaper(); err != nil {
		return nil, err
	}
	inside := http.Handler(relay)
	if boot.Agent != nil {
		push, err := s.startAgent(boot, (&url.URL{Scheme: "http", Host: relayListener.Addr().String()}).String())
		if err != nil {
			return nil, err
		}
		if push != nil {
			inside = newInbox(push, relay)
		}
	}
	a := &api{boot: boot, binding: s.binding, entry: s.entry, runs: s.runs, log: log}
	s.serve(relayListener, inside)
	s.serve(listener, a.handler())
	if err := control.Send(sandboxapi.Control{Type: sandboxapi.ControlBooted}); err != nil {
		return nil, errors.Join(err, s.stop(0))
	}
	return s, nil
}

func (s *sandbox) serve(l net.Listener, h http.Handler) {
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	s.servers = append(s.servers, srv)
	s.serving.Go(func() {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("server ended", "addr", l.Addr().String(), "err", err)
		}
	})
}

// obey follows the parent until it says stop, or is gone.
func (s *sandbox) obey(control *sandboxapi.Channel) (time.Duration, error) {
	terminate := make(chan os.Signal, 1)
	signal.Notify(terminate, unix.SIGTERM, unix.SIGINT)
	defer signal.Stop(terminate)
	type order struct {
		grace time.Duration
		err   error
	}
	orders := make(chan order, 1)
	go func() {
		for {
			m, err := control.Receive()
			switch {
			case errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET):
				orders <- order{err: errParentGone}
				return
			case err != nil:
				orders <- order{err: fmt.Errorf("control channel: %w", err)}
				return
			}
			switch m.Type {
			case sandboxapi.ControlGranted:
				s.binding.Granted(m.Grant)
			case sandboxapi.ControlRefused:
				s.binding.Refused(m.Reason)
			case sandboxapi.ControlStop:
				orders <- order{grace: time.Duration(m.GraceMillis) * time.Millisecond}
				return
			case sandboxapi.ControlBoot, sandboxapi.ControlBooted, sandboxapi.ControlRedeem, sandboxapi.ControlRenew:
				orders <- order{err: fmt.Errorf("control channel: %q out of place", m.Type)}
				return
			}
		}
	}()
	select {
	case o := <-orders:
		return o.grace, o.err
	case <-terminate:
		return 0, nil
	}
}

// stop ends the run, then the agent, then the way in, so that readers of the
// spool still see the run's end.
func (s *sandbox) stop(grace time.Duration) error {
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
	s.reaper.Stop()
	s.idle()
	return err
}
