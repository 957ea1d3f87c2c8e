package agui

// kind is a kind of thing that one event opens and another must close.
type kind string

const (
	kindText             kind = "TEXT_MESSAGE"
	kindTool             kind = "TOOL_CALL"
	kindReasoning        kind = "REASONING"
	kindReasoningMessage kind = "REASONING_MESSAGE"
	kindStep             kind = "STEP"
	kindSubagent         kind = "SUBAGENT"
)

// span is one such thing. owner is whose it is where a name is unique for its owner
// alone: a step's, as a subagent often runs the same graph as its parent.
type span struct {
	kind      kind
	id, owner string
}

// action is what an event type does to a span.
type action int

const (
	opens action = iota
	fills
	closes
)

// step says what an event type does, and to which kind of span.
type step struct {
	kind kind
	does action
}

var steps = map[string]step{
	TypeTextStart:        {kindText, opens},
	TypeTextContent:      {kindText, fills},
	TypeTextEnd:          {kindText, closes},
	TypeToolStart:        {kindTool, opens},
	TypeToolArgs:         {kindTool, fills},
	TypeToolEnd:          {kindTool, closes},
	"REASONING_START":    {kindReasoning, opens},
	"REASONING_END":      {kindReasoning, closes},
	typeReasoningStart:   {kindReasoningMessage, opens},
	typeReasoningContent: {kindReasoningMessage, fills},
	typeReasoningEnd:     {kindReasoningMessage, closes},
	"STEP_STARTED":       {kindStep, opens},
	"STEP_FINISHED":      {kindStep, closes},
	"SUBAGENT_STARTED":   {kindSubagent, opens},
	"SUBAGENT_FINISHED":  {kindSubagent, closes},
	"SUBAGENT_ERROR":     {kindSubagent, closes},
}

// idField names the field with a span's id.
func (k kind) idField() string {
	switch k {
	case kindTool:
		return "toolCallId"
	case kindStep:
		return "stepName"
	case kindSubagent:
		return "subagentRunId"
	case kindText, kindReasoning, kindReasoningMessage:
	}
	return "messageId"
}

// opener and closer are the event types that begin and end a span in order.
func (k kind) opener() string {
	if k == kindStep || k == kindSubagent {
		return string(k) + "_STARTED"
	}
	return string(k) + "_START"
}

func (k kind) closer() string {
	if k == kindStep || k == kindSubagent {
		return string(k) + "_FINISHED"
	}
	return string(k) + "_END"
}

// of is the span that an event's fields name.
func (k kind) of(f fields) span {
	s := span{kind: k, id: f.text(k.idField())}
	if k == kindStep {
		s.owner = f.text("subagentRunId")
	}
	return s
}

// close makes the event that ends a span which its agent left open.
func (s span) close() []byte {
	event := map[string]string{"type": s.kind.closer(), s.kind.idField(): s.id}
	if s.owner != "" {
		event["subagentRunId"] = s.owner
	}
	if s.kind == kindSubagent { // it didn't finish
		event["type"], event["message"] = "SUBAGENT_ERROR", "its run ended before it did"
	}
	return Encode(event)
}
