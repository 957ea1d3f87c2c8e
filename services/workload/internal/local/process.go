package local

import (
	"bufio"
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
	"syscall"
	"time"

	"golang.org/x/sys/unix"

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
	// exited is closed once the process has been reaped; then cause is set.
	exited chan struct{}
	cause  string
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
		p.cause = exitCause(err, p.stderr.last())
		p.cancel()
		// Unblocks serveControl; a second close elsewhere is harmless.
		_ = p.control.Close()
		p.readers.Wait()
		close(p.exited)
	}()
}

// exitCause words the end of a sandboxd.
func exitCause(err error, lastLine string) string {
	cause := "sandboxd ended"
	if err != nil {
		cause = "sandboxd ended: " + err.Error()
	}
	if lastLine != "" {
		cause += " (" + lastLine + ")"
	}
	return cause
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
			return fmt.Errorf("%w: %s", driver.ErrStart, p.cause)
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", driver.ErrStart, err)
		}
	}
	select {
	case <-p.booted:
		return nil
	case <-p.exited:
		return fmt.Errorf("%w: %s", driver.ErrStart, p.cause)
	case <-ctx.Done():
		return fmt.Errorf("%w: sandboxd does not answer: %w", driver.ErrStart, ctx.Err())
	}
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

// tail is the stderr of a sandboxd: logged, and its last line kept as a cause.
type tail struct {
	log *slog.Logger
	mu  sync.Mutex
	buf []byte
	end string
}

const maxLogLine = 4 << 10

// Write takes what sandboxd says, in any pieces.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	for {
		line, rest, ok := strings.Cut(string(t.buf), "\n")
		if !ok && len(t.buf) < maxLogLine {
			return len(b), nil
		}
		t.buf = []byte(rest)
		if line = strings.TrimSpace(line); line != "" {
			t.end = line
			t.log.Info("sandboxd says", "line", line)
		}
	}
}

// last returns the last line that was said.
func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if rest := strings.TrimSpace(string(t.buf)); rest != "" {
		return rest
	}
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
