package harness

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/session"
)

// openLog opens the log until the test ends.
func (h *Sessions) openLog() eventlog.Log {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	log, closeLog, err := h.log(ctx)
	if err != nil {
		h.t.Fatalf("open the log: %v", err)
	}
	h.t.Cleanup(closeLog)
	return log
}

// Fact is one event of a session as the log holds it.
type Fact struct {
	// N is the session's version, Meta the message that it came in.
	N       uint64
	Message events.Message
	Type    string
	Payload session.Payload
}

// Facts reads all events of a session from the log, first things first.
func (h *Sessions) Facts(id string) []Fact {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	log, closeLog, err := h.log(ctx)
	if err != nil {
		h.t.Fatalf("open the log: %v", err)
	}
	defer closeLog()
	return Facts(ctx, h.t, log, id)
}

// Facts is Sessions.Facts with a log.
func Facts(ctx context.Context, t testing.TB, log eventlog.Log, id string) []Fact {
	t.Helper()
	subject, err := events.SessionSubject(Tenant, id)
	if err != nil {
		t.Fatal(err)
	}
	m, ok, err := log.Last(ctx, subject)
	var messages []events.Message
	for ; ok && err == nil; m, err = log.Get(ctx, m.Envelope.Prev) {
		if m, err = log.Whole(ctx, m); err != nil {
			break
		}
		messages = append(messages, m)
		if m.Envelope.Prev == 0 {
			break
		}
	}
	if err != nil {
		t.Fatalf("read the log: %v", err)
	}
	var facts []Fact
	for _, m := range slices.Backward(messages) {
		for i, r := range m.Envelope.Events {
			p, err := session.Decode(r, m.Envelope.Service)
			if err != nil {
				t.Fatalf("event %s of %s: %v", r.Type, id, err)
			}
			facts = append(facts, Fact{N: m.MetaAt(i).N, Message: m, Type: r.Type, Payload: p})
		}
	}
	return facts
}

// Of gives the payloads of one kind, in order.
func Of[P session.Payload](facts []Fact) []P {
	var of []P
	for _, f := range facts {
		if p, ok := f.Payload.(P); ok {
			of = append(of, p)
		}
	}
	return of
}

// One gives the only payload of a kind and fails the test where there is another
// number of them.
func One[P session.Payload](h *Holdfast, id string) P {
	h.t.Helper()
	var none P
	of := Of[P](h.Facts(id))
	if len(of) != 1 {
		h.t.Fatalf("%d events like %T in %s, want one", len(of), none, id)
	}
	return of[0]
}

// Said gives what the agent said in a run: its assistant messages.
func Said(facts []Fact, run string) string {
	var said strings.Builder
	for _, m := range Of[session.RunMessageRecorded](facts) {
		var message struct {
			Content string `json:"content"`
		}
		if m.RunID == run && m.Role == "assistant" && json.Unmarshal(m.Message, &message) == nil {
			said.WriteString(message.Content)
		}
	}
	return said.String()
}
