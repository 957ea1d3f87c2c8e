package agui

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// ErrOrder marks an event that breaks the protocol.
var ErrOrder = errors.New("AG-UI protocol broken")

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

// span is something that an event opens and another must close.
type span struct{ kind, id string }

// step says what an event type does to a span, and which field names it.
type step struct {
	kind  string
	field func(*header) string
	does  action
}

type action int

const (
	opens action = iota
	fills
	closes
)

func byMessage(h *header) string  { return h.MessageID }
func byToolCall(h *header) string { return h.ToolCallID }
func byStep(h *header) string     { return h.StepName }

var steps = map[string]step{
	TypeTextStart:               {"TEXT_MESSAGE", byMessage, opens},
	TypeTextContent:             {"TEXT_MESSAGE", byMessage, fills},
	TypeTextEnd:                 {"TEXT_MESSAGE", byMessage, closes},
	TypeToolStart:               {"TOOL_CALL", byToolCall, opens},
	TypeToolArgs:                {"TOOL_CALL", byToolCall, fills},
	TypeToolEnd:                 {"TOOL_CALL", byToolCall, closes},
	"REASONING_START":           {"REASONING", byMessage, opens},
	"REASONING_END":             {"REASONING", byMessage, closes},
	"REASONING_MESSAGE_START":   {"REASONING_MESSAGE", byMessage, opens},
	"REASONING_MESSAGE_CONTENT": {"REASONING_MESSAGE", byMessage, fills},
	"REASONING_MESSAGE_END":     {"REASONING_MESSAGE", byMessage, closes},
	"STEP_STARTED":              {stepKind, byStep, opens},
	"STEP_FINISHED":             {stepKind, byStep, closes},
}

// stepKind is the one kind of span whose name may be used again after its end.
const stepKind = "STEP"

// closers gives the event type and the id's field that end a kind of span.
var closers = map[string][2]string{
	"TEXT_MESSAGE":      {TypeTextEnd, "messageId"},
	"TOOL_CALL":         {TypeToolEnd, "toolCallId"},
	"REASONING":         {"REASONING_END", "messageId"},
	"REASONING_MESSAGE": {"REASONING_MESSAGE_END", "messageId"},
	stepKind:            {"STEP_FINISHED", "stepName"},
}

// Order holds one run's events to the protocol.
type Order struct {
	threadID, runID string
	started         bool
	over            bool
	open            []span
	seen            map[span]bool
}

// NewOrder expects the events of one run.
func NewOrder(threadID, runID string) *Order {
	return &Order{threadID: threadID, runID: runID, seen: make(map[span]bool)}
}

// Started says whether RUN_STARTED was accepted.
func (o *Order) Started() bool { return o.started }

// Accept takes the next event. An error, which is [ErrOrder], leaves the order
// as it was: the event must not be passed on. The ending is set for the run's
// terminal event.
func (o *Order) Accept(raw []byte) (*Ending, error) {
	if !utf8.Valid(raw) {
		return nil, fmt.Errorf("%w: an event that isn't UTF-8", ErrOrder)
	}
	var h header
	if err := json.Unmarshal(raw, &h); err != nil {
		return nil, fmt.Errorf("%w: an event that can't be read: %w", ErrOrder, err)
	}
	switch {
	case h.Type == "":
		return nil, fmt.Errorf("%w: an event without a type", ErrOrder)
	case o.over:
		return nil, fmt.Errorf("%w: %q after the run's end", ErrOrder, h.Type)
	case h.Type == TypeRunError:
		o.over = true
		return &Ending{Outcome: OutcomeError, Reason: h.Message.text()}, nil
	case h.Type == TypeRunStarted:
		return nil, o.start(&h)
	case !o.started:
		return nil, fmt.Errorf("%w: %q before RUN_STARTED", ErrOrder, h.Type)
	case h.Type == TypeRunFinished:
		return o.finish(&h)
	}
	return nil, o.move(&h)
}

func (o *Order) start(h *header) error {
	switch {
	case o.started:
		return fmt.Errorf("%w: a second RUN_STARTED", ErrOrder)
	case h.RunID != o.runID || h.ThreadID != o.threadID:
		return fmt.Errorf("%w: RUN_STARTED of thread %.64q, run %.64q, which wasn't asked for", ErrOrder, h.ThreadID, h.RunID)
	}
	o.started = true
	return nil
}

func (o *Order) finish(h *header) (*Ending, error) {
	switch {
	case h.RunID != o.runID || h.ThreadID != o.threadID:
		return nil, fmt.Errorf("%w: RUN_FINISHED of thread %.64q, run %.64q, which wasn't asked for", ErrOrder, h.ThreadID, h.RunID)
	case len(o.open) > 0:
		last := o.open[len(o.open)-1]
		return nil, fmt.Errorf("%w: RUN_FINISHED while %s %.64q is open", ErrOrder, last.kind, last.id)
	}
	end := &Ending{Outcome: OutcomeSuccess}
	if h.Outcome != nil {
		end.Outcome = h.Outcome.Type
	}
	switch end.Outcome {
	case OutcomeSuccess, OutcomeCancelled:
	case OutcomeInterrupt:
		if err := checkInterrupts(h.Outcome.Interrupts); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("%w: unknown outcome %.64q", ErrOrder, end.Outcome)
	}
	o.over = true
	return end, nil
}

func checkInterrupts(list []Interrupt) error {
	if len(list) == 0 {
		return fmt.Errorf("%w: an interrupt that asks nothing", ErrOrder)
	}
	ids := make(map[string]bool, len(list))
	for _, i := range list {
		if i.ID == "" || i.Reason == "" || ids[i.ID] {
			return fmt.Errorf("%w: an interrupt without an id of its own, or without a reason", ErrOrder)
		}
		ids[i.ID] = true
	}
	return nil
}

// move opens, fills and closes spans.
func (o *Order) move(h *header) error {
	st, ok := steps[h.Type]
	if !ok {
		return nil
	}
	s := span{st.kind, st.field(h)}
	at := o.position(s)
	switch {
	case s.id == "":
		return fmt.Errorf("%w: %s without an id", ErrOrder, h.Type)
	case st.does == opens && (at >= 0 || o.seen[s]):
		return fmt.Errorf("%w: a second %s for %.64q", ErrOrder, h.Type, s.id)
	case st.does != opens && at < 0:
		return fmt.Errorf("%w: %s for %.64q, which isn't open", ErrOrder, h.Type, s.id)
	case st.does == fills && !h.Delta.isString():
		return fmt.Errorf("%w: %s without a delta", ErrOrder, h.Type)
	}
	switch st.does {
	case opens:
		o.open = append(o.open, s)
		if s.kind != stepKind {
			o.seen[s] = true
		}
	case closes:
		o.open = append(o.open[:at], o.open[at+1:]...)
	case fills:
	}
	return nil
}

// position finds an open span; few are ever open at once.
func (o *Order) position(s span) int {
	for i, have := range o.open {
		if have == s {
			return i
		}
	}
	return -1
}

// Abandon ends the run in the agent's place: it returns the events that close
// all that is open, innermost first, so that what viewers got stays well-formed.
func (o *Order) Abandon() [][]byte {
	var events [][]byte
	for _, s := range slices.Backward(o.open) {
		c := closers[s.kind]
		events = append(events, Encode(map[string]string{"type": c[0], c[1]: s.id}))
	}
	o.open = nil
	return events
}
