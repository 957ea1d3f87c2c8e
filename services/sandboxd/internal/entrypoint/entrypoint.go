// Package entrypoint keeps the agent's process running: it starts it, notices
// when it answers, starts it again when it dies, and ends it with everything
// that it left behind. One that another container runs it only waits for and looks
// after ([Watch]).
//
//	starting ──answers──▶ ready
//	   ▲  │                 │
//	   │  └──── dies ◀──────┘
//	   └─ backoff ─┤
//	               └─ five times without an answer, or not startable ─▶ failed
package entrypoint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
)

const (
	// maxFruitless is how often the process may die in a row without an answer.
	maxFruitless = 5
	// The pause before a restart doubles from the first to the last of these.
	firstPause, lastPause = 100 * time.Millisecond, 5 * time.Second
	// Readiness is asked for often at first: a warm path is measured in
	// milliseconds; and ever less after that.
	firstProbe, lastProbe = 2 * time.Millisecond, 200 * time.Millisecond
	// probeTimeout bounds one question.
	probeTimeout = 2 * time.Second
)

// ErrFailed says that the entrypoint has failed for good.
var ErrFailed = errors.New("the entrypoint failed")

// ErrStopped says that the entrypoint was stopped.
var ErrStopped = errors.New("the entrypoint was stopped")

// Config says what to run. All fields but Answers are required.
type Config struct {
	// Process is the runtime's part; Argv must not be empty.
	Process sandboxapi.AgentProcess
	// Host is the loopback address that the process serves on.
	Host string
	// AgentURL goes to the process as [sandboxapi.EnvAgentURL].
	AgentURL string
	// Command makes the command of one incarnation, with the environment given.
	// It must lead a process group; what it prints is read here.
	Command func(env []string) *exec.Cmd
	// Answers waits until the process is ready; false means that the context ended
	// first. Nil asks the port that the process has to serve.
	Answers func(context.Context) bool
	// Reaper starts and collects the process.
	Reaper *Reaper
	// Log tells of starts and ends.
	Log *slog.Logger
}

// Entrypoint is the agent's process through all its restarts.
type Entrypoint struct {
	*standing

	cfg    Config
	cancel context.CancelFunc
	done   chan struct{}
	proc   *Proc // under the standing's mu
}

// Start starts the process and keeps it running until Stop.
func Start(cfg Config) *Entrypoint {
	ctx, cancel := context.WithCancel(context.Background())
	e := &Entrypoint{standing: newStanding(), cfg: cfg, cancel: cancel, done: make(chan struct{})}
	go e.keep(ctx)
	return e
}

// Stop asks the process to end, kills it when grace is over, and returns when
// nothing of it is left. It may be called again.
func (e *Entrypoint) Stop(grace time.Duration) error {
	e.mu.Lock()
	e.stopped = true
	proc := e.proc
	e.broadcast()
	e.mu.Unlock()
	e.cancel()
	if proc != nil {
		if err := terminate(proc, grace); err != nil {
			return err
		}
	}
	<-e.done
	return e.cfg.Reaper.KillOrphans()
}

// terminate asks the process to end, and kills it when grace is over.
func terminate(proc *Proc, grace time.Duration) error {
	if err := proc.Signal(unix.SIGTERM); err != nil {
		return err
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-proc.Done():
		return nil
	case <-timer.C:
	}
	if err := proc.Signal(unix.SIGKILL); err != nil {
		return err
	}
	<-proc.Done()
	return nil
}

// keep runs one incarnation after the other.
func (e *Entrypoint) keep(ctx context.Context) {
	defer close(e.done)
	// The kernel sends the parent-death signal when the starting *thread* ends,
	// so this goroutine keeps one of its own for as long as the process may live.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fruitless, pause := 0, firstPause
	for {
		answered, err := e.live(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			e.fail(err.Error())
			return
		case answered:
			fruitless, pause = 0, firstPause
		default:
			fruitless++
		}
		if fruitless >= maxFruitless {
			status, _ := e.Status()
			e.fail(fmt.Sprintf("it never answered in %d starts; it last %s", fruitless, status.Reason))
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		pause = min(2*pause, lastPause)
		e.set(func(s *Status) { s.Restarts++ })
	}
}

// live is one incarnation from start to end. An error means that it can't be started.
func (e *Entrypoint) live(ctx context.Context) (answered bool, err error) {
	port, err := e.port()
	if err != nil {
		return false, err
	}
	cmd := e.cfg.Command(slices.Concat(e.cfg.Process.Env, []string{
		sandboxapi.EnvAgentURL + "=" + e.cfg.AgentURL,
		sandboxapi.EnvPort + "=" + strconv.Itoa(port),
	}))
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	said, err := listen(cmd)
	if err != nil {
		return false, err
	}
	proc, ok, err := e.launch(cmd)
	said.started()
	if !ok || err != nil {
		said.finish()
		return false, err
	}
	e.cfg.Log.Info("entrypoint started", "port", port)

	probing, stop := context.WithCancel(ctx)
	ready := make(chan bool, 1)
	addr := net.JoinHostPort(e.cfg.Host, strconv.Itoa(port))
	go func() {
		ok := e.answers(probing, addr)
		if ok {
			e.answer(&Incarnation{
				URL: &url.URL{Scheme: "http", Host: addr}, Done: proc.Done(), Exit: proc.Exit,
			})
		}
		ready <- ok
	}()
	<-proc.Done()
	stop()
	answered = <-ready
	e.cfg.Log.Info("entrypoint ended", "how", proc.Exit())
	e.mu.Lock()
	e.proc = nil
	e.mu.Unlock()
	e.end(proc.Exit())
	err = e.cfg.Reaper.KillOrphans()
	end := said.finish() // with the orphans the last writers are gone
	e.set(func(s *Status) { s.Said = end })
	return answered, err
}

// launch starts the command unless Stop came first.
func (e *Entrypoint) launch(cmd *exec.Cmd) (*Proc, bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped {
		return nil, false, nil
	}
	proc, err := e.cfg.Reaper.Start(cmd)
	if err != nil {
		return nil, false, fmt.Errorf("start %q: %w", e.cfg.Process.Argv[0], err)
	}
	e.proc = proc
	return proc, true, nil
}

// port is the configured one, or one that is free at this moment.
func (e *Entrypoint) port() (int, error) {
	if e.cfg.Process.Port != 0 {
		return e.cfg.Process.Port, nil
	}
	l, err := net.Listen("tcp", net.JoinHostPort(e.cfg.Host, "0"))
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 0, errors.Join(fmt.Errorf("find a free port: its address is a %T", l.Addr()), l.Close())
	}
	return addr.Port, l.Close()
}

func (e *Entrypoint) fail(reason string) {
	e.cfg.Log.Error("entrypoint failed", "reason", reason)
	e.set(func(s *Status) { s.State, s.Reason = sandboxapi.EntrypointFailed, reason })
}

// answers waits until the process is ready.
func (e *Entrypoint) answers(ctx context.Context, addr string) bool {
	if e.cfg.Answers != nil {
		return e.cfg.Answers(ctx)
	}
	return probe(ctx, addr, e.cfg.Process.ReadyPath)
}

// probe asks until the process answers; false means that ctx ended first.
func probe(ctx context.Context, addr, path string) bool {
	client := &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
	for pause := firstProbe; ; pause = min(pause*3/2, lastProbe) {
		if ask(ctx, client, addr, path) {
			return true
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return false
		}
	}
}

func ask(ctx context.Context, client *http.Client, addr, path string) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if path == "" {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	return resp.Body.Close() == nil && resp.StatusCode/100 == 2
}
