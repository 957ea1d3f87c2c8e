package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// notes is in the workspace, where the agent is started.
const notes = "notes.txt"

// input is what of RunAgentInput this agent reads.
type input struct {
	ThreadID string `json:"threadId"`
	RunID    string `json:"runId"`
	Messages []struct {
		ID, Role string
		Content  json.RawMessage
	} `json:"messages"`
	State  state `json:"state"`
	Resume []struct {
		InterruptID, Status string
		Payload             struct {
			Approved bool
			Reason   string
		}
	} `json:"resume"`
}

// state is what a run leaves for the next one.
type state struct {
	Waiting *waiting `json:"waiting,omitempty"`
}

// waiting is the question that a run parked at.
type waiting struct {
	CallID   string `json:"callId"`
	Text     string `json:"text"`
	Call     string `json:"call"`
	ArgsHash string `json:"argsHash"`
}

// event is one event of AG-UI.
type event map[string]any

// run is one turn.
type run struct {
	h     holdfast
	in    input
	k     uint64 // events that were taken
	texts int
}

// say sends events. Sent again they are the same events by their numbers, so that
// nothing is said twice.
func (r *run) say(ctx context.Context, events ...event) error {
	if err := r.h.events(ctx, r.in.RunID, r.k+1, events); err != nil {
		return err
	}
	r.k += uint64(len(events))
	return nil
}

// text says a message of the agent's.
func (r *run) text(ctx context.Context, pieces ...string) error {
	r.texts++
	id := fmt.Sprintf("%s-%d", r.in.RunID, r.texts)
	said := []event{{"type": "TEXT_MESSAGE_START", "messageId": id, "role": "assistant"}}
	for _, p := range pieces {
		said = append(said, event{"type": "TEXT_MESSAGE_CONTENT", "messageId": id, "delta": p})
	}
	return r.say(ctx, append(said, event{"type": "TEXT_MESSAGE_END", "messageId": id})...)
}

func (r *run) work(ctx context.Context) error {
	if err := r.say(ctx, event{"type": "RUN_STARTED", "threadId": r.in.ThreadID, "runId": r.in.RunID}); err != nil {
		return err
	}
	outcome, err := event{"type": "success"}, error(nil)
	if len(r.in.Resume) > 0 {
		err = r.answered(ctx)
	} else if asked, e := r.message(ctx); asked != nil || e != nil {
		outcome, err = asked, e
	}
	if err != nil {
		return err
	}
	return r.say(ctx, event{"type": "RUN_FINISHED", "threadId": r.in.ThreadID, "runId": r.in.RunID, "outcome": outcome})
}

// message does what the newest message of a user says; it gives an outcome where it
// has to wait for an answer.
func (r *run) message(ctx context.Context) (outcome event, err error) {
	var id, said string
	for _, m := range r.in.Messages {
		if m.Role != "user" {
			continue
		}
		if id = m.ID; json.Unmarshal(m.Content, &said) != nil {
			return nil, errors.New("a message that isn't plain text")
		}
	}
	verb, rest, _ := strings.Cut(said, " ")
	switch {
	case said == "config":
		config, err := r.h.config(ctx)
		if err != nil {
			return nil, err
		}
		return nil, r.text(ctx, string(config))
	case said == "show":
		return nil, r.show(ctx)
	case verb == "count":
		n, err := strconv.Atoi(rest)
		if err != nil {
			return nil, err
		}
		return nil, r.count(ctx, n)
	case verb == "note":
		return r.note(ctx, "note-"+id, rest, "park")
	case verb == "hold":
		return r.note(ctx, "note-"+id, strings.TrimPrefix(rest, "note "), "hold")
	}
	return nil, r.text(ctx, said)
}

func (r *run) show(ctx context.Context) error {
	raw, err := os.ReadFile(notes)
	if errors.Is(err, os.ErrNotExist) {
		return r.text(ctx, "nothing yet")
	}
	if err != nil {
		return err
	}
	return r.text(ctx, string(raw))
}

// count says a number each tenth of a second, until the run is cancelled.
func (r *run) count(ctx context.Context, n int) error {
	id := r.in.RunID + "-count"
	if err := r.say(ctx, event{"type": "TEXT_MESSAGE_START", "messageId": id, "role": "assistant"}); err != nil {
		return err
	}
	for i := range n {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := r.say(ctx, event{"type": "TEXT_MESSAGE_CONTENT", "messageId": id, "delta": fmt.Sprintf("%d ", i)}); err != nil {
			return err
		}
	}
	return r.say(ctx, event{"type": "TEXT_MESSAGE_END", "messageId": id})
}

// note asks whether a note may be written, and writes it once it may.
func (r *run) note(ctx context.Context, callID, text, mode string) (outcome event, err error) {
	args, err := json.Marshal(map[string]string{"text": text})
	if err != nil {
		return nil, err
	}
	if err := r.say(ctx,
		event{"type": "TOOL_CALL_START", "toolCallId": callID, "toolCallName": "write_note"},
		event{"type": "TOOL_CALL_ARGS", "toolCallId": callID, "delta": string(args)},
		event{"type": "TOOL_CALL_END", "toolCallId": callID},
	); err != nil {
		return nil, err
	}
	v, err := r.h.ask(ctx, r.in.RunID, callID, args, mode)
	if err != nil {
		return nil, err
	}
	w := waiting{CallID: callID, Text: text, Call: v.Call, ArgsHash: v.ArgsHash}
	if v.Decision != "" {
		return nil, r.do(ctx, w, v.Decision == "allow", v.Reason)
	}
	// Park: what the next run needs goes into the state, and the run ends with the question.
	return event{"type": "interrupt", "interrupts": []event{
			{"id": v.Call, "reason": "tool_call", "toolCallId": callID, "message": "May I write that down?"},
		}},
		r.say(ctx, event{"type": "STATE_SNAPSHOT", "snapshot": state{Waiting: &w}})
}

// answered goes on where the run before parked.
func (r *run) answered(ctx context.Context) error {
	w, answer := r.in.State.Waiting, r.in.Resume[0]
	if w == nil || w.Call != answer.InterruptID {
		return errors.New("an answer to another question")
	}
	reason := answer.Payload.Reason
	if reason == "" {
		reason = answer.Status
	}
	if err := r.do(ctx, *w, answer.Payload.Approved, reason); err != nil {
		return err
	}
	return r.say(ctx, event{"type": "STATE_SNAPSHOT", "snapshot": state{}})
}

// do claims the call, which can be done once, does it, and reports what came of it.
func (r *run) do(ctx context.Context, w waiting, allowed bool, reason string) error {
	result := "not written: " + reason
	if allowed {
		nonce := rand.Text()
		if err := r.h.start(ctx, w.Call, r.in.RunID, w.ArgsHash, nonce); err != nil {
			return err
		}
		if err := appendNote(w.Text); err != nil {
			return err
		}
		if err := r.h.result(ctx, w.Call, r.in.RunID, nonce); err != nil {
			return err
		}
		result = "written"
	}
	if err := r.say(ctx, event{
		"type": "TOOL_CALL_RESULT", "messageId": r.in.RunID + "-result", "toolCallId": w.CallID, "content": result,
	}); err != nil {
		return err
	}
	return r.text(ctx, result)
}

func appendNote(text string) error {
	f, err := os.OpenFile(notes, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text + "\n")
	return errors.Join(err, f.Close())
}
