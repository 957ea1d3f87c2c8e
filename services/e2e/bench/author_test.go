package main

import (
	"testing"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/eventlog/memlog"
	"github.com/holdfast-io/holdfast/events/invariants"
	"github.com/holdfast-io/holdfast/events/session"
)

// What is projected has to be what could have come about, of every type of event
// that services write, and about as long as said.
func TestLivesAreLegal(t *testing.T) {
	t.Parallel()
	const sessions = 1500
	log := memlog.New(eventlog.Genesis{LogID: "log", Epoch: "epoch"})
	seen := map[string]int{}
	total := 0
	err := lives(sessions, 40, 2, func(m events.Message) error {
		if at := log.Plant(m.Subject, m.Raw); at != m.Seq {
			t.Fatalf("stored at %d, written for %d", at, m.Seq)
		}
		for _, r := range m.Envelope.Events {
			seen[r.Type]++
			total++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	violations, err := invariants.Check(t.Context(), log)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range violations[:min(10, len(violations))] {
		t.Error(v)
	}
	if mean := total / sessions; mean < eventsEach*8/10 || mean > eventsEach*12/10 {
		t.Errorf("a life has %d events on the average, want about %d", mean, eventsEach)
	}
	// A client's cancel and resume, a maximum age, an agent that asks anew, a client's
	// own tools and a node that is left are too rare to be in a realistic mix.
	rare := map[string]bool{
		session.TypeRunCancelRequested: true, session.TypeExpired: true, session.TypeCallSuperseded: true, session.TypeCallDelegated: true,
		session.TypeDraining: true, session.TypeStayed: true,
	}
	for _, name := range session.Types() {
		if seen[name] == 0 && !rare[name] {
			t.Errorf("no life has a %s", name)
		}
	}
}
