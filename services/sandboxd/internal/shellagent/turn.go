package shellagent

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/services/sandboxd/internal/agui"
)

// reportTime is left to report a command that was killed because its run was
// cancelled; sandboxd ends the run soon after.
const reportTime = 400 * time.Millisecond

// turn works on one run. Errors that end it become its RUN_ERROR.
type turn struct {
	cfg  Config
	api  *holdfast
	in   agui.RunInput
	say  *speaker
	plan plan
}

// errParked ends a turn with a question.
var errParked = errors.New("parked")

// run says the whole run, from RUN_STARTED to the terminal event.
func (t *turn) run(ctx context.Context) {
	t.say.event(json.RawMessage(agui.RunStarted(t.in.ThreadID, t.in.RunID)))
	err := t.work(ctx)
	var no *refusal
	switch {
	case err == nil:
		t.say.state(t.plan.snapshot())
		t.say.event(json.RawMessage(agui.RunFinished(t.in.ThreadID, t.in.RunID, agui.Outcome{Type: agui.OutcomeSuccess})))
	case errors.Is(err, errParked):
	case ctx.Err() != nil: // nobody listens any more
	case errors.Is(err, errStale):
		t.fail("stale-resume", err)
	case errors.Is(err, errInput):
		t.fail("invalid-input", err)
	case errors.As(err, &no):
		t.fail("refused", err)
	case errors.Is(err, errAway):
		t.fail("holdfast-unreachable", err)
	default:
		t.fail("failed", err)
	}
}

func (t *turn) fail(code string, err error) {
	t.say.event(json.RawMessage(agui.RunError(code, err.Error())))
}

// work goes through the lines that are left.
func (t *turn) work(ctx context.Context) error {
	p, answered, err := newPlan(t.in)
	if err != nil {
		return err
	}
	t.plan = p
	for len(t.plan.Lines) > 0 {
		if err := t.step(ctx, answered); err != nil {
			return err
		}
		answered = nil
		t.plan = t.plan.next()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// step does the first line, or parks at it.
func (t *turn) step(ctx context.Context, answered *answer) error {
	line, id := t.plan.Lines[0], t.plan.callID()
	if answered != nil {
		// Its TOOL_CALL events are in the run that asked.
		if !answered.approved {
			t.notRun(id, line, answered.how, answered.reason)
			return nil
		}
		return t.execute(ctx, id, line, answered.question)
	}
	t.say.toolCall(id, callArgs{Command: line})
	v, err := t.api.propose(ctx, proposal{
		AgentCallID: id, RunID: t.in.RunID, Tool: toolName, Args: callArgs{Command: line}, Modes: t.cfg.Modes,
	})
	if err != nil {
		return err
	}
	q := question{Call: v.Call, ArgsHash: v.ArgsHash}
	if v.waits() && v.Mode == modePark {
		t.park(id, line, q)
		return errParked
	}
	if v, err = t.api.wait(ctx, v); err != nil {
		return err
	}
	if v.Decision != decisionAllow {
		reason := v.Reason
		if v.Rule != "" {
			reason = strings.TrimSpace(fmt.Sprintf("%s (rule %q)", reason, v.Rule))
		}
		t.notRun(id, line, saidDenied, reason)
		return nil
	}
	return t.execute(ctx, id, line, q)
}

// park ends the run with the question; the state says where to go on.
func (t *turn) park(id, line string, q question) {
	t.plan.Waiting = &q
	t.say.state(t.plan.snapshot())
	t.say.event(json.RawMessage(agui.RunFinished(t.in.ThreadID, t.in.RunID, agui.Outcome{
		Type: agui.OutcomeInterrupt,
		Interrupts: []agui.Interrupt{{
			ID: q.Call, Reason: "tool_call", ToolCallID: id, Message: "May this run?  " + line,
		}},
	})))
}

// notRun says that a line was left out, and why.
func (t *turn) notRun(id, line, how, reason string) {
	text := how
	if reason != "" {
		text += ": " + reason
	}
	t.say.openText(id)
	t.say.text("$ " + line + "\n" + text + "\n")
	t.say.closeText()
	t.say.toolResult(id, map[string]any{"notRun": text})
}

// execute claims the call, runs the line and reports it. The nonce is this
// execution's alone: an agent that died in the middle can't claim it again, so
// that nothing runs twice.
func (t *turn) execute(ctx context.Context, id, line string, q question) error {
	nonce := rand.Text()
	err := t.api.start(ctx, q.Call, execution{RunID: t.in.RunID, ArgsHash: q.ArgsHash, Nonce: nonce})
	var no *refusal
	switch {
	case errors.As(err, &no):
		t.notRun(id, line, saidNotRun, no.Error())
		return nil
	case err != nil:
		return err
	}
	t.say.openText(id)
	t.say.text("$ " + line + "\n")
	done, err := t.command(line).run(ctx, t.say.text)
	if err != nil {
		done = finished{exit: 126, tail: err.Error()}
		t.say.text(err.Error())
	}
	switch {
	case ctx.Err() != nil:
		done.tail += "\n[cancelled]"
	case t.say.midLine():
		t.say.text(fmt.Sprintf("\nexit %d\n", done.exit))
	default:
		t.say.text(fmt.Sprintf("exit %d\n", done.exit))
	}
	t.say.closeText()
	t.settle(done)
	t.say.toolResult(id, map[string]any{"exitCode": done.exit, "output": done.tail, "truncated": done.truncated})
	return t.report(ctx, q.Call, report{
		RunID: t.in.RunID, Nonce: nonce, ExitCode: done.exit, Output: done.tail, Truncated: done.truncated,
	})
}

// report tells how the call ended, also when the run was cancelled meanwhile.
func (t *turn) report(ctx context.Context, call string, r report) error {
	if ctx.Err() == nil {
		return t.api.result(ctx, call, r)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTime)
	defer cancel()
	return t.api.result(ctx, call, r)
}

// command puts a line into the surroundings that the ones before it left. What
// isn't carried is left out here too: the state comes from outside.
func (t *turn) command(line string) command {
	env := slices.Clone(t.cfg.Env)
	for _, name := range slices.Sorted(maps.Keys(t.plan.Env)) {
		if carried(name) {
			env = append(env, name+"="+t.plan.Env[name])
		}
	}
	dir := t.plan.Dir
	if !isDir(dir) {
		dir = t.cfg.Workspace
	}
	return command{shell: t.cfg.Shell, line: line, dir: dir, env: env}
}

// settle keeps what the command left for the next one.
func (t *turn) settle(done finished) {
	if done.dir != "" {
		t.plan.Dir = done.dir
	}
	for name, value := range done.env {
		if t.plan.Env == nil {
			t.plan.Env = make(map[string]string)
		}
		t.plan.Env[name] = value
	}
}
