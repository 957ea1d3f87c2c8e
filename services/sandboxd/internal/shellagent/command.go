package shellagent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

const (
	// chunkBytes and chunkTime bound what is collected before it is shown.
	chunkBytes = 16 << 10
	chunkTime  = 15 * time.Millisecond
	// tailBytes is how much of the end of the output goes into the result.
	tailBytes = 32 << 10
	// shownBytes is how much of one command's output is streamed; it keeps a
	// command that never stops talking from ending its whole run.
	shownBytes = 4 << 20
	// leftoverTime is left for output of processes that escaped their group.
	leftoverTime = 200 * time.Millisecond
	// maxEnvBytes bounds the exported variables that are kept.
	maxEnvBytes = 16 << 10
)

// script runs a line and then tells on descriptor 3 where it ended, and with
// what environment, also when the line calls exit.
const script = `trap '{ pwd; env -0; } >&3 2>/dev/null' EXIT
eval "$1"`

// command is one line in its surroundings.
type command struct {
	shell string
	line  string
	dir   string
	env   []string // "K=V"
}

// finished is how a command ended.
type finished struct {
	exit      int
	tail      string
	truncated bool
	// dir and env are the surroundings that it left; env is nil when unknown.
	dir string
	env map[string]string
}

// run executes the command and says its output as it comes, as valid UTF-8. A
// call ends with all that it started: the process group is killed after the
// shell's end, and before it when ctx ends.
func (c command) run(ctx context.Context, say func(string)) (finished, error) {
	surroundings, err := memoryFile()
	if err != nil {
		return finished{}, err
	}
	defer func() { _ = surroundings.Close() }() // nothing was promised to be kept
	r, w, err := os.Pipe()
	if err != nil {
		return finished{}, fmt.Errorf("pipe: %w", err)
	}
	out := &outlet{r: r}
	defer func() { _ = r.Close() }()

	cmd := exec.CommandContext(ctx, c.shell, "-c", script, "sh", c.line)
	cmd.Dir, cmd.Env = c.dir, c.env
	cmd.Stdout, cmd.Stderr = w, w
	cmd.ExtraFiles = []*os.File{surroundings}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

	started, exited := make(chan error, 1), make(chan error, 1)
	go func() {
		// The parent-death signal belongs to the thread that starts the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		_ = w.Close() // the process has its own copy; ours would hide its end
		started <- err
		if err != nil {
			return
		}
		err = cmd.Wait()
		// The group may be empty already.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		out.finish(time.Now().Add(leftoverTime))
		exited <- err
	}()
	if err := <-started; err != nil {
		return finished{}, fmt.Errorf("start %s: %w", c.shell, err)
	}
	f := finished{}
	f.tail, f.truncated = out.pump(say)
	var exit *exec.ExitError
	if err := <-exited; err != nil && !errors.As(err, &exit) {
		return finished{}, fmt.Errorf("wait for %s: %w", c.shell, err)
	}
	f.exit = exitCode(cmd.ProcessState)
	f.dir, f.env = readSurroundings(surroundings, c.env)
	return f, nil
}

// exitCode follows the shells: 128 and the signal's number for a killed one.
func exitCode(s *os.ProcessState) int {
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return s.ExitCode()
}

// memoryFile is a file without a name: unlike a pipe it never blocks its writer,
// nor the reader while a background process holds it.
func memoryFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("surroundings", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memory file: %w", err)
	}
	return os.NewFile(uintptr(fd), "surroundings"), nil
}

// readSurroundings reads what [script] left: the directory's line, and the
// variables that differ from the ones it began with.
func readSurroundings(f *os.File, before []string) (string, map[string]string) {
	raw, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<20))
	if err != nil {
		return "", nil
	}
	dir, rest, ok := bytes.Cut(raw, []byte("\n"))
	if !ok || !utf8.Valid(dir) {
		return "", nil
	}
	had := make(map[string]bool, len(before))
	for _, kv := range before {
		had[kv] = true
	}
	env, size := make(map[string]string), 0
	for kv := range bytes.SplitSeq(rest, []byte{0}) {
		name, value, ok := strings.Cut(string(kv), "=")
		if !ok || had[string(kv)] || !carried(name) || !utf8.Valid(kv) {
			continue
		}
		if size += len(kv); size > maxEnvBytes {
			return string(dir), nil
		}
		env[name] = value
	}
	return string(dir), env
}

// carried says whether an exported variable goes on to later commands. Not those
// by which the shell and the loader find out what to run, and how to read the
// line: each line is decided on by its text, and a call that was allowed must not
// change what an innocent one means after it. Within its own line, which people
// read as a whole, a command may set them. What a program reads for itself, as
// GIT_DIR or PYTHONPATH, is not known here and is carried.
func carried(name string) bool {
	return name != "" && !fixedVariables[name] && !strings.HasPrefix(name, "LD_") && !strings.HasPrefix(name, "BASH")
}

// fixedVariables are the same for every command of an agent, or the shell's own
// in each. With BASH* come start-up files, options and exported functions.
var fixedVariables = map[string]bool{
	// Where programs, directories and files are looked for.
	"PATH": true, "CDPATH": true, "HOME": true, "EXECIGNORE": true, "GLOBIGNORE": true, "GCONV_PATH": true, "GLIBC_TUNABLES": true,
	// How the shell starts, reads a line, and what it runs beside it.
	"ENV": true, "IFS": true, "SHELLOPTS": true, "POSIXLY_CORRECT": true, "PS4": true, "PROMPT_COMMAND": true,
	// The shell's own, set anew in each.
	"_": true, "PWD": true, "OLDPWD": true, "SHLVL": true,
}

// outlet is the reading end of a command's output.
type outlet struct {
	r  *os.File
	mu sync.Mutex
	// last is when reading must end, once the command is over.
	last time.Time
}

// finish lets reading go on until t at most.
func (o *outlet) finish(t time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = t
	_ = o.r.SetReadDeadline(t) // a pipe has deadlines
}

// within bounds the next read by t, the zero time meaning no bound but the last.
func (o *outlet) within(t time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.last.IsZero() && (t.IsZero() || t.After(o.last)) {
		t = o.last
	}
	_ = o.r.SetReadDeadline(t)
}

// over says whether the last deadline has passed.
func (o *outlet) over() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.last.IsZero() && !time.Now().Before(o.last)
}

// pump says all output until its end, in chunks, and returns the last part.
func (o *outlet) pump(say func(string)) (tail string, truncated bool) {
	var t transcript
	buf := make([]byte, 0, chunkBytes)
	for {
		var err error
		buf, err = o.chunk(buf)
		rest := incomplete(buf)
		if err != nil {
			rest = 0
		}
		keep := len(buf) - rest
		t.add(strings.ToValidUTF8(string(buf[:keep]), "\uFFFD"), say)
		buf = buf[:copy(buf, buf[keep:])]
		if err != nil {
			return t.tail, t.cut
		}
	}
}

// chunk appends to buf what comes within a chunk's time of the first byte, up to
// its capacity. An error is the end of the output.
func (o *outlet) chunk(buf []byte) ([]byte, error) {
	o.within(time.Time{})
	n, err := o.r.Read(buf[len(buf):cap(buf)])
	buf = buf[:len(buf)+n]
	if err != nil {
		return buf, err
	}
	o.within(time.Now().Add(chunkTime))
	for len(buf) < cap(buf) {
		n, err := o.r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if errors.Is(err, os.ErrDeadlineExceeded) && !o.over() {
			return buf, nil
		}
		if err != nil {
			return buf, err
		}
	}
	return buf, nil
}

// incomplete counts the bytes at the end that may begin a rune.
func incomplete(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if c := b[len(b)-n]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}

// transcript follows a command's output.
type transcript struct {
	tail  string
	cut   bool
	shown int
}

func (t *transcript) add(text string, say func(string)) {
	if text == "" {
		return
	}
	switch {
	case t.shown+len(text) <= shownBytes:
		say(text)
		t.shown += len(text)
	case t.shown <= shownBytes:
		say("\n… there is more output, which isn't shown\n")
		t.shown = shownBytes + 1
	}
	t.tail += text
	if over := len(t.tail) - tailBytes; over > 0 {
		t.cut = true
		for over < len(t.tail) && !utf8.RuneStart(t.tail[over]) {
			over++
		}
		t.tail = t.tail[over:]
	}
}
