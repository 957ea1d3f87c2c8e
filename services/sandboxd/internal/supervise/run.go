package supervise

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/drive"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/entrypoint"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/jail"
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

func run(log *slog.Logger) error {
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
	reaper, err := entrypoint.NewReaper()
	if err != nil {
		return err
	}
	defer reaper.Stop()
	upstream, err := NewUpstream(first.Boot.Upstream)
	if err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	parent := newPipe(first.Boot.PodUID, control, upstream)
	sandbox, err := boot(first.Boot, parent, reaper, log)
	if err != nil {
		return err
	}
	sandbox.Serve(listener, sandbox.API(), 0)
	if err := control.Send(sandboxapi.Control{Type: sandboxapi.ControlBooted}); err != nil {
		return errors.Join(err, sandbox.Stop(0))
	}
	grace, cause := obey(control, parent)
	return errors.Join(cause, sandbox.Stop(grace))
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

// boot makes the sandbox that the parent asks for, with an agent that is started here.
func boot(boot *sandboxapi.Boot, parent *pipe, reaper *entrypoint.Reaper, log *slog.Logger) (*Sandbox, error) {
	relay, err := net.Listen("tcp", boot.RelayAddr)
	if err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	cfg := Config{
		PodUID: boot.PodUID, Isolation: boot.Isolation, Binder: parent, Relay: relay, SpoolDir: boot.SpoolDir, Log: log,
	}
	if boot.Agent != nil {
		if len(boot.Agent.Argv) == 0 {
			return nil, errors.Join(errors.New("boot: an agent without a command"), relay.Close())
		}
		cfg.Agent = started(boot, (&url.URL{Scheme: "http", Host: relay.Addr().String()}).String(), reaper, log)
	}
	return Start(cfg)
}

// started is an agent whose process is this one's child, in its jail.
func started(boot *sandboxapi.Boot, agentURL string, reaper *entrypoint.Reaper, log *slog.Logger) *Agent {
	process := boot.Agent
	a := &Agent{Adapter: process.Adapter, RunPath: process.RunPath, Serves: process.Serves}
	if a.Adapter == AdapterExec {
		a.Exec = drive.Exec{
			Command: func(env []string) *exec.Cmd {
				return command(boot, slices.Concat(process.Env, []string{sandboxapi.EnvAgentURL + "=" + agentURL}, env))
			},
			Reaper: reaper, Grace: drive.DefaultGrace, MaxEvent: drive.DefaultMaxEvent,
		}
		return a
	}
	a.Entry = func(asks Answers) Entrypoint {
		return entrypoint.Start(entrypoint.Config{
			Process:  *process,
			Host:     "127.0.0.1",
			AgentURL: agentURL,
			Command:  func(env []string) *exec.Cmd { return command(boot, env) },
			Answers:  asks,
			Reaper:   reaper,
			Log:      log,
		})
	}
	return a
}

// command puts one incarnation of the agent into its jail.
func command(boot *sandboxapi.Boot, env []string) *exec.Cmd {
	return jail.AgentCommand(jail.AgentSpec{
		Isolation:      boot.Isolation,
		Argv:           boot.Agent.Argv,
		Env:            env,
		Workspace:      boot.Workspace,
		MaxMemoryBytes: boot.Agent.MaxMemoryBytes,
		MaxProcs:       boot.Agent.MaxProcs,
		MaxFileBytes:   boot.Agent.MaxFileBytes,
	})
}

// order is what ends a sandbox.
type order struct {
	grace time.Duration
	err   error
}

// obey follows the parent until it says stop, or is gone.
func obey(control *sandboxapi.Channel, parent *pipe) (time.Duration, error) {
	terminate := make(chan os.Signal, 1)
	signal.Notify(terminate, unix.SIGTERM, unix.SIGINT)
	defer signal.Stop(terminate)
	orders := make(chan order, 1)
	go func() { orders <- follow(control, parent) }()
	select {
	case o := <-orders:
		return o.grace, o.err
	case <-terminate:
		return 0, nil
	}
}

// follow passes the parent's answers on, up to what ends the sandbox.
func follow(control *sandboxapi.Channel, parent *pipe) order {
	for {
		m, err := control.Receive()
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET):
			return order{err: errParentGone}
		case err != nil:
			return order{err: fmt.Errorf("control channel: %w", err)}
		}
		switch m.Type {
		case sandboxapi.ControlGranted:
			parent.Granted(m.Grant)
		case sandboxapi.ControlRefused:
			parent.Refused(m.Reason)
		case sandboxapi.ControlStop:
			return order{grace: time.Duration(m.GraceMillis) * time.Millisecond}
		case sandboxapi.ControlBoot, sandboxapi.ControlBooted, sandboxapi.ControlRedeem, sandboxapi.ControlRenew:
			return order{err: fmt.Errorf("control channel: %q out of place", m.Type)}
		}
	}
}
