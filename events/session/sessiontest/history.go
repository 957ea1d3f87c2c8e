// Package sessiontest draws random legal histories of a session: what the four
// services could have appended, in any order that the design allows. Properties of
// the fold and the invariants' checker run over them.
package sessiontest

import (
	"encoding/json"
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
)

// Start is when every history begins.
var Start = time.Date(2026, 5, 4, 8, 0, 0, 0, time.UTC)

// walk is a history on its way.
type walk struct {
	t       *rapid.T
	subject string
	prefix  string // makes Pod UIDs and ids differ between sessions
	state   *session.State
	history []events.Message
	now     time.Time
	ids     int
	seq     uint64
}

// Draw makes a legal history of up to steps messages on a subject. Their stream
// sequences are their places in the history, from firstSeq on.
func Draw(t *rapid.T, subject string, firstSeq uint64, steps int) []events.Message {
	w := &walk{t: t, subject: subject, state: session.New(), now: Start, seq: firstSeq - 1}
	a, ok := events.ParseSubject(subject)
	if !ok {
		t.Fatalf("%s is not a session's subject", subject)
	}
	w.prefix = a.Key
	w.append(events.ServiceSession, session.Created{
		Owner: "alice", Runtime: session.RuntimeRef{Name: "shell", Revision: 1}, Terms: w.terms(), Labels: map[string]string{"a": "b"},
	})
	for range steps {
		var enabled []move
		for _, m := range moves {
			if m.enabled(w.state, w.now) {
				enabled = append(enabled, m)
			}
		}
		if len(enabled) == 0 {
			break // ended
		}
		w.now = w.now.Add(time.Duration(rapid.IntRange(0, 240).Draw(t, "seconds")) * time.Second)
		m := rapid.SampledFrom(enabled).Draw(t, "move")
		if !m.enabled(w.state, w.now) { // time went on
			continue
		}
		w.append(m.service, m.make(w)...)
	}
	return w.history
}

func (w *walk) terms() session.Terms {
	return session.Terms{
		Kind: "agent", Adapter: "agui", Policy: "coder",
		OnIdle:   rapid.SampledFrom([]string{"suspend", "end"}).Draw(w.t, "onIdle"),
		OnLoss:   rapid.SampledFrom([]string{"restart", "end"}).Draw(w.t, "onLoss"),
		Suspends: rapid.Bool().Draw(w.t, "suspends"),
		Claim:    events.Duration(time.Minute), Idle: events.Duration(15 * time.Minute),
		Max:                 events.Duration(rapid.SampledFrom([]time.Duration{30 * time.Minute, 8 * time.Hour}).Draw(w.t, "max")),
		SuspendWhileWaiting: events.Duration(2 * time.Minute), DrainGrace: events.Duration(30 * time.Second),
	}
}

func (w *walk) id(kind string) string {
	w.ids++
	return fmt.Sprintf("%s-%s-%d", kind, w.prefix, w.ids)
}

// append stores a message of one service and folds it in.
func (w *walk) append(service events.Service, payloads ...session.Payload) {
	records, err := session.Records(service, payloads...)
	if err != nil {
		w.t.Fatalf("records: %v", err)
	}
	actor := events.Actor{Kind: events.ActorService, ID: string(service)}
	if _, vote := payloads[0].(session.CallVoteCast); vote {
		actor = events.Actor{Kind: events.ActorPerson, ID: "bob"}
	}
	w.seq++
	m := events.Message{Subject: w.subject, Seq: w.seq, Envelope: events.Envelope{
		Command: w.id("cmd"), Actor: actor, Service: service, N: w.state.N + 1, Prev: w.state.Seq, Time: w.now, Events: records,
	}}
	if m.Raw, err = m.Envelope.Encode(); err != nil {
		w.t.Fatalf("encode: %v", err)
	}
	// As a reader gets it: decoded from the bytes.
	if m.Envelope, err = events.DecodeEnvelope(m.Raw); err != nil {
		w.t.Fatalf("decode: %v", err)
	}
	if err := w.state.Apply(m); err != nil {
		w.t.Fatalf("apply: %v", err)
	}
	w.history = append(w.history, m)
}

// args are a call's arguments, canonical, with their hash.
func (w *walk) args() (json.RawMessage, string) {
	raw, err := events.Marshal(map[string]string{"command": rapid.SampledFrom([]string{"ls", "a > b && c", "echo é"}).Draw(w.t, "command")})
	if err != nil {
		w.t.Fatalf("args: %v", err)
	}
	canonical, hash, err := events.CanonicalArgs(raw)
	if err != nil {
		w.t.Fatalf("args: %v", err)
	}
	return canonical, hash
}

// callIn draws one of the calls in a state that the open run's chain may touch.
func (w *walk) callIn(states ...session.CallState) *session.Call {
	return w.state.Calls[rapid.SampledFrom(callsIn(w.state, states...)).Draw(w.t, "call")]
}

func callsIn(s *session.State, states ...session.CallState) []string {
	var ids []string
	for _, id := range s.CallOrder {
		for _, st := range states {
			if s.Calls[id].State == st {
				ids = append(ids, id)
			}
		}
	}
	return ids
}
