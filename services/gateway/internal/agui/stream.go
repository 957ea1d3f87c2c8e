package agui

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/holdfast-io/holdfast/events"
)

// writeTimeout is how long one write may take, and as much again for each largeWrite in
// it: the history of a thread may have megabytes.
const (
	writeTimeout = 10 * time.Second
	largeWrite   = 1 << 20
)

// protocolVersion is what is spoken.
const protocolVersion = "1.0"

// stream writes AG-UI events as server-sent events: data alone, lines ended by LF.
type stream struct {
	w           http.ResponseWriter
	control     *http.ResponseController
	header      http.Header
	thread, run string
	begun       bool
	over        bool // the one end was written, or could not be
	order       order
}

func newStream(w http.ResponseWriter, thread, run string) *stream {
	return &stream{
		w: w, control: http.NewResponseController(w), header: w.Header(), thread: thread, run: run, order: newOrder(),
	}
}

// begin writes the head, RUN_STARTED and how the thread stands.
func (s *stream) begin(messages []json.RawMessage, state json.RawMessage) error {
	s.header.Set("Content-Type", "text/event-stream")
	s.header.Set("Cache-Control", "no-store")
	s.header.Set("X-Accel-Buffering", "no") // proxies would collect events
	s.begun = true
	s.w.WriteHeader(http.StatusOK)
	if err := s.write(map[string]string{
		"type": "RUN_STARTED", "threadId": s.thread, "runId": s.run, "protocolVersion": protocolVersion,
	}); err != nil {
		return err
	}
	return s.snapshots(messages, state)
}

// snapshots writes the conversation and the state as they are.
func (s *stream) snapshots(messages []json.RawMessage, state json.RawMessage) error {
	if messages == nil {
		messages = []json.RawMessage{}
	}
	if len(state) == 0 {
		state = json.RawMessage("{}")
	}
	if err := s.write(struct {
		Type     string            `json:"type"`
		Messages []json.RawMessage `json:"messages"`
	}{"MESSAGES_SNAPSHOT", messages}); err != nil {
		return err
	}
	return s.write(struct {
		Type     string          `json:"type"`
		Snapshot json.RawMessage `json:"snapshot"`
	}{"STATE_SNAPSHOT", state})
}

// pass passes an agent's event on, if it may stand here.
func (s *stream) pass(event json.RawMessage) error {
	if !s.order.admit(event) {
		return nil
	}
	return s.raw(event)
}

// finished ends the stream, closing first what the run left open.
func (s *stream) finished(how outcome) error {
	for _, e := range s.order.close() {
		if err := s.write(e); err != nil {
			return err
		}
	}
	return s.end(struct {
		Type     string  `json:"type"`
		ThreadID string  `json:"threadId"`
		RunID    string  `json:"runId"`
		Outcome  outcome `json:"outcome"`
	}{"RUN_FINISHED", s.thread, s.run, how})
}

// failed ends the stream with an error.
func (s *stream) failed(code, message string) error {
	return s.end(map[string]string{"type": "RUN_ERROR", "message": message, "code": code})
}

// end writes the last event. AG-UI has exactly one: whatever comes after the first has
// failed in writing it, and the client is gone.
func (s *stream) end(event any) error {
	if s.over {
		return nil
	}
	s.over = true
	return s.write(event)
}

func (s *stream) write(event any) error {
	raw, err := events.Marshal(event)
	if err != nil {
		return err
	}
	return s.raw(raw)
}

func (s *stream) raw(event []byte) error {
	b := make([]byte, 0, len(event)+8)
	b = append(append(append(b, "data: "...), event...), "\n\n"...)
	return s.send(b)
}

// heartbeat writes a comment, so that nobody on the way takes silence for death.
func (s *stream) heartbeat() error { return s.send([]byte(": heartbeat\n\n")) }

func (s *stream) send(b []byte) error {
	if err := s.control.SetWriteDeadline(time.Now().Add(writeTimeout * time.Duration(1+len(b)/largeWrite))); err != nil {
		return err
	}
	if _, err := s.w.Write(b); err != nil {
		return err
	}
	return s.control.Flush()
}
