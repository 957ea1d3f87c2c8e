// Command agent is an AG-UI agent for tests, as any framework might have one behind
// its server: it knows nothing of Holdfast. What it does follows from the last message
// of its input:
//
//	pick        calls the client's tool "pick" and ends, naming it as pending
//	pick old    the same without naming it, as agents did before AG-UI 1.0
//	slow N      says N words, one every 50 ms
//	fail        ends with RUN_ERROR
//	a tool's    says what the client picked
//	any other   says it again, and counts it in its state
package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

type message struct {
	ID         string          `json:"id"`
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	ToolCallID string          `json:"toolCallId"`
}

type input struct {
	ThreadID string    `json:"threadId"`
	RunID    string    `json:"runId"`
	Messages []message `json:"messages"`
	Tools    []struct {
		Name string `json:"name"`
	} `json:"tools"`
}

func main() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /run", run)
	server := &http.Server{Addr: "127.0.0.1:8000", Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	slog.Error("can't serve", "err", server.ListenAndServe())
	os.Exit(1)
}

// speaker writes events as they are said.
type speaker struct {
	w  http.ResponseWriter
	in input
}

func (s speaker) say(event map[string]any) {
	raw, err := json.Marshal(event)
	if err != nil {
		slog.Error("can't say an event", "err", err)
		return
	}
	fmt.Fprintf(s.w, "data: %s\n\n", raw)
	_ = http.NewResponseController(s.w).Flush() // a reader that is gone is no news
}

func (s speaker) text(id string, pause time.Duration, words ...string) {
	s.say(map[string]any{"type": "TEXT_MESSAGE_START", "messageId": id, "role": "assistant"})
	for _, w := range words {
		s.say(map[string]any{"type": "TEXT_MESSAGE_CONTENT", "messageId": id, "delta": w})
		time.Sleep(pause) //nolint:forbidigo // how fast it speaks is what its callers ask for
	}
	s.say(map[string]any{"type": "TEXT_MESSAGE_END", "messageId": id})
}

func (s speaker) finish(outcome map[string]any) {
	event := map[string]any{"type": "RUN_FINISHED", "threadId": s.in.ThreadID, "runId": s.in.RunID}
	if outcome != nil {
		event["outcome"] = outcome
	}
	s.say(event)
}

func run(w http.ResponseWriter, r *http.Request) {
	var in input
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || len(in.Messages) == 0 {
		http.Error(w, "not an input with messages", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	s := speaker{w, in}
	s.say(map[string]any{"type": "RUN_STARTED", "threadId": in.ThreadID, "runId": in.RunID})
	last := in.Messages[len(in.Messages)-1]
	var said string
	if json.Unmarshal(last.Content, &said) != nil {
		said = string(last.Content)
	}
	verb, arg, _ := strings.Cut(said, " ")
	switch {
	case last.Role == "tool":
		s.text("said-"+in.RunID, 0, "you picked: ", said)
	case verb == "pick":
		s.pick(arg != "old")
		return
	case verb == "slow":
		n, _ := strconv.Atoi(arg)
		words := make([]string, n)
		for i := range words {
			words[i] = fmt.Sprintf("w%d ", i)
		}
		s.text("said-"+in.RunID, 50*time.Millisecond, words...)
	case verb == "fail":
		s.say(map[string]any{"type": "RUN_ERROR", "message": "this agent fails when told to", "code": "told-to"})
		return
	default:
		s.text("said-"+in.RunID, 0, "again: ", said)
		s.say(map[string]any{"type": "STATE_SNAPSHOT", "snapshot": map[string]any{"messages": len(in.Messages)}})
	}
	s.finish(nil)
}

// pick calls the client's tool, if it has one.
func (s speaker) pick(named bool) {
	if len(s.in.Tools) == 0 {
		s.text("said-"+s.in.RunID, 0, "there is nothing to pick with")
		s.finish(nil)
		return
	}
	id := "pick-" + s.in.RunID
	s.say(map[string]any{"type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": s.in.Tools[0].Name})
	s.say(map[string]any{"type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": `{"from":["red","blue"]}`})
	s.say(map[string]any{"type": "TOOL_CALL_END", "toolCallId": id})
	var outcome map[string]any
	if named {
		outcome = map[string]any{"type": "success", "pendingToolCallIds": []string{id}}
	}
	s.finish(outcome)
}
