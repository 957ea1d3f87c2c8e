package shellagent

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-io/holdfast/services/sandboxd/internal/agui"
)

// toolName is what the agent calls its one tool, in AG-UI and towards policy.
const toolName = "shell"

const (
	// messageBytes is how much of a command is said in one text message, as the
	// JSON in which it is kept: a reader bounds a message (Holdfast's at 16 MiB),
	// and a byte may take six when it is written.
	messageBytes = 128 << 10
	// pieceBytes bounds one delta, so that even six times as long it is less than
	// a message, and than the event that sandboxd takes.
	pieceBytes = 16 << 10
)

// speaker writes AG-UI events as server-sent events, each at once. It belongs
// to one goroutine. When the client is gone, what is said is lost; the request's
// context tells the turn.
type speaker struct {
	w     http.ResponseWriter
	flush *http.ResponseController
	// call names the text that is open, part counts its messages, and size is
	// what the last of them has in JSON; mid says whether its last line is open.
	call string
	part int
	size int
	mid  bool
}

func newSpeaker(w http.ResponseWriter) *speaker {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	return &speaker{w: w, flush: http.NewResponseController(w)}
}

// event says one event. JSON has no line breaks, so one data line is enough.
func (s *speaker) event(v any) {
	raw := append(append([]byte("data: "), agui.Encode(v)...), "\n\n"...)
	if _, err := s.w.Write(raw); err == nil {
		_ = s.flush.Flush() // fails only when the client is gone
	}
}

func (s *speaker) state(st state) {
	s.event(struct {
		Type     string `json:"type"`
		Snapshot state  `json:"snapshot"`
	}{agui.TypeStateSnapshot, st})
}

func (s *speaker) toolCall(id string, args callArgs) {
	s.event(map[string]string{"type": agui.TypeToolStart, "toolCallId": id, "toolCallName": toolName})
	s.event(map[string]string{"type": agui.TypeToolArgs, "toolCallId": id, "delta": string(agui.Encode(args))})
	s.event(map[string]string{"type": agui.TypeToolEnd, "toolCallId": id})
}

// toolResult says what came of a call, as JSON in the content.
func (s *speaker) toolResult(id string, result map[string]any) {
	s.event(map[string]string{
		"type": agui.TypeToolResult, "messageId": id + "-result", "toolCallId": id, "role": "tool",
		"content": string(agui.Encode(result)),
	})
}

// openText begins what a person sees of the call: one text message, or several
// when it is long.
func (s *speaker) openText(id string) {
	s.call, s.part, s.mid = id, 0, false
	s.openMessage()
}

func (s *speaker) openMessage() {
	s.part, s.size = s.part+1, 0
	s.event(map[string]string{"type": agui.TypeTextStart, "messageId": s.messageID(), "role": "assistant"})
}

func (s *speaker) messageID() string {
	if s.part == 1 {
		return s.call + "-text"
	}
	return s.call + "-text-" + strconv.Itoa(s.part)
}

// text says more, in a further message where the open one has no room.
func (s *speaker) text(text string) {
	for text != "" {
		n := min(len(text), pieceBytes)
		for n < len(text) && n > pieceBytes-utf8.UTFMax && !utf8.RuneStart(text[n]) {
			n--
		}
		s.piece(text[:n])
		text = text[n:]
	}
}

func (s *speaker) piece(delta string) {
	size := jsonBytes(delta)
	if s.size+size > messageBytes {
		s.closeText()
		s.openMessage()
	}
	s.size += size
	s.mid = !strings.HasSuffix(delta, "\n")
	s.event(map[string]string{"type": agui.TypeTextContent, "messageId": s.messageID(), "delta": delta})
}

// jsonBytes is the length of a string in JSON at its longest: escaped for HTML too.
func jsonBytes(text string) int {
	raw, err := json.Marshal(text)
	if err != nil { // a string always encodes
		panic(err)
	}
	return len(raw)
}

func (s *speaker) midLine() bool { return s.mid }

func (s *speaker) closeText() {
	s.event(map[string]string{"type": agui.TypeTextEnd, "messageId": s.messageID()})
}
