package local

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// process is one incarnation: a sandboxd and what it started.
type process struct {
	podUID  string
	id      processID
	groups  []string
	socket  string
	plain   bool // without isolation
	log     *slog.Logger
	granter driver.Granter

	cmd     *exec.Cmd
	stderr  *tail
	control *net.UnixConn
	writeMu sync.Mutex // of control
	booted  chan struct{}
	// exited is closed once the process has been reaped; then cause is set: our
	// words and how it exited, as it is kept in the log for good.
	exited chan struct{}
	cause  string
	// verdict is why the driver itself ended the process, if it did.
	verdict atomic.Pointer[string]
	disk    diskAccount
	// ctx ends with the process; redemptions run under it.
	ctx    context.Context
	cancel context.CancelFunc
	// readers counts the goroutines that serve the process.
	readers sync.WaitGroup
}

// channels makes the two descriptors that sandboxd inherits and our end of the
// control channel.
func channels(socket string) (control *net.UnixConn, inherited []*os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("control channel: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control")
	defer ours.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("control channel: %w", err), theirs.Close())
	}
	control, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, nil, errors.Join(fmt.Errorf("control channel: a %T", conn), conn.Close(), theirs.Close())
	}
	listener, err := listenSocket(socket)
	if err != nil {
		return nil, nil, errors.Join(err, control.Close(), theirs.Close())
	}
	return control, []*os.File{theirs, listener}, nil
}

// listenSocket makes the endpoint, for this user only.
func listenSocket(path string) (*os.File, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("endpoint: %w", err)
	}
	l.SetUnlinkOnClose(false)
	defer l.Close()
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, fmt.Errorf("endpoint: %w", err)
	}
	f, err := l.File()
	if err != nil {
		return nil, fmt.Errorf("endpoint: %w", err)
	}
	return f, nil
}

// watch serves the started process: its control channel and its end.
func (p *process) watch() {
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.readers.Go(p.serveControl)
	go func() {
		err := p.cmd.Wait()
		p.stderr.flush()
		p.cause = exitCause(err)
		if verdict := p.verdict.Load(); verdict != nil {
			p.cause = *verdict
		}
		p.cancel()
		// Unblocks serveControl; a second close elsewhere is harmless.
		_ = p.control.Close()
		p.readers.Wait()
		close(p.exited)
	}()
}

// exitCause words the end of a sandboxd.
func exitCause(err error) string {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return "sandboxd ended: " + exit.ProcessState.String()
	}
	return "sandboxd ended" // by itself, or its stderr broke
}

// maxControlLine bounds one message of the control channel: a bind or a config.
const maxControlLine = 1 << 20

// serveControl answers sandboxd until the channel ends.
func (p *process) serveControl() {
	scan := bufio.NewScanner(p.control)
	scan.Buffer(nil, maxControlLine)
	booted := false
	for scan.Scan() {
		var m sandboxapi.Control
		if err := json.Unmarshal(scan.Bytes(), &m); err != nil {
			p.log.Warn("sandboxd sent no control message", "err", err)
			continue
		}
		switch m.Type {
		case sandboxapi.ControlBooted:
			if !booted {
				booted = true
				close(p.booted)
			}
		case sandboxapi.ControlRedeem:
			p.readers.Go(func() { p.answer(p.granter.Redeem(p.ctx, p.podUID, m.Bind)) })
		case sandboxapi.ControlRenew:
			p.readers.Go(func() { p.answer(p.granter.Renew(p.ctx, p.podUID)) })
		case sandboxapi.ControlBoot, sandboxapi.ControlGranted, sandboxapi.ControlRefused, sandboxapi.ControlStop:
			p.log.Warn("sandboxd sent a message that is the parent's", "type", m.Type)
		default:
			p.log.Warn("sandboxd sent an unknown control message", "type", m.Type)
		}
	}
	if err := scan.Err(); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, unix.ECONNRESET) {
		p.log.Warn("control channel broke", "err", err)
	}
}

// answer passes the granter's word on.
func (p *process) answer(grant sandboxapi.Grant, err error) {
	m := sandboxapi.Control{Type: sandboxapi.ControlGranted, Grant: &grant}
	if err != nil {
		m = sandboxapi.Control{Type: sandboxapi.ControlRefused, Reason: err.Error()}
	}
	if err := p.send(m); err != nil && p.ctx.Err() == nil {
		p.log.Warn("can't answer sandboxd", "err", err)
	}
}

// send writes one control message.
func (p *process) send(m sandboxapi.Control) error {
	raw, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("control message: %w", err)
	}
	p.writeMu.Lock()
	defer p.writeMu.Unlock()
	if err := p.control.SetWriteDeadline(time.Now().Add(killWait)); err != nil {
		return fmt.Errorf("control channel: %w", err)
	}
	if _, err := p.control.Write(append(raw, '\n')); err != nil {
		return fmt.Errorf("control channel: %w", err)
	}
	return nil
}

// boot tells sandboxd what it is and waits until it serves.
func (p *process) boot(ctx context.Context, b sandboxapi.Boot) error {
	if err := p.send(sandboxapi.Control{Type: sandboxapi.ControlBoot, Boot: &b}); err != nil {
		select {
		case <-p.exited: // the better reason
			return p.startError()
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", driver.ErrStart, err)
		}
	}
	select {
	case <-p.booted:
		return nil
	case <-p.exited:
		return p.startError()
	case <-ctx.Done():
		return fmt.Errorf("%w: sandboxd does not answer: %w", driver.ErrStart, ctx.Err())
	}
}

// startError says why the process ended before it served, as it said itself.
func (p *process) startError() error {
	if last := p.stderr.last(); last != "" {
		return fmt.Errorf("%w: %s (%s)", driver.ErrStart, p.cause, last)
	}
	return fmt.Errorf("%w: %s", driver.ErrStart, p.cause)
}

// stop ends the process, giving the agent grace to end by itself, and removes
// what belonged to the incarnation. It may be repeated.
func (p *process) stop(grace time.Duration) error {
	if grace > 0 && p.send(sandboxapi.Control{Type: sandboxapi.ControlStop, GraceMillis: grace.Milliseconds()}) == nil {
		timer := time.NewTimer(grace + time.Second)
		select {
		case <-p.exited:
		case <-timer.C:
		}
		timer.Stop()
	}
	select {
	case <-p.exited:
	default:
		if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("kill sandboxd: %w", err)
		}
		<-p.exited
	}
	return p.cleanUp()
}

// condemn ends a process that harms others; cause is why, for its loss.
func (p *process) condemn(cause string) error {
	p.verdict.Store(&cause)
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill sandboxd: %w", err)
	}
	return nil
}

// cleanUp removes what an ended incarnation leaves outside its directory.
func (p *process) cleanUp() error {
	var errs []error
	if p.plain {
		_, err := killSession(p.id, p.id.Boot)
		errs = append(errs, err)
	}
	errs = append(errs, removeGroups(p.groups))
	if err := os.Remove(p.socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// tail is the stderr of a sandboxd, which the agent's output never reaches:
// logged line by line, each cut at maxLogLine bytes, no faster than logRate.
type tail struct {
	log   *slog.Logger
	limit *rate.Limiter

	mu      sync.Mutex
	line    []byte // the open one, as far as it is kept
	end     string // the last whole one
	dropped int    // since the last that was logged
}

const (
	maxLogLine = 4 << 10
	// A sandboxd that starts its agent again and again says some ten lines a
	// second at first, a panic some hundred at once.
	logRate, logBurst = 10, 500
)

func newTail(log *slog.Logger) *tail {
	return &tail{log: log, limit: rate.NewLimiter(logRate, logBurst)}
}

// Write takes what sandboxd says, in any pieces.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for rest := b; len(rest) > 0; {
		piece, after, whole := bytes.Cut(rest, []byte("\n"))
		t.line = append(t.line, piece[:min(len(piece), maxLogLine-len(t.line))]...)
		if whole {
			t.endLine()
		}
		rest = after
	}
	return len(b), nil
}

// flush logs a last line that was never ended.
func (t *tail) flush() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endLine()
}

func (t *tail) endLine() {
	line := strings.TrimSpace(string(t.line))
	t.line = t.line[:0]
	if line == "" {
		return
	}
	t.end = line
	if !t.limit.Allow() {
		t.dropped++
		return
	}
	if t.dropped > 0 {
		t.log.Warn("sandboxd said too much", "dropped", t.dropped)
		t.dropped = 0
	}
	t.log.Info("sandboxd says", "line", line)
}

// last returns the last line that was said.
func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.end
}

// runtimeDir returns a directory for sockets whose paths fit into a socket
// address (108 bytes): below the data directory where that is short enough,
// else a private one named after it.
func runtimeDir(root string) (string, error) {
	const longest = 108 - 1 - len("/0123456789abcdef.sock")
	dir := filepath.Join(root, "run")
	if len(dir) > longest {
		parent := "/run"
		if os.Getuid() != 0 {
			parent = os.Getenv("XDG_RUNTIME_DIR")
		}
		if parent == "" || !dirExists(parent) {
			parent = "/tmp"
		}
		dir = filepath.Join(parent, fmt.Sprintf("holdfast-%d-%s", os.Getuid(), shortHash(root)))
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("runtime directory: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", fmt.Errorf("runtime directory: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(st.Uid) != os.Getuid() || info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("runtime directory: %s is not a private directory of this user", dir)
	}
	return dir, nil
}
