// Package revisionstest holds each aggregate that is made of revisions (runtimes,
// policies) to one behaviour.
package revisionstest

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/revisions"
)

// Aggregate is what the suite needs to know of one.
type Aggregate[S any] struct {
	New              func() *revisions.State[S]
	Owner            events.Service
	Applied, Removed string
	// Spec is one with every field set; the fixture testdata/<applied>.v1.json
	// holds it.
	Spec S
	// Change makes another revision of it.
	Change func(S) S
}

// Run runs the suite.
func Run[S any](t *testing.T, a Aggregate[S]) {
	t.Run("a revision is the n of its apply", func(t *testing.T) { testRevisions(t, a) })
	t.Run("removed is gone for new uses only", func(t *testing.T) { testRemoved(t, a) })
	t.Run("foreign and unknown events are refused", func(t *testing.T) { testRefused(t, a) })
	t.Run("fixtures", func(t *testing.T) { testFixtures(t, a) })
}

var start = time.Date(2026, 5, 4, 8, 0, 0, 0, time.UTC)

func message(service events.Service, n uint64, records ...events.Record) events.Message {
	return events.Message{Subject: "ev.t1.x.a", Seq: n + 10, Envelope: events.Envelope{
		Command: "c", Actor: events.Actor{Kind: events.ActorPerson, ID: "alice"}, Service: service, N: n,
		Time: start.Add(time.Duration(n) * time.Minute), Events: records,
	}}
}

func (a Aggregate[S]) apply(t *testing.T, s *revisions.State[S], n uint64, records ...events.Record) {
	t.Helper()
	if err := s.Apply(message(a.Owner, n, records...)); err != nil {
		t.Fatal(err)
	}
}

func (a Aggregate[S]) record(t *testing.T, spec S) events.Record {
	t.Helper()
	r, err := a.New().ApplyRecord(spec)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func testRevisions[S any](t *testing.T, a Aggregate[S]) {
	s := a.New()
	if r, ok := s.Current(); ok {
		t.Errorf("nothing has revision %+v", r)
	}
	other := a.Change(a.Spec)
	a.apply(t, s, 1, a.record(t, a.Spec))
	a.apply(t, s, 2, a.record(t, other), a.record(t, a.Spec))
	current, ok := s.Current()
	want := revisions.Revision[S]{Number: 3, Spec: a.Spec, Applied: start.Add(2 * time.Minute), By: events.Actor{Kind: events.ActorPerson, ID: "alice"}}
	if !ok || !reflect.DeepEqual(current, want) {
		t.Errorf("current is %+v, %t; want %+v", current, ok, want)
	}
	if second, ok := s.Revision(2); !ok || !reflect.DeepEqual(second.Spec, other) {
		t.Errorf("revision 2 is %+v, %t", second, ok)
	}
	for _, none := range []uint64{0, 4} {
		if r, ok := s.Revision(none); ok {
			t.Errorf("revision %d is %+v", none, r)
		}
	}
}

func testRemoved[S any](t *testing.T, a Aggregate[S]) {
	s := a.New()
	a.apply(t, s, 1, a.record(t, a.Spec))
	a.apply(t, s, 2, s.RemoveRecord())
	if r, ok := s.Current(); ok || !s.Removed {
		t.Errorf("removed, but current is %+v", r)
	}
	if _, ok := s.Revision(1); !ok {
		t.Error("what was pinned can't be read any more")
	}
	a.apply(t, s, 3, a.record(t, a.Change(a.Spec)))
	if r, ok := s.Current(); !ok || r.Number != 3 || s.Removed {
		t.Errorf("applied again, but current is %+v, %t", r, ok)
	}
}

func testRefused[S any](t *testing.T, a Aggregate[S]) {
	good := a.record(t, a.Spec)
	later := good
	later.V = 2
	var foreign *events.ForeignTypeError
	for _, other := range []events.Service{events.ServiceSession, events.ServiceRunner, events.ServiceWorkload, events.ServicePolicy} {
		if other == a.Owner {
			continue
		}
		if err := a.New().Apply(message(other, 1, good)); !errors.As(err, &foreign) || foreign.Owner != a.Owner {
			t.Errorf("written by %s: %v", other, err)
		}
	}
	var unknown *events.UnknownTypeError
	for _, r := range []events.Record{later, {Type: "session.created", V: 1, Data: json.RawMessage(`{}`)}, {Type: a.Removed, V: 2, Data: json.RawMessage(`{}`)}} {
		if err := a.New().Apply(message(a.Owner, 1, r)); !errors.As(err, &unknown) || unknown.Type != r.Type || unknown.V != r.V {
			t.Errorf("%s version %d: %v", r.Type, r.V, err)
		}
	}
	good.Data = json.RawMessage(`[]`)
	if err := a.New().Apply(message(a.Owner, 1, good)); err == nil {
		t.Error("a payload of another shape was taken")
	}
}

// testFixtures: what was stored once is read for ever, and today's shape is that of
// its fixture.
func testFixtures[S any](t *testing.T, a Aggregate[S]) {
	for _, today := range []events.Record{a.record(t, a.Spec), a.New().RemoveRecord()} {
		path := "testdata/" + today.Type + ".v1.json"
		stored, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
			continue
		}
		if line, err := events.Marshal(today); err != nil || !bytes.Equal(bytes.TrimSpace(stored), line) {
			t.Errorf("%s holds\n%s\nbut today's build writes\n%s\n(%v): a change of a stored shape is a new version", path, stored, line, err)
		}
		var r events.Record
		if err := json.Unmarshal(stored, &r); err != nil {
			t.Error(err)
			continue
		}
		s := a.New()
		a.apply(t, s, 1, r)
		if current, ok := s.Current(); ok && !reflect.DeepEqual(current.Spec, a.Spec) {
			t.Errorf("%s is read as\n%+v\nwant\n%+v", path, current.Spec, a.Spec)
		}
	}
	v := reflect.ValueOf(a.Spec)
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("the sample leaves %s unset", v.Type().Field(i).Name)
		}
	}
}
