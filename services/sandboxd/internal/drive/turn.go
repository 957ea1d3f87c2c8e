package drive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/agui"
)

// fault is why a run ends in sandboxd's words instead of the agent's.
type fault struct {
	code   string // kebab-case, the RUN_ERROR's code
	reason string
}

// Error implements error.
func (f *fault) Error() string { return f.code + ": " + f.reason }

func faultf(code, format string, args ...any) *fault {
	return &fault{code: code, reason: fmt.Sprintf(format, args...)}
}

// Codes of the faults; see docs/agents.md.
const (
	codeNotReady     = "agent-not-ready"
	codeRefused      = "agent-refused"
	codeDied         = "agent-died"
	codeBrokeOff     = "agent-broke-off"
	codeFailed       = "agent-failed"
	codeProtocol     = "protocol-broken"
	codeEventTooBig  = "event-too-large"
	codeOutputTooBig = "output-too-large"
	codeSpool        = "spool-failed"
	codeStopped      = "sandbox-stopped"
	codeLost         = "sandbox-lost"
)

// Turn is the open run as an adapter sees it. It is safe for concurrent use.
type Turn struct {
	// ID and ThreadID name the run; Input is its RunAgentInput as it came.
	ID, ThreadID string
	Input        json.RawMessage

	messages []agui.Message
	cancel   context.CancelCauseFunc
	maxEvent int
	maxSpool int64

	mu       sync.Mutex
	record   record
	order    *agui.Order
	terminal [][]byte // the last of what was said, which goes into the spool with the end
	ending   *agui.Ending
	broken   error // the first fault of what was said
	closed   bool
}

func newTurn(req sandboxapi.RunRequest, input agui.RunInput, r record, maxEvent int, maxSpool int64) *Turn {
	return &Turn{
		ID: req.RunID, ThreadID: input.ThreadID, Input: req.Input, messages: input.Messages, record: r,
		order: agui.NewOrder(input.ThreadID, req.RunID), maxEvent: maxEvent, maxSpool: maxSpool,
	}
}

// record is where a turn's events go.
type record interface {
	// Append adds events, all or none.
	Append(events ...[]byte) (k uint64, err error)
	// Size is how many bytes it has.
	Size() int64
}

// Say takes the agent's next event. The run is over with its terminal event, after
// which nothing may be said, or with an error: then the event isn't kept.
func (t *Turn) Say(event []byte) (over bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed || t.ending != nil:
		return true, errOver
	case t.broken != nil:
		return false, t.broken
	}
	over, t.broken = t.say(event)
	return over, t.broken
}

// errOver refuses events of a run that has ended.
var errOver = errors.New("the run is over")

func (t *Turn) say(event []byte) (over bool, err error) {
	if len(event) > t.maxEvent {
		return false, tooLarge(t.order.Events()+1, t.maxEvent)
	}
	said, ending, wrong := t.order.Accept(event)
	if ending != nil {
		t.terminal, t.ending = said, ending
		return true, nil
	}
	size := t.record.Size()
	for _, e := range said {
		size += int64(len(e))
	}
	if size > t.maxSpool {
		return false, faultf(codeOutputTooBig, "the run said more than %d bytes", t.maxSpool)
	}
	if _, err := t.record.Append(said...); err != nil {
		return false, faultf(codeSpool, "%v", err)
	}
	if wrong != nil {
		return false, faultf(codeProtocol, "%v", wrong)
	}
	return false, nil
}

func tooLarge(event, limit int) *fault {
	return faultf(codeEventTooBig, "event %d has more than %d bytes", event, limit)
}

// read says the events of a stream up to the terminal one. It fails with a fault, or
// with what the stream ended with.
func (t *Turn) read(next func() ([]byte, error)) error {
	for {
		event, err := next()
		if errors.Is(err, agui.ErrTooLarge) {
			t.mu.Lock()
			defer t.mu.Unlock()
			return tooLarge(t.order.Events()+1, t.maxEvent)
		}
		if err != nil {
			return err
		}
		if over, err := t.Say(event); over || err != nil {
			return err
		}
	}
}

// hush ends what the agent may say, before it is made to stop.
func (t *Turn) hush() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}

// close ends the conversation: nothing is said any more. It gives why the run isn't
// over by the agent's own word, nil where it is.
func (t *Turn) close(err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	switch {
	case t.ending != nil:
		return nil
	case t.broken != nil:
		return t.broken
	case err == nil:
		return errors.New("the adapter gave up")
	}
	return err
}

// conclude gives the last events of a turn that is closed, and how it ended. err is why
// the agent didn't end it, cause why it was made to stop; f is the fault, where it is one.
func (t *Turn) conclude(err, cause error) (last [][]byte, outcome, reason string, f *fault) {
	switch {
	case err == nil:
		return t.terminal, t.ending.Outcome, t.ending.Reason, nil
	case errors.Is(cause, errCancelled):
		if !t.order.Started() {
			last = append(last, agui.RunStarted(t.ThreadID, t.ID))
		}
		last = append(last, t.order.Abandon()...)
		last = append(last, agui.RunFinished(t.ThreadID, t.ID, agui.Outcome{Type: agui.OutcomeCancelled}))
		return last, agui.OutcomeCancelled, "", nil
	}
	f, ok := errors.AsType[*fault](err)
	switch {
	case errors.Is(cause, ErrStopping):
		f = faultf(codeStopped, "%v", ErrStopping)
	case !ok:
		f = faultf(codeFailed, "%v", err)
	}
	return append(t.order.Abandon(), agui.RunError(f.code, f.reason)), agui.OutcomeError, f.Error(), f
}

// finish writes the end. The run is closed first, so that whoever reads the end
// can start the next one.
func (d *Driver) finish(t *Turn, err, cause error) {
	last, outcome, reason, f := t.conclude(err, cause)
	if f != nil {
		// The reason may quote the agent; it is the run's, and not for our log.
		d.cfg.Log.Warn("run ended in a fault", "run", t.ID, "code", f.code)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open = nil
	s := d.spools[t.ID]
	if _, err := s.Finish(outcome, reason, last...); err != nil {
		// Readers are cut off, and get ErrGone when they come again.
		d.cfg.Log.Error("end of a run not spooled", "run", t.ID, "err", errors.Join(err, s.Close()))
	}
	if err := d.retire(t.ID); err != nil {
		d.cfg.Log.Error("old spools not retired", "err", err)
	}
}
