package agui

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// order keeps a stream in AG-UI's order, whatever becomes of the runs in it: what was
// cut has to be closed, what lost its beginning has to be left out.
type order struct {
	open map[span]bool
	// begun are the ids that had their beginning: AG-UI has each once in a stream.
	begun map[span]bool
	// unanswered are the tool calls without a result, in their order.
	unanswered []string
	// torn says that something had to be left out.
	torn bool
}

// span is something that is opened and closed; by is the subagent that it belongs to.
type span struct{ kind, id, by string }

func newOrder() order { return order{open: map[span]bool{}, begun: map[span]bool{}} }

// spans are the events that open, go on with, and close each kind of span.
var spans = map[string]struct{ kind, does string }{
	"TEXT_MESSAGE_START": {"TEXT_MESSAGE", "open"}, "TEXT_MESSAGE_CONTENT": {"TEXT_MESSAGE", "go"}, "TEXT_MESSAGE_END": {"TEXT_MESSAGE", "close"},
	"TOOL_CALL_START": {"TOOL_CALL", "open"}, "TOOL_CALL_ARGS": {"TOOL_CALL", "go"}, "TOOL_CALL_END": {"TOOL_CALL", "close"},
	"REASONING_START": {"REASONING", "open"}, "REASONING_END": {"REASONING", "close"},
	"REASONING_MESSAGE_START": {"REASONING_MESSAGE", "open"}, "REASONING_MESSAGE_CONTENT": {"REASONING_MESSAGE", "go"},
	"REASONING_MESSAGE_END": {"REASONING_MESSAGE", "close"},
	"STEP_STARTED":          {"STEP", "open"}, "STEP_FINISHED": {"STEP", "close"},
	"SUBAGENT_STARTED": {"SUBAGENT", "open"}, "SUBAGENT_FINISHED": {"SUBAGENT", "close"}, "SUBAGENT_ERROR": {"SUBAGENT", "close"},
}

// free are the events that may stand anywhere. The runs' own beginnings and ends, and
// their view of the conversation, aren't among them: those are told by us.
var free = map[string]bool{
	"TOOL_CALL_RESULT": true, "STATE_SNAPSHOT": true, "STATE_DELTA": true, "ACTIVITY_SNAPSHOT": true, "ACTIVITY_DELTA": true,
	"REASONING_ENCRYPTED_VALUE": true, "RAW": true, "CUSTOM": true,
	"TEXT_MESSAGE_CHUNK": true, "TOOL_CALL_CHUNK": true, "REASONING_MESSAGE_CHUNK": true,
}

// admit says whether an agent's event may be passed on here.
func (o *order) admit(raw json.RawMessage) bool {
	var e struct {
		Type       string `json:"type"`
		MessageID  string `json:"messageId"`
		ToolCallID string `json:"toolCallId"`
		StepName   string `json:"stepName"`
		Subagent   string `json:"subagentRunId"`
	}
	if json.Unmarshal(raw, &e) != nil {
		return false
	}
	sp, ok := spans[e.Type]
	if !ok {
		if e.Type == "TOOL_CALL_RESULT" {
			o.answered(e.ToolCallID)
		}
		return free[e.Type]
	}
	at := span{kind: sp.kind, id: e.MessageID}
	switch sp.kind {
	case "TOOL_CALL":
		at.id = e.ToolCallID
	case "STEP":
		at.id, at.by = e.StepName, e.Subagent
	case "SUBAGENT":
		at.id = e.Subagent
	}
	return o.step(at, sp.does, e.Subagent)
}

func (o *order) step(at span, does, by string) bool {
	find := at
	if at.kind != "STEP" { // an id is enough; who it belongs to is kept for the end
		for s := range o.open {
			if s.kind == at.kind && s.id == at.id {
				find = s
			}
		}
	}
	switch {
	case does == "open" && (o.open[find] || o.begun[at] && at.kind != "STEP"):
		o.torn = true
		return false
	case does == "open":
		if at.kind == "TOOL_CALL" {
			o.unanswered = append(o.unanswered, at.id)
		}
		o.begun[at] = true
		at.by = by
		o.open[at] = true
		return true
	case !o.open[find]:
		o.torn = true
		return false
	case does == "close":
		delete(o.open, find)
	}
	return true
}

// answered notes the result of a tool call.
func (o *order) answered(toolCall string) {
	o.unanswered = slices.DeleteFunc(o.unanswered, func(id string) bool { return id == toolCall })
}

// close gives the events that close what is open: the inner before the outer.
func (o *order) close() []map[string]string {
	rank := []string{"TOOL_CALL", "TEXT_MESSAGE", "REASONING_MESSAGE", "REASONING", "STEP", "SUBAGENT"}
	left := slices.SortedFunc(maps.Keys(o.open), func(a, b span) int {
		if d := slices.Index(rank, a.kind) - slices.Index(rank, b.kind); d != 0 {
			return d
		}
		return strings.Compare(a.id, b.id)
	})
	clear(o.open)
	closing := make([]map[string]string, len(left))
	for i, s := range left {
		e := map[string]string{"type": s.kind + "_END", "messageId": s.id}
		switch s.kind {
		case "TOOL_CALL":
			e = map[string]string{"type": "TOOL_CALL_END", "toolCallId": s.id}
		case "STEP":
			e = map[string]string{"type": "STEP_FINISHED", "stepName": s.id}
		case "SUBAGENT":
			e = map[string]string{"type": "SUBAGENT_ERROR", "message": "the run was stopped"}
		}
		if s.by != "" {
			e["subagentRunId"] = s.by
		}
		closing[i] = e
	}
	return closing
}
