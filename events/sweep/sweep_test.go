package sweep_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/sweep"
)

var stray = sweep.Stray{Kind: "sandbox", Namespace: "holdfast-default", Name: "hf-s-1-g1", UID: "u-1"}

func records(t *testing.T, payloads ...sweep.Payload) []events.Record {
	t.Helper()
	rs, err := sweep.Records(payloads...)
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

func message(by events.Service, rs ...events.Record) events.Message {
	return events.Message{Subject: "ev.t1.sweep.x", Seq: 2, Envelope: events.Envelope{N: 1, Service: by, Events: rs}}
}

// Every version ever written is read, and what is written now is the last of them.
func TestGolden(t *testing.T) {
	t.Parallel()
	for _, p := range []sweep.Payload{
		sweep.Requested{Stray: stray, Why: "unknown-session", Session: "s-1", Generation: 1, Runtime: "coder", Revision: 3, Epoch: "e-1"},
		sweep.Removed{Stray: stray},
		sweep.Failed{Stray: stray, Detail: "the API server is away"},
	} {
		r := records(t, p)[0]
		stored, err := os.ReadFile(filepath.Join("testdata", r.Type+".v1.json"))
		if err != nil {
			t.Fatal(err)
		}
		if line, err := events.Marshal(r); err != nil || !bytes.Equal(bytes.TrimSpace(stored), line) {
			t.Errorf("is stored as\n%s\nwant\n%s (%v)", line, stored, err)
		}
	}
}

func TestFold(t *testing.T) {
	t.Parallel()
	s, other := sweep.New(), stray
	other.UID = "u-2"
	for _, step := range []struct {
		payloads []sweep.Payload
		open     int
	}{
		{[]sweep.Payload{sweep.Requested{Stray: stray}, sweep.Requested{Stray: other}}, 2},
		{[]sweep.Payload{sweep.Removed{Stray: stray}}, 1},
		{[]sweep.Payload{sweep.Failed{Stray: other}}, 0},
	} {
		if err := s.Apply(message(events.ServiceWorkload, records(t, step.payloads...)...)); err != nil || len(s.Open) != step.open {
			t.Errorf("after %+v: %+v, %v", step.payloads, s.Open, err)
		}
	}
	var foreign *events.ForeignTypeError
	if err := s.Apply(message(events.ServiceSession, records(t, sweep.Removed{})...)); !errors.As(err, &foreign) {
		t.Errorf("another service's: %v", err)
	}
	var unknown *events.UnknownTypeError
	for _, r := range []events.Record{{Type: sweep.TypeRemoved, V: 2, Data: []byte(`{}`)}, {Type: "stray.adopted", V: 1, Data: []byte(`{}`)}} {
		if err := s.Apply(message(events.ServiceWorkload, r)); !errors.As(err, &unknown) {
			t.Errorf("%s.v%d: %v", r.Type, r.V, err)
		}
	}
	if err := s.Apply(message(events.ServiceWorkload, events.Record{Type: sweep.TypeRemoved, V: 1, Data: []byte(`[]`)})); err == nil {
		t.Error("what can't be read is folded in")
	}
}
