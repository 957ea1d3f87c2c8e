package projections

import (
	"encoding/json"
	"testing"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/migrations/pgtest"
)

// What was given up is taken up again by the next projector that can follow it, and
// its rows are then those of a fresh fold; what it can't stays given up, and holds
// nothing else back.
func TestNextProjectorTakesUpAFault(t *testing.T) {
	t.Parallel()
	pool, log := pgtest.Pool(t), newLog()
	if _, err := pool.Exec(t.Context(), "ALTER TABLE messages ADD CONSTRAINT older CHECK (id <> 'newer')"); err != nil {
		t.Fatal(err)
	}
	s := newScribe(t, log)
	s.create(sid(1))
	s.create(sid(2))
	s.say(sid(1), events.ServiceSession, session.MessageReceived{MessageID: "newer", RunID: "r", Content: json.RawMessage(`"x"`)})
	s.ready(sid(1))
	subject, err := events.SessionSubject(testTenant, sid(2))
	if err != nil {
		t.Fatal(err)
	}
	s.put(subject, events.ServiceSession, events.Record{Type: "session.not-invented-yet", V: 1, Data: json.RawMessage(`{}`)})
	last := s.create(sid(3))
	older, stop := project(t, Config{Log: log, Pool: pool})
	if err := older.WaitFor(timeout(t), last); err != nil {
		t.Fatal(err)
	}
	stop()
	r := reader(t, pool, log)
	if faults, err := r.Faults(t.Context(), testTenant); err != nil || len(faults) != 2 {
		t.Fatalf("faults: %+v, %v", faults, err)
	}

	if _, err := pool.Exec(t.Context(), "ALTER TABLE messages DROP CONSTRAINT older"); err != nil {
		t.Fatal(err)
	}
	newer, _ := project(t, Config{Log: log, Pool: pool})
	last = s.answer(sid(1), s.ask(sid(1)))
	if err := newer.WaitFor(timeout(t), last); err != nil {
		t.Fatal(err)
	}
	if faults, err := r.Faults(t.Context(), testTenant); err != nil || len(faults) != 1 || faults[0].Key != sid(2) {
		t.Errorf("faults: %+v, %v", faults, err)
	}
	same(t, "healed", summed(t, pool), fresh(t, log, last))
}
