package console_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/output"
	"github.com/holdfast-io/holdfast/events/output/natsoutput"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
	"github.com/holdfast-io/holdfast/services/holdfast/parts"
	"github.com/holdfast-io/holdfast/services/internal/broker"
)

// together is how many events of a long history are one command.
const together = 500

// author writes into the log and the stream of a running program as its services
// do, faster than a session could live.
type author struct {
	t     *testing.T
	h     *harness.Holdfast
	lives *eventlog.Store[*session.State]
	says  *natsoutput.Stream
}

func newAuthor(t *testing.T, h *harness.Holdfast) *author {
	t.Helper()
	nc := connect(t, h, broker.UserSession)
	log, err := parts.OpenLog(nc)
	if err != nil {
		t.Fatal(err)
	}
	runner := connect(t, h, broker.UserRunner)
	js, err := jetstream.New(runner)
	if err != nil {
		t.Fatal(err)
	}
	says, err := natsoutput.New(js, runner, natsoutput.Options{})
	if err != nil {
		t.Fatal(err)
	}
	lives := eventlog.NewStore(eventlog.Config[*session.State]{Log: log, New: session.New, Service: events.ServiceSession})
	return &author{t: t, h: h, lives: lives, says: says}
}

func connect(t *testing.T, h *harness.Holdfast, u broker.User) *nats.Conn {
	t.Helper()
	nc, err := h.Connect(h.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// idleOf is the idle timeout that the event with this number sets: its line in the
// timeline says it, so that each can be told from the others.
func idleOf(n int) time.Duration { return time.Hour + time.Duration(n)*time.Second }

// lineOf is the text of that line.
func lineOf(n int) string { return fmt.Sprintf("idle after %s", events.Duration(idleOf(n))) }

// extend appends events to a session until it has come to n.
func (a *author) extend(id string, to int) {
	a.t.Helper()
	subject, err := events.SessionSubject(harness.Tenant, id)
	if err != nil {
		a.t.Fatal(err)
	}
	for done := false; !done; {
		cmd := eventlog.Command{
			ID: events.RandomID(events.PrefixCommand), Actor: events.Actor{Kind: events.ActorService, ID: string(events.ServiceSession)},
		}
		_, err := a.lives.Execute(a.h.Context(), subject, cmd, func(s *session.State, _ time.Time) ([]events.Record, error) {
			payloads := make([]session.Payload, 0, together)
			for n := int(s.N) + 1; n <= to && len(payloads) < together; n++ {
				idle := events.Duration(idleOf(n))
				payloads = append(payloads, session.Extended{Idle: &idle})
			}
			done = len(payloads) < together
			return session.Records(events.ServiceSession, payloads...)
		})
		if err != nil {
			a.t.Fatalf("extend: %v", err)
		}
	}
}

// say publishes AG-UI events as a run's output, as a runner does; first numbers
// the first of them in the run.
func (a *author) say(id, run string, first uint64, said ...map[string]any) {
	a.t.Helper()
	b := output.Batch{Run: run, FirstK: first, LastK: first + uint64(len(said)) - 1, After: a.h.Session(id).N, Time: time.Now().UTC()}
	for _, event := range said {
		raw, err := json.Marshal(event)
		if err != nil {
			a.t.Fatal(err)
		}
		b.Events = append(b.Events, raw)
	}
	if _, err := a.says.Publish(a.h.Context(), harness.Tenant, id, b); err != nil {
		a.t.Fatalf("publish: %v", err)
	}
}

// message is the three events of a whole message.
func message(id, text string) []map[string]any {
	return []map[string]any{
		{"type": "TEXT_MESSAGE_START", "messageId": id, "role": "assistant"},
		{"type": "TEXT_MESSAGE_CONTENT", "messageId": id, "delta": text},
		{"type": "TEXT_MESSAGE_END", "messageId": id},
	}
}
