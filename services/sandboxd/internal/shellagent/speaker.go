package shellagent

import (
	"net/http"
	"strings"

	"github.com/holdfast-io/holdfast/services/sandboxd/internal/agui"
)

// toolName is what the agent calls its one tool, in AG-UI and towards policy.
const toolName = "shell"

// speaker writes AG-UI events as server-sent events, each at once. It belongs
// to one goroutine. When the client is gone, what is said is lost; the request's
// context tells the turn.
type speaker struct {
	w     http.ResponseWriter
	flush *http.ResponseController
	// message is the text message that is open; mid whether its last line is.
	message string
	mid     bool
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

// openText begins the message in which a person sees the call.
func (s *speaker) openText(id string) {
	s.message, s.mid = id+"-text", false
	s.event(map[string]string{"type": agui.TypeTextStart, "messageId": s.message, "role": "assistant"})
}

func (s *speaker) text(delta string) {
	s.mid = !strings.HasSuffix(delta, "\n")
	s.event(map[string]string{"type": agui.TypeTextContent, "messageId": s.message, "delta": delta})
}

func (s *speaker) midLine() bool { return s.mid }

func (s *speaker) closeText() {
	s.event(map[string]string{"type": agui.TypeTextEnd, "messageId": s.message})
}
