package drive

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/agui"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/entrypoint"
)

// Exec is the adapter exec: a program for each turn, with the input on stdin, which
// prints an event a line on stdout. It has to end by itself after its terminal event;
// how it exits counts only where it said none. A cancel is SIGTERM to its process
// group, and SIGKILL after the grace. Nothing that it started outlives the turn; its
// workspace does. All fields are required.
type Exec struct {
	// Command makes the program's command, with more of an environment. It must lead
	// a process group.
	Command func(env []string) *exec.Cmd
	// Reaper starts and collects it.
	Reaper *entrypoint.Reaper
	// Grace is left to a program that is asked to end.
	Grace time.Duration
	// MaxEvent bounds an event, in bytes.
	MaxEvent int
}

// DefaultGrace is the grace of production.
const DefaultGrace = 2 * time.Second

// Converse implements [Agent].
func (e Exec) Converse(ctx context.Context, t *Turn) error {
	program, err := entrypoint.Launch(e.Reaper, e.Command(environment(t)), t.Input)
	if err != nil {
		return faultf(codeNotReady, "the program can't be started: %v", err)
	}
	heard := make(chan error, 1)
	go func() { heard <- t.read(agui.NewLineReader(program, e.MaxEvent).Next) }()
	var wrong error
	select {
	case wrong = <-heard:
	case <-ctx.Done():
		wrong = context.Cause(ctx)
		t.hush()
		err := e.end(program)
		<-heard //nolint:errcheck // why it ended is known by now
		return errors.Join(wrong, err, program.Close())
	}
	finished := make(chan struct{})
	go func() { // printing must block nobody who is about to end
		defer close(finished)
		_, _ = io.Copy(io.Discard, program)
	}()
	err = e.await(ctx, program, wrong)
	<-finished
	return errors.Join(err, program.Close())
}

// await waits for the end of a program that was heard to the end of its run, or of
// its output, and says what it means.
func (e Exec) await(ctx context.Context, program *entrypoint.Program, wrong error) error {
	ended := errors.Is(wrong, io.EOF) || errors.Is(wrong, os.ErrDeadlineExceeded)
	if wrong == nil || ended {
		timer := time.NewTimer(drainWait)
		defer timer.Stop()
		select {
		case <-program.Done():
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	if err := e.end(program); err != nil {
		return err
	}
	switch {
	case wrong == nil:
		return nil
	case !ended:
		return wrong
	case program.Status() == 0:
		return faultf(codeBrokeOff, "the program ended without RUN_FINISHED or RUN_ERROR%s", diagnostics(program))
	}
	return faultf(codeFailed, "the program %s without RUN_FINISHED or RUN_ERROR%s", program.Exit(), diagnostics(program))
}

func (e Exec) end(program *entrypoint.Program) error {
	select {
	case <-program.Done():
		return nil
	default:
		return program.Stop(e.Grace)
	}
}

// diagnostics is what a program that failed printed for its developer.
func diagnostics(program *entrypoint.Program) string {
	if program.Said() == "" {
		return ""
	}
	return "; the last that it printed on stderr:\n" + program.Said()
}

// maxWord bounds what of the input is told by the environment; the rest is on stdin
// alone.
const maxWord = 64 << 10

// environment tells a program what it would else have to read JSON for: a shell script
// can't well. A message that fits into no variable is only on stdin.
func environment(t *Turn) []string {
	env := []string{sandboxapi.EnvThread + "=" + t.ThreadID, sandboxapi.EnvRun + "=" + t.ID}
	for _, m := range slices.Backward(t.messages) {
		if m.Role != "user" {
			continue
		}
		if text, err := m.Text(); err == nil && len(text) <= maxWord && !strings.Contains(text, "\x00") {
			env = append(env, sandboxapi.EnvMessageID+"="+m.ID, sandboxapi.EnvMessage+"="+text)
		}
		break
	}
	return env
}
