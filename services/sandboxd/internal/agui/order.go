package agui

import (
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"
)

// The outcomes of a run, as RUN_FINISHED says them; OutcomeError stands for RUN_ERROR.
const (
	OutcomeSuccess   = "success"
	OutcomeInterrupt = "interrupt"
	OutcomeCancelled = "cancelled"
	OutcomeError     = "error"
)

// Ending is what a terminal event said.
type Ending struct {
	// Outcome is one of the Outcome constants.
	Outcome string
	// Reason is the message of a RUN_ERROR.
	Reason string
}

// Order holds one run's events to the protocol.
type Order struct {
	threadID, runID string
	events          int // that the agent sent
	started         bool
	over            bool
	open            []span
	seen            map[span]bool
	chunk           *span // what chunks have opened and not ended
	stale           bool  // the state was changed since it was told whole
}

// NewOrder expects the events of one run.
func NewOrder(threadID, runID string) *Order {
	return &Order{threadID: threadID, runID: runID, seen: make(map[span]bool)}
}

// Started says whether RUN_STARTED was accepted.
func (o *Order) Started() bool { return o.started }

// Events is how many events were given to [Order.Accept].
func (o *Order) Events() int { return o.events }

// Accept takes the agent's next event and gives what is to be passed on in its
// place, in order: itself, but chunks become the events that they stand for. An
// error is a [*ViolationError]: the event isn't passed on, while said is, also then. The
// ending is set for the run's terminal event, the last of said.
func (o *Order) Accept(raw []byte) (said [][]byte, ending *Ending, err error) {
	o.events++
	typ, f, wrong := read(raw)
	if wrong == nil {
		said, ending, wrong = o.take(typ, f, raw)
	}
	if wrong != nil {
		wrong.Event, wrong.Type = o.events, typ
		return said, nil, wrong
	}
	return said, ending, nil
}

// read reads an event and checks it by itself.
func read(raw []byte) (string, fields, *ViolationError) {
	const want = "a JSON object with a type"
	if !utf8.Valid(raw) {
		return "", nil, broken(RuleUnreadable, "it isn't UTF-8", want)
	}
	var f fields
	if err := json.Unmarshal(raw, &f); err != nil || f == nil {
		return "", nil, broken(RuleUnreadable, "it can't be read: "+clip(raw), want)
	}
	typ := f.text("type")
	if typ == "" {
		return "", nil, broken(RuleUnreadable, "it has no type: "+clip(raw), want)
	}
	return typ, f, f.check(typ)
}

// take puts a readable event into the run's order.
func (o *Order) take(typ string, f fields, raw []byte) ([][]byte, *Ending, *ViolationError) {
	switch {
	case o.over:
		return nil, nil, broken(RuleAfterEnd, "the run is over", "nothing after the terminal event")
	case typ == TypeRunError:
		o.over = true
		return [][]byte{raw}, &Ending{Outcome: OutcomeError, Reason: f.text("message")}, nil
	case typ == TypeRunStarted:
		if wrong := o.start(f); wrong != nil {
			return nil, nil, wrong
		}
		return [][]byte{raw}, nil, nil
	case !o.started:
		return nil, nil, broken(RuleBeforeStart, "the run hasn't started", "RUN_STARTED first")
	}
	if chunk, ok := chunkTypes[typ]; ok {
		said, wrong := o.expand(chunk, f)
		return said, nil, wrong
	}
	said := o.endChunk(typ)
	if typ == TypeRunFinished {
		ending, wrong := o.finish(f)
		if wrong != nil {
			return said, nil, wrong
		}
		return append(said, raw), ending, nil
	}
	if wrong := o.move(typ, f); wrong != nil {
		return said, nil, wrong
	}
	switch typ {
	case TypeStateDelta:
		o.stale = true
	case TypeStateSnapshot:
		o.stale = false
	}
	return append(said, raw), nil, nil
}

func (o *Order) start(f fields) *ViolationError {
	if o.started {
		return broken(RuleStartedTwice, "the run has started", "one RUN_STARTED")
	}
	if wrong := o.mine(f); wrong != nil {
		return wrong
	}
	o.started = true
	return nil
}

// mine refuses the start or end of a run that isn't this one.
func (o *Order) mine(f fields) *ViolationError {
	thread, run := f.text("threadId"), f.text("runId")
	if thread == o.threadID && run == o.runID {
		return nil
	}
	return broken(RuleOtherRun, fmt.Sprintf("it is of thread %.64q and run %.64q", thread, run),
		fmt.Sprintf("threadId %q and runId %q, as in the input", o.threadID, o.runID))
}

// finish checks a RUN_FINISHED.
func (o *Order) finish(f fields) (*Ending, *ViolationError) {
	if wrong := o.mine(f); wrong != nil {
		return nil, wrong
	}
	if len(o.open) > 0 {
		last := o.open[len(o.open)-1]
		return nil, broken(RuleLeftOpen, fmt.Sprintf("%s %.64q is still open", last.kind, last.id), last.kind.closer()+" before it")
	}
	end := &Ending{Outcome: OutcomeSuccess}
	outcome, wrong := readOutcome(f["outcome"])
	if wrong != nil {
		return nil, wrong
	}
	if outcome != nil {
		end.Outcome = outcome.Type
	}
	if end.Outcome == OutcomeInterrupt && o.stale {
		return nil, broken(RuleStaleState, "the state was changed by STATE_DELTA and isn't told whole", "a STATE_SNAPSHOT before an interrupt")
	}
	o.over = true
	return end, nil
}

// readOutcome reads how a RUN_FINISHED ended; nil for none, which is success.
func readOutcome(raw json.RawMessage) (*Outcome, *ViolationError) {
	if len(raw) == 0 {
		return nil, nil
	}
	var out Outcome
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, broken(RuleOutcome, "the outcome can't be read", `{"type": "success"}, or "cancelled", or "interrupt" with interrupts`)
	}
	switch out.Type {
	case OutcomeSuccess, OutcomeCancelled:
		return &out, nil
	case OutcomeInterrupt:
		return &out, checkInterrupts(out.Interrupts)
	}
	return nil, broken(RuleOutcome, fmt.Sprintf("its type is %.64q", out.Type), "success, interrupt or cancelled")
}

func checkInterrupts(list []Interrupt) *ViolationError {
	if len(list) == 0 {
		return broken(RuleOutcome, "an interrupt without interrupts", "at least one, with id and reason")
	}
	ids := make(map[string]bool, len(list))
	for i, one := range list {
		if one.ID == "" || one.Reason == "" {
			return broken(RuleOutcome, fmt.Sprintf("interrupts[%d] lacks its id or reason", i), "both: the id is the call's, as the proposal's answer says it")
		}
		if ids[one.ID] {
			return broken(RuleOutcome, fmt.Sprintf("interrupts[%d] has the id of another", i), "an id of its own")
		}
		ids[one.ID] = true
	}
	return nil
}

// move opens, fills and closes spans.
func (o *Order) move(typ string, f fields) *ViolationError {
	st, ok := steps[typ]
	if !ok {
		return nil
	}
	s := st.kind.of(f)
	at := slices.Index(o.open, s) // few are ever open at once
	switch {
	case st.does == opens && (at >= 0 || o.seen[s]):
		return broken(RuleOpenedTwice, fmt.Sprintf("%s %.64q was opened before", s.kind, s.id), "an id that wasn't used in this run")
	case st.does != opens && at < 0:
		return broken(RuleNotOpen, fmt.Sprintf("%s %.64q isn't open", s.kind, s.id), s.kind.opener()+" before it")
	}
	switch st.does {
	case opens:
		o.begin(s)
	case closes:
		o.open = slices.Delete(o.open, at, at+1)
	case fills:
	}
	return nil
}

func (o *Order) begin(s span) {
	o.open = append(o.open, s)
	if s.kind != kindStep { // the one kind whose name may be used again
		o.seen[s] = true
	}
}

// Abandon ends the run in the agent's place: it returns the events that close
// all that is open, innermost first, so that what viewers got stays well-formed.
func (o *Order) Abandon() [][]byte {
	var events [][]byte
	for _, s := range slices.Backward(o.open) {
		events = append(events, s.close())
	}
	o.open, o.chunk = nil, nil
	return events
}
