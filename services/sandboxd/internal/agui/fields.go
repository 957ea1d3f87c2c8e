package agui

import (
	"encoding/json"
	"slices"
	"strings"
)

// fieldKind is what a field's JSON value has to be.
type fieldKind int

const (
	anything fieldKind = iota // whatever, null too
	text
	name // a text that isn't empty: it names something
	number
	flag
	list
	object
	textOrList
)

// String words a kind for whoever has to mend an agent.
func (k fieldKind) String() string {
	return [...]string{"a value", "a string", "a string that isn't empty", "a number", "true or false", "an array", "an object", "a string or an array"}[k]
}

// fits looks at the first byte, which tells in valid JSON.
func (k fieldKind) fits(raw json.RawMessage) bool {
	if len(raw) == 0 {
		return false
	}
	switch first := raw[0]; k {
	case anything:
		return true
	case text:
		return first == '"'
	case name:
		return first == '"' && len(raw) > len(`""`)
	case number:
		return first == '-' || first >= '0' && first <= '9'
	case flag:
		return first == 't' || first == 'f'
	case list:
		return first == '['
	case object:
		return first == '{'
	case textOrList:
		return first == '"' || first == '['
	}
	return false
}

// field is one field of an event type. oneOf, where it is set, lists its values.
type field struct {
	name     string
	kind     fieldKind
	required bool
	oneOf    []string
}

func must(n string, k fieldKind, oneOf ...string) field { return field{n, k, true, oneOf} }
func may(n string, k fieldKind, oneOf ...string) field  { return field{n, k, false, oneOf} }

// common are the fields that every event may have.
var common = []field{may("timestamp", number), may("metadata", object), may("subagentRunId", text)}

// roles are those of a streamed text.
var roles = []string{"assistant", "user", "system", "developer"}

// shapes are all event types of AG-UI 1.0 with what its schemas say of their fields.
// Fields that no schema names are let through: clients strip them.
var shapes = map[string][]field{
	TypeRunStarted:  {must("threadId", name), must("runId", name), may("protocolVersion", text), may("parentRunId", text), may("input", object)},
	TypeRunFinished: {must("threadId", name), must("runId", name), may("outcome", object), may("usage", list)},
	TypeRunError:    {must("message", text), may("code", text), may("usage", list)},

	"STEP_STARTED":  {must("stepName", name)},
	"STEP_FINISHED": {must("stepName", name)},

	TypeTextStart:   {must("messageId", name), may("role", text, roles...), may("name", text)},
	TypeTextContent: {must("messageId", name), must("delta", text)},
	TypeTextEnd:     {must("messageId", name)},
	TypeTextChunk:   {may("messageId", name), may("role", text, roles...), may("name", text), may("delta", text)},

	TypeToolStart:  {must("toolCallId", name), must("toolCallName", name), may("parentMessageId", text)},
	TypeToolArgs:   {must("toolCallId", name), must("delta", text)},
	TypeToolEnd:    {must("toolCallId", name)},
	TypeToolChunk:  {may("toolCallId", name), may("toolCallName", name), may("parentMessageId", text), may("delta", text)},
	TypeToolResult: {must("messageId", name), must("toolCallId", name), must("content", textOrList), may("role", text, "tool")},

	TypeStateSnapshot:   {must("snapshot", anything)},
	TypeStateDelta:      {must("delta", list)},
	"MESSAGES_SNAPSHOT": {must("messages", list)},
	"ACTIVITY_SNAPSHOT": {must("messageId", name), must("activityType", text), must("content", object), may("replace", flag)},
	"ACTIVITY_DELTA":    {must("messageId", name), must("activityType", text), must("patch", list)},
	"RAW":               {must("event", anything), may("source", text)},
	"CUSTOM":            {must("name", text), must("value", anything)},

	"REASONING_START":           {must("messageId", name)},
	"REASONING_END":             {must("messageId", name)},
	typeReasoningStart:          {must("messageId", name), must("role", text, "reasoning")},
	typeReasoningContent:        {must("messageId", name), must("delta", text)},
	typeReasoningEnd:            {must("messageId", name)},
	typeReasoningChunk:          {may("messageId", name), may("delta", text)},
	"REASONING_ENCRYPTED_VALUE": {must("subtype", text, "tool-call", "message"), must("entityId", name), must("encryptedValue", text)},

	"SUBAGENT_STARTED": {
		must("subagentRunId", name), must("name", text), may("description", text), may("parentSubagentRunId", text),
		may("parentToolCallId", text), may("parentMessageId", text),
	},
	"SUBAGENT_FINISHED": {must("subagentRunId", name), may("outcome", object)},
	"SUBAGENT_ERROR":    {must("subagentRunId", name), must("message", text), may("code", text)},
}

// fields are an event's, as they were written.
type fields map[string]json.RawMessage

// text is a field's string, empty where it has none.
func (f fields) text(name string) string {
	raw := f[name]
	if len(raw) == 0 || raw[0] != '"' {
		return ""
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return "" // can't be: it is part of what was read as JSON
	}
	return s
}

// check says what is wrong with the fields of an event, nil for nothing.
func (f fields) check(typ string) *ViolationError {
	shape, known := shapes[typ]
	if !known {
		return broken(RuleUnknownType, "AG-UI 1.0 has no such type", "one of its types, or CUSTOM for an event of your own")
	}
	for _, want := range slices.Concat(shape, common) {
		have, there := f[want.name]
		switch {
		case !there && want.required:
			return broken(RuleField, "it has no "+want.name, want.name+" as "+want.kind.String())
		case !there:
		case !want.kind.fits(have):
			return broken(RuleField, want.name+" is "+clip(have), want.kind.String())
		case len(want.oneOf) > 0 && !slices.Contains(want.oneOf, f.text(want.name)):
			return broken(RuleField, want.name+" is "+clip(have), "one of "+strings.Join(want.oneOf, ", "))
		}
	}
	return nil
}

// clip quotes the beginning of what an agent wrote.
func clip(raw json.RawMessage) string {
	const most = 64
	if len(raw) > most {
		return strings.ToValidUTF8(string(raw[:most]), "") + "…"
	}
	return string(raw)
}
