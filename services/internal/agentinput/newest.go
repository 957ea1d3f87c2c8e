package agentinput

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/holdfast-io/holdfast/events"
)

// MaxHistory bounds the messages of an input, in bytes. A conversation has no bound,
// and what takes an input does: sandboxd refuses one of more than 64 MiB. Half of that
// holds a message of the largest size and its answer, leaves room for the state, and is
// more than any model reads at once.
const MaxHistory = 32 << 20

// OmittedID is the id of the message that stands for those left out.
const OmittedID = "holdfast-omitted"

// message has the fields of an AG-UI message that say what it belongs to.
type message struct {
	Role       string `json:"role"`
	ToolCallID string `json:"toolCallId"`
	ToolCalls  []struct {
		ID string `json:"id"`
	} `json:"toolCalls"`
}

// Newest gives a conversation as an input has it: whole, or where it has more bytes
// than limit, its newest part behind a message that says so.
func Newest(history []json.RawMessage, limit int) ([]json.RawMessage, error) {
	return newest(history, limit)
}

// newest gives the messages as they are if they have at most limit bytes, else the
// longest end of them that fits and begins with a user's message, behind one that says
// how many are left out. A tool's result stays with its call.
//
// Where not even all from the user's last message on fits, that message is kept, as
// the run answers it, and behind it what fits of the newest.
func newest(history []json.RawMessage, limit int) ([]json.RawMessage, error) {
	if size(history...) <= limit {
		return append([]json.RawMessage{}, history...), nil // an array, never null
	}
	read, err := decode(history)
	if err != nil {
		return nil, err
	}
	cuts := cutsOf(read)
	kept := history[fitting(history, limit, func(i int) bool { return cuts[i] && read[i].Role == "user" }):]
	if len(kept) == 0 {
		asked := lastUser(read)
		question := history[max(asked, 0) : asked+1] // none where no user ever wrote
		rest := fitting(history, limit-size(question...), func(i int) bool { return cuts[i] && i > asked })
		kept = slices.Concat(question, history[rest:])
	}
	marker, err := events.Marshal(map[string]string{
		"id": OmittedID, "role": "developer",
		"content": fmt.Sprintf("%d earlier messages are left out of this input; the session's log has them.", len(history)-len(kept)),
	})
	if err != nil {
		return nil, fmt.Errorf("message %s: %w", OmittedID, err)
	}
	return append([]json.RawMessage{marker}, kept...), nil
}

// fitting gives the first place from which on all fits into limit and which may begin
// what is kept; the history's end where there is none.
func fitting(history []json.RawMessage, limit int, may func(i int) bool) int {
	first := len(history)
	for i, left := len(history)-1, limit; i >= 0; i-- {
		if left -= size(history[i]); left < 0 {
			break
		}
		if may(i) {
			first = i
		}
	}
	return first
}

// size is what messages take in an array.
func size(messages ...json.RawMessage) int {
	n := 0
	for _, m := range messages {
		n += len(m) + len(",")
	}
	return n
}

// decode reads what the messages say of themselves.
func decode(history []json.RawMessage) ([]message, error) {
	read := make([]message, len(history))
	for i, raw := range history {
		if err := json.Unmarshal(raw, &read[i]); err != nil {
			return nil, fmt.Errorf("message %d of the conversation: %w", i, err)
		}
	}
	return read, nil
}

// cutsOf says for each place whether it parts no tool's result from its call.
func cutsOf(read []message) []bool {
	calls := map[string]int{} // where each was made
	needs := make([]int, len(read))
	for i, m := range read {
		needs[i] = i
		for _, c := range m.ToolCalls {
			calls[c.ID] = i
		}
		if at, ok := calls[m.ToolCallID]; ok && m.Role == "tool" {
			needs[i] = at
		}
	}
	cuts, first := make([]bool, len(read)), len(read)
	for i := len(read) - 1; i >= 0; i-- {
		first = min(first, needs[i])
		cuts[i] = first >= i
	}
	return cuts
}

// lastUser is the place of the user's last message; -1 for none.
func lastUser(read []message) int {
	for i, m := range slices.Backward(read) {
		if m.Role == "user" {
			return i
		}
	}
	return -1
}
