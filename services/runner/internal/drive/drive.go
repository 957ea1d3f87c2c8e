// Package drive takes one open run from its sandbox into the log: sandboxd drives
// the agent and spools what it says, numbered by k; drive reads the spool, publishes
// batches to OUTPUT, records completed messages, and at last how the run ended.
//
// It may stop anywhere and be started again by any runner: the run is posted
// under its id, events up to the last published k aren't published again, and a
// message is recorded under its own id.
package drive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/output"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/failpoint"
	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/runner/internal/decider"
	"github.com/holdfast-io/holdfast/services/runner/internal/transcript"
)

// How soon after a batch the next one is published, and how much waits at most. What
// comes after a silence waits for nothing: the first words are those that people wait
// for.
const (
	batchAge   = 40 * time.Millisecond
	batchBytes = 256 << 10
)

// Run is what is driven.
type Run struct {
	Tenant, Session, ID, Instance string
	// N is the session's version when the run was handed over.
	N uint64
	// State is the agent's state before the run, Input the RunAgentInput.
	State, Input json.RawMessage
	// Tools are the names of those that the run's client runs itself.
	Tools []string
}

// Log appends the run's events; Step gives the session's version after it.
type Log interface {
	Step(ctx context.Context, tenant, id string, decide func(*session.State, time.Time) ([]events.Record, error)) (n uint64, err error)
}

// Delegator puts a tool call to the policy that the run's client is to run, and gives
// its call id. The same tool call again is the same call.
type Delegator interface {
	Delegate(ctx context.Context, run Run, call transcript.ToolCall) (callID string, err error)
}

// Driver drives runs. It holds no state of any.
type Driver struct {
	Log    Log
	Calls  Delegator
	Output output.Stream
	Now    func() time.Time
}

// Drive follows the run in the sandbox until its end is in the log. Errors:
// decider.ErrNotMine when the run is over or another's; else it may be tried
// again.
func (d *Driver) Drive(ctx context.Context, box *sandboxapi.Client, run Run) error {
	published, err := d.published(ctx, run)
	if err != nil {
		return err
	}
	f := &follower{
		driver: d, box: box, run: run, published: published, after: run.N, last: published,
		transcript: transcript.New(run.State, run.Tools...), lines: make(chan spooled, 64),
	}
	if _, err := box.StartRun(ctx, sandboxapi.RunRequest{RunID: run.ID, Input: run.Input}); err != nil {
		return f.stopped(ctx, errors.Join(fmt.Errorf("start the run in its sandbox: %w", err), makeWay(ctx, box, err)))
	}
	failpoint.Hit("run-delivered")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go f.read(ctx)
	return f.follow(ctx)
}

// makeWay ends what else a busy sandbox drives: a session has one run at a time, so it
// is one that is over in the log, whose runner could not tell the sandbox.
func makeWay(ctx context.Context, box *sandboxapi.Client, busy error) error {
	if p, ok := errors.AsType[*sandboxapi.Problem](busy); !ok || p.Code != sandboxapi.CodeRunOpen {
		return nil
	}
	h, err := box.Health(ctx)
	if err == nil && h.OpenRun != "" {
		err = box.CancelRun(ctx, h.OpenRun)
	}
	if err != nil {
		return fmt.Errorf("end the run that is over: %w", err)
	}
	return nil
}

// stopped decides what an answer of the sandbox means: what trying again can't
// change fails the run, anything else is given back.
func (f *follower) stopped(ctx context.Context, err error) error {
	var p *sandboxapi.Problem
	if !errors.As(err, &p) {
		return err
	}
	switch p.Code {
	case sandboxapi.CodeInvalid, sandboxapi.CodeTooLarge, sandboxapi.CodeNoAdapter, sandboxapi.CodeSpoolGone:
		return f.fail(ctx, decider.CauseProtocol, "the sandbox refuses the run: "+p.Detail)
	}
	return err
}

// published is the last k of the run that OUTPUT has.
func (d *Driver) published(ctx context.Context, run Run) (uint64, error) {
	last, _, ok, err := d.Output.Last(ctx, run.Tenant, run.Session)
	if err != nil {
		return 0, fmt.Errorf("last output: %w", err)
	}
	if !ok || last.Run != run.ID {
		return 0, nil
	}
	return last.LastK, nil
}

// spooled is a line of the spool, or the error that ended it.
type spooled struct {
	line sandboxapi.SpoolLine
	err  error
}

// follower is one run on its way into the log.
type follower struct {
	driver     *Driver
	box        *sandboxapi.Client
	run        Run
	transcript *transcript.Transcript
	lines      chan spooled
	// published is the last k in OUTPUT, after the session's version known here.
	published, after uint64
	batch            output.Batch
	size             int
	last             uint64 // the last k known, published or read
}

func (f *follower) read(ctx context.Context) {
	defer close(f.lines)
	// From the beginning: messages are recorded whole, so their first pieces are
	// needed also after another runner published them.
	for line, err := range f.box.Spool(ctx, f.run.ID, 1) {
		select {
		case f.lines <- spooled{line, err}:
		case <-ctx.Done():
			return
		}
	}
}

func (f *follower) follow(ctx context.Context) error {
	timer := time.NewTimer(batchAge)
	timer.Stop()
	defer timer.Stop()
	quiet := true // no batch was published lately
	publish := func() error {
		quiet = len(f.batch.Events) == 0
		if !quiet {
			timer.Reset(batchAge)
		}
		return f.flush(ctx)
	}
	for {
		select {
		case <-timer.C:
			if err := publish(); err != nil {
				return err
			}
		case s, ok := <-f.lines:
			switch {
			case !ok:
				return errors.Join(ctx.Err(), errSpoolCut)
			case s.err != nil:
				return f.stopped(ctx, fmt.Errorf("spool: %w", s.err))
			case s.line.End:
				return f.finish(ctx, s.line)
			}
			if over, err := f.take(ctx, s.line); over || err != nil {
				return err
			}
			if quiet && len(f.lines) == 0 { // what came together goes together
				if err := publish(); err != nil {
					return err
				}
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var errSpoolCut = errors.New("the spool ended without the run's end")

// take puts an event into the batch and records the message that it completes. The
// run is over where the agent breaks the protocol.
func (f *follower) take(ctx context.Context, line sandboxapi.SpoolLine) (over bool, _ error) {
	f.last = max(f.last, line.K)
	if line.K > f.published {
		if f.size+len(line.Event) > batchBytes {
			if err := f.flush(ctx); err != nil {
				return false, err
			}
		}
		if len(f.batch.Events) == 0 {
			f.batch = output.Batch{Run: f.run.ID, FirstK: line.K}
		}
		f.batch.Events = append(f.batch.Events, line.Event)
		f.batch.LastK = line.K
		f.size += len(line.Event)
	}
	m, err := f.transcript.Read(line.Event)
	if err != nil {
		return true, f.fail(ctx, decider.CauseProtocol, fmt.Sprintf("event %d: %v", line.K, err))
	}
	if m == nil {
		return false, nil
	}
	if err := f.flush(ctx); err != nil { // what completes it is seen before it is recorded
		return false, err
	}
	err = f.step(ctx, decider.Record(f.run.Instance, session.RunMessageRecorded{
		RunID: f.run.ID, MessageID: m.ID, Role: m.Role, Message: m.Raw, K: line.K,
	}))
	failpoint.Hit("message-recorded")
	return false, err
}

// flush publishes what waits.
func (f *follower) flush(ctx context.Context) error {
	if len(f.batch.Events) == 0 {
		return nil
	}
	f.batch.After, f.batch.Time = f.after, f.driver.Now().UTC().Truncate(time.Microsecond) // as events have it
	if _, err := f.driver.Output.Publish(ctx, f.run.Tenant, f.run.Session, f.batch); err != nil {
		return fmt.Errorf("publish output: %w", err)
	}
	f.published = f.batch.LastK
	f.batch, f.size = output.Batch{}, 0
	failpoint.Hit("output-published")
	return nil
}

func (f *follower) step(ctx context.Context, decide func(*session.State, time.Time) ([]events.Record, error)) error {
	n, err := f.driver.Log.Step(ctx, f.run.Tenant, f.run.Session, decide)
	if err != nil {
		return err
	}
	f.after = max(f.after, n)
	return nil
}

// finish records how the run ended, as sandboxd judged it.
func (f *follower) finish(ctx context.Context, end sandboxapi.SpoolLine) error {
	if err := f.flush(ctx); err != nil {
		return err
	}
	state := f.transcript.State()
	switch end.Outcome {
	case "success":
		if pending, err := f.forClient(); len(pending) > 0 || err != nil {
			return f.handOver(ctx, pending, err)
		}
		return f.end(ctx, decider.Finish(f.run.Instance, session.RunFinished{
			RunID: f.run.ID, LastK: f.last, Outcome: end.Outcome, State: state,
		}))
	case "cancelled":
		return f.end(ctx, decider.Finish(f.run.Instance, session.RunFinished{
			RunID: f.run.ID, LastK: f.last, Outcome: end.Outcome, State: state,
		}))
	case "interrupt":
		e := f.transcript.Ending()
		if e == nil {
			return f.fail(ctx, decider.CauseProtocol, "the run was interrupted without saying for what")
		}
		return f.end(ctx, decider.Interrupt(f.run.Instance, session.RunInterrupted{
			RunID: f.run.ID, LastK: f.last, Calls: e.Calls, Interrupts: e.Interrupts, State: state,
		}))
	}
	return f.fail(ctx, decider.CauseAgent, end.Reason)
}

// end records an end that carries the agent's own contents. What doesn't fit into
// an envelope never will, so then the run fails.
func (f *follower) end(ctx context.Context, decide func(*session.State, time.Time) ([]events.Record, error)) error {
	err := f.step(ctx, decide)
	if errors.Is(err, events.ErrTooLarge) {
		return f.fail(ctx, decider.CauseProtocol, "the run's end is too large to be kept")
	}
	return err
}

// fail ends the run for a reason. The agent is stopped first, as far as it can be
// reached: the next run would find it busy.
func (f *follower) fail(ctx context.Context, cause, detail string) error {
	if err := f.flush(ctx); err != nil {
		return err
	}
	if cause == decider.CauseProtocol {
		_ = f.box.CancelRun(ctx, f.run.ID) // sandboxd bounds it; a run that it doesn't know needs no end
	}
	return f.step(ctx, decider.Fail(f.run.Instance, session.RunFailed{
		RunID: f.run.ID, LastK: f.last, Cause: cause, Detail: detail,
	}))
}
