package view

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
)

// FrameKind says what a frame's data is.
type FrameKind string

// The kinds of frame: agui carries an array of AG-UI events, event an [Event],
// prompt an [Approval] as it stood, control is the gateway's own.
const (
	FrameAgui    FrameKind = "agui"
	FrameEvent   FrameKind = "event"
	FramePrompt  FrameKind = "prompt"
	FrameControl FrameKind = "control"
)

// Frame is what a viewer gets. The gateway adds Cursor.
type Frame struct {
	Cursor  string          `json:"cursor"`
	Session string          `json:"session,omitempty"`
	N       uint64          `json:"n,omitempty"`
	Time    time.Time       `json:"time"`
	Kind    FrameKind       `json:"kind"`
	Data    json.RawMessage `json:"data"`

	// Run and LastK are, of an agui frame, the run and the number in it of its last
	// event. They are for readers inside the gateway, not part of the wire.
	Run   string `json:"-"`
	LastK uint64 `json:"-"`
}

// Event is the data of an event frame: one event of the log, masked.
type Event struct {
	Type    string          `json:"type"`
	V       int             `json:"v"`
	Actor   string          `json:"actor"`
	Service events.Service  `json:"service"`
	Command string          `json:"command"`
	Cause   string          `json:"cause,omitempty"`
	Data    json.RawMessage `json:"data"`
}

// prompts are the events that put a question or settle one, with the state that
// the call has in the frame.
var prompts = map[string]session.CallState{
	session.TypeCallHumanConfirmRequired: session.CallStatePending,
	session.TypeCallApproved:             session.CallStateApproved,
	session.TypeCallDenied:               session.CallStateDenied,
	session.TypeCallExpired:              session.CallStateExpired,
	session.TypeCallCancelled:            session.CallStateCancelled,
	session.TypeCallSuperseded:           session.CallStateSuperseded,
}

// Frames gives one frame for each event of m, in order. st is the session as of
// the whole message. An event that settles a call which nobody was asked about is
// an event frame.
func Frames(st *session.State, m events.Message) []Frame {
	mask := ForSession(st)
	frames := make([]Frame, len(m.Envelope.Events))
	for i, r := range m.Envelope.Events {
		meta := m.MetaAt(i)
		f := Frame{Session: st.ID, N: meta.N, Time: meta.Time, Kind: FrameEvent}
		if call, state := promptOf(st, r); call != nil {
			a := approvalOf(mask, st, call)
			a.State, a.N = state, meta.N
			if !state.Answered() {
				a.Decision = nil
			}
			f.Kind, f.Data = FramePrompt, mustJSON(a)
		} else {
			f.Data = mustJSON(eventOf(mask, m.Envelope, r))
		}
		frames[i] = f
	}
	return frames
}

// promptOf finds the call of an event that is shown as a prompt.
func promptOf(st *session.State, r events.Record) (*session.Call, session.CallState) {
	state, ok := prompts[r.Type]
	if !ok {
		return nil, ""
	}
	var p struct {
		CallID string `json:"callId"`
	}
	if err := json.Unmarshal(r.Data, &p); err != nil {
		return nil, ""
	}
	c := st.Calls[p.CallID]
	if c == nil || c.Asked == nil {
		return nil, ""
	}
	return c, state
}

func eventOf(mask Masker, e events.Envelope, r events.Record) Event {
	return Event{
		Type: r.Type, V: r.V, Actor: Principal(e.Actor), Service: e.Service, Command: e.Command, Cause: e.Cause,
		Data: mask.Payload(r.Data),
	}
}

// Agui gives the data of an agui frame from the events of an OUTPUT batch.
func Agui(mask Masker, batch []json.RawMessage) json.RawMessage {
	masked := make([]json.RawMessage, len(batch))
	for i, e := range batch {
		masked[i] = mask.Agui(e)
	}
	return mustJSON(masked)
}

// mustJSON encodes what is made of strings, numbers and JSON that was decoded
// before: it can't fail.
func mustJSON(v any) json.RawMessage {
	b, err := events.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("view: encode %T: %v", v, err))
	}
	return b
}
