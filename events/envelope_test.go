package events_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/events"
)

// envelope is one with every field set, as today's build writes it.
func envelope() events.Envelope {
	return events.Envelope{
		Command: "cmd-1", Actor: events.Actor{Kind: events.ActorPerson, ID: "alice"}, Service: events.ServicePolicy,
		Cause: "seq:7", N: 3, Prev: 8, Time: time.Date(2026, 5, 4, 8, 0, 0, 123456789, time.UTC),
		Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Kid: "k1",
		Blob:   &events.Blob{SHA256: "00ff", Size: 300000},
		Events: []events.Record{{Type: "a.b", V: 1, Data: json.RawMessage(`{"command":"a > b && c"}`)}, {Type: "a.c", V: 2, Data: json.RawMessage(`1`)}},
	}
}

// The fixture is what was stored by the first version; it is read for ever.
func TestEnvelopeFixture(t *testing.T) {
	stored, err := os.ReadFile("testdata/envelope.v1.json")
	if err != nil {
		t.Fatal(err)
	}
	stored = bytes.TrimSpace(stored)
	got, err := events.DecodeEnvelope(stored)
	if err != nil || !reflect.DeepEqual(got, envelope()) { //nolint:govet // no record is lost, so none has an error
		t.Fatalf("decodes to %+v, %v", got, err)
	}
	if again, err := got.Encode(); err != nil || !bytes.Equal(again, stored) {
		t.Errorf("encodes as\n%s\n(%v), stored as\n%s", again, err, stored)
	}
	if got.LastN() != 4 || got.Types() != "a.b,a.c" {
		t.Errorf("last n %d, types %s", got.LastN(), got.Types())
	}
	m := events.Message{Subject: "ev.t1.s.a", Seq: 9, Envelope: got}
	want := events.Meta{N: 4, Seq: 9, Index: 1, Time: got.Time, Service: got.Service, Actor: got.Actor, Command: "cmd-1", Cause: "seq:7"}
	if meta := m.MetaAt(1); meta != want {
		t.Errorf("the second event's meta is %+v", meta)
	}
}

func TestEnvelopeRefused(t *testing.T) {
	for name, spoil := range map[string]func(*events.Envelope){
		"no command":         func(e *events.Envelope) { e.Command = "" },
		"a long command":     func(e *events.Envelope) { e.Command = strings.Repeat("x", 201) },
		"no service":         func(e *events.Envelope) { e.Service = "" },
		"no kind of actor":   func(e *events.Envelope) { e.Actor.Kind = "" },
		"no actor":           func(e *events.Envelope) { e.Actor.ID = "" },
		"no n":               func(e *events.Envelope) { e.N = 0 },
		"first with a prev":  func(e *events.Envelope) { e.N = 1 },
		"later without prev": func(e *events.Envelope) { e.Prev = 0 },
		"no time":            func(e *events.Envelope) { e.Time = time.Time{} },
		"no events":          func(e *events.Envelope) { e.Events = nil },
		"no type":            func(e *events.Envelope) { e.Events[0].Type = "" },
		"no version":         func(e *events.Envelope) { e.Events[1].V = 0 },
		"no data, no blob":   func(e *events.Envelope) { e.Events[1].Data, e.Blob = nil, nil },
	} {
		e := envelope()
		spoil(&e)
		if raw, err := e.Encode(); !errors.Is(err, events.ErrEnvelope) {
			t.Errorf("%s: encodes as %s, %v", name, raw, err)
		}
		raw, err := json.Marshal(e)
		if err != nil {
			continue // nothing that could stand in a log
		}
		if got, err := events.DecodeEnvelope(raw); !errors.Is(err, events.ErrEnvelope) || !reflect.DeepEqual(got, events.Envelope{}) { //nolint:govet // want all of it zero
			t.Errorf("%s: decodes to %+v, %v", name, got, err)
		}
	}
	large := envelope()
	large.Events[1].Data = json.RawMessage(`"` + strings.Repeat("x", events.MaxEnvelopeBytes) + `"`)
	if _, err := large.Encode(); !errors.Is(err, events.ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
}

func FuzzDecodeEnvelope(f *testing.F) {
	good, err := envelope().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"command":"c","actor":{"kind":"person","id":"a"},"service":"s","n":1,"time":"2026-01-01T00:00:00Z","events":[{"type":"x","v":1,"data":null}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		e, err := events.DecodeEnvelope(raw)
		if err != nil {
			if !errors.Is(err, events.ErrEnvelope) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		again, err := e.Encode()
		if errors.Is(err, events.ErrTooLarge) {
			return
		}
		if err != nil {
			t.Fatalf("what was decoded can't be encoded: %v", err)
		}
		twice, err := events.DecodeEnvelope(again)
		if err != nil {
			t.Fatalf("what was encoded can't be decoded: %v", err)
		}
		if third, err := twice.Encode(); err != nil || !bytes.Equal(third, again) {
			t.Fatalf("not stable: %s then %s (%v)", again, third, err)
		}
	})
}

func TestDuration(t *testing.T) {
	var d events.Duration
	if err := json.Unmarshal([]byte(`"90m"`), &d); err != nil || d.D() != 90*time.Minute {
		t.Errorf("%v, %v", d, err)
	}
	if b, err := json.Marshal(d); err != nil || string(b) != `"1h30m0s"` || d.String() != "1h30m0s" {
		t.Errorf("%s, %v", b, err)
	}
	for _, bad := range []string{`5`, `"x"`, `{}`, `"5"`} {
		if err := json.Unmarshal([]byte(bad), &d); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}
