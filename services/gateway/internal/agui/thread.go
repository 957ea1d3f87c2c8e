package agui

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/projections/view"
	"github.com/holdfast-io/holdfast/services/gateway/internal/auth"
	"github.com/holdfast-io/holdfast/services/internal/agentinput"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
)

func asTooLarge(err error) (*http.MaxBytesError, bool) {
	return errors.AsType[*http.MaxBytesError](err)
}

// sessionOf is the session of a thread: the same client, and nobody else, finds it
// again.
func sessionOf(who auth.Principal, runtime, thread string) string {
	return events.HashID(events.PrefixSession, who.Tenant, who.Name, "agui", runtime, thread)
}

func runOf(session, run string) string { return events.HashID(events.PrefixRun, session, "agui", run) }

func messageOf(session, id string) string {
	return events.HashID(events.PrefixMessage, session, "agui", id)
}

// maxSnapshot bounds the conversation that a stream tells: the official client takes
// events of up to 10 MiB.
const maxSnapshot = 8 << 20

// standing is how a thread was when it was read.
type standing struct {
	id string
	// n is the version that was read; what comes behind it is new. 0 where there is
	// no session yet.
	n           uint64
	run         *session.Run
	interrupted *session.Parked
	queue       []string
	// before is the conversation up to what the open run says, waiting the messages
	// of runs that haven't started.
	before, waiting []json.RawMessage
	// all is the conversation with what the open run has said.
	all   []json.RawMessage
	state json.RawMessage
	last  *session.RunEnd
	mask  view.Masker
	// known are the ids of all messages of the conversation.
	known map[string]bool
}

// standingOf copies what is needed of a thread, which may be read only meanwhile.
func standingOf(t *agentinput.Thread) (*standing, error) {
	s := &standing{id: t.ID, n: t.N, mask: view.ForSession(t.State), known: map[string]bool{}}
	if len(t.History.AgentState) > 0 {
		s.state = s.mask.JSON(t.History.AgentState)
	}
	if t.History.Last != nil {
		last := *t.History.Last
		last.Detail = s.mask.Text(last.Detail)
		s.last = &last
	}
	if t.Run != nil {
		run := *t.Run
		s.run = &run
	}
	if t.Interrupted != nil {
		parked := *t.Interrupted
		s.interrupted = &parked
	}
	said := t.History.Messages
	for _, q := range t.Queue {
		s.queue = append(s.queue, q.RunID)
		s.waiting = append(s.waiting, t.History.Waiting(q.RunID)...)
	}
	for _, m := range slices.Concat(said, s.waiting) {
		var id struct {
			ID string `json:"id"`
		}
		if err := json.Unmarshal(m, &id); err != nil {
			return nil, fmt.Errorf("a message of session %s: %w", t.ID, err)
		}
		s.known[id.ID] = true
	}
	kept, err := agentinput.Newest(said, maxSnapshot)
	if err != nil {
		return nil, err
	}
	s.all, s.waiting = masked(s.mask, kept), masked(s.mask, s.waiting)
	s.before = s.all
	if s.run != nil {
		if kept, err = agentinput.Newest(said[:t.History.Opened], maxSnapshot); err != nil {
			return nil, err
		}
		s.before = masked(s.mask, kept)
	}
	return s, nil
}

func masked(mask view.Masker, messages []json.RawMessage) []json.RawMessage {
	out := make([]json.RawMessage, len(messages))
	for i, m := range messages {
		out[i] = mask.JSON(m)
	}
	return out
}

// knows says whether a client's message is in the log, under its own id or under the
// one that was made of it.
func (s *standing) knows(id string) bool { return s.known[id] || s.known[messageOf(s.id, id)] }

// news is what of a request is new to the log.
type news struct {
	messages []verbs.UserMessage
	results  []verbs.DeliverBody
}

// results are AG-UI events that tell what the log has of tool calls which nobody else
// has answered in the stream: the client's own, that were refused or have lapsed.
func (s *standing) results(toolCalls []string) []json.RawMessage {
	var out []json.RawMessage
	for _, m := range s.all {
		var tool struct {
			ID         string          `json:"id"`
			Role       string          `json:"role"`
			ToolCallID string          `json:"toolCallId"`
			Content    json.RawMessage `json:"content"`
		}
		if json.Unmarshal(m, &tool) != nil || tool.Role != roleTool || !slices.Contains(toolCalls, tool.ToolCallID) {
			continue
		}
		raw, err := json.Marshal(map[string]any{
			"type": "TOOL_CALL_RESULT", "messageId": tool.ID, "toolCallId": tool.ToolCallID, "role": roleTool, "content": tool.Content,
		})
		if err == nil { // it was JSON before
			out = append(out, raw)
		}
	}
	return out
}

// newsOf picks the new messages of the user and the new results of tools. Everything
// else that a client says of the conversation the log knows better.
func newsOf(s *standing, in *input) (news, error) {
	var n news
	size := 0
	for i, m := range in.Messages {
		if s.knows(m.ID) || m.Role != roleUser && m.Role != roleTool {
			continue
		}
		size += len(m.Content) + len(m.Error)
		at := fmt.Sprintf("/messages/%d", i)
		if len(m.Content) == 0 || string(m.Content) == "null" {
			return n, problem.New(api.CodeInvalidRequest, "A message has to have content.").At(at+"/content", "is missing")
		}
		if m.Role == roleUser {
			if m.Content[0] != '"' && m.Content[0] != '[' {
				return n, problem.New(api.CodeInvalidRequest, "A user's message is a text or a list of parts.").At(at+"/content", "is neither a string nor an array")
			}
			n.messages = append(n.messages, verbs.UserMessage{ID: messageOf(s.id, m.ID), Content: m.Content})
			continue
		}
		if m.ToolCallID == "" {
			return n, problem.New(api.CodeInvalidRequest, "A tool's message has to name its call.").At(at+"/toolCallId", "is missing")
		}
		n.results = append(n.results, verbs.DeliverBody{
			ToolCallID: m.ToolCallID, MessageID: messageOf(s.id, m.ID), Content: textOf(m.Content), Error: m.Error,
		})
	}
	switch {
	case size > maxNew || len(n.messages)+len(n.results) > maxNewCount:
		return n, problem.Newf(api.CodePayloadTooLarge, "New messages may have %d bytes together and be %d at most.", maxNew, maxNewCount)
	case in.cancel && len(n.messages)+len(n.results)+len(in.Resume) > 0:
		return n, problem.New(api.CodeInvalidRequest, "A request that cancels brings nothing else.").At("/forwardedProps/holdfast/cancel", "with new messages or answers")
	}
	return n, nil
}

// textOf gives a tool's result as text: what isn't a string is kept as its JSON.
func textOf(content json.RawMessage) string {
	var s string
	if json.Unmarshal(content, &s) == nil {
		return s
	}
	return string(content)
}
