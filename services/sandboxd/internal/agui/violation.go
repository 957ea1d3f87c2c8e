package agui

import (
	"errors"
	"fmt"
)

// ErrOrder marks an event that breaks the protocol; it is a [*ViolationError].
var ErrOrder = errors.New("AG-UI protocol broken")

// Rule names what of the protocol an event breaks.
type Rule string

// The rules.
const (
	// RuleUnreadable: the event is no JSON object in UTF-8 with a type.
	RuleUnreadable Rule = "unreadable"
	// RuleUnknownType: AG-UI 1.0 has no such event type.
	RuleUnknownType Rule = "unknown-type"
	// RuleField: a field is missing or of another kind.
	RuleField Rule = "field"
	// RuleBeforeStart: RUN_STARTED comes first, or RUN_ERROR.
	RuleBeforeStart Rule = "before-start"
	// RuleStartedTwice: there is one RUN_STARTED.
	RuleStartedTwice Rule = "started-twice"
	// RuleAfterEnd: there is one terminal event, and nothing after it.
	RuleAfterEnd Rule = "after-end"
	// RuleOtherRun: threadId and runId are those of the input.
	RuleOtherRun Rule = "other-run"
	// RuleOpenedTwice: what was opened under an id is opened once.
	RuleOpenedTwice Rule = "opened-twice"
	// RuleNotOpen: only what is open is filled and closed.
	RuleNotOpen Rule = "not-open"
	// RuleLeftOpen: RUN_FINISHED comes when all is closed.
	RuleLeftOpen Rule = "left-open"
	// RuleChunk: the first chunk says what it begins.
	RuleChunk Rule = "chunk"
	// RuleOutcome: the outcome is a known one, and complete.
	RuleOutcome Rule = "outcome"
	// RuleStaleState: a state that was changed by deltas is told whole before an
	// interrupt, by STATE_SNAPSHOT.
	RuleStaleState Rule = "stale-state"
)

// ViolationError says how an event breaks the protocol. It is an [ErrOrder].
type ViolationError struct {
	Rule Rule
	// Event is the event's number in the run, from 1, as the agent sent them; Type
	// is its type, empty where it has none.
	Event int
	Type  string
	// What is wrong, and what was Expected.
	What, Expected string
}

func broken(rule Rule, what, expected string) *ViolationError {
	return &ViolationError{Rule: rule, What: what, Expected: expected}
}

// Error implements error: "event 4, TEXT_MESSAGE_END: message "m" isn't open (not-open);
// expected TEXT_MESSAGE_START before it".
func (v *ViolationError) Error() string {
	at := fmt.Sprintf("event %d", v.Event)
	if v.Type != "" {
		at += fmt.Sprintf(", %.64s", v.Type)
	}
	return fmt.Sprintf("%s: %s (%s); expected %s", at, v.What, v.Rule, v.Expected)
}

// Is makes a violation an [ErrOrder].
func (v *ViolationError) Is(target error) bool { return target == ErrOrder }
