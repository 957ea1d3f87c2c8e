package invariants_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/eventlog/memlog"
	"github.com/holdfast-io/holdfast/events/invariants"
	"github.com/holdfast-io/holdfast/events/session/sessiontest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func check(t *testing.T, log eventlog.Log) []invariants.Violation {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	vs, err := invariants.Check(ctx, log)
	if err != nil {
		t.Fatal(err)
	}
	return vs
}

// A whole life with everything in it breaks nothing.
func TestGoodLog(t *testing.T) {
	w := newWorld(t)
	w.whole()
	if vs := check(t, w.log); len(vs) > 0 {
		t.Errorf("a good log is said to break: %v", vs)
	}
}

// Whatever the services could legally have appended breaks nothing.
func TestLegalHistories(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		log := memlog.New(eventlog.Genesis{LogID: "l", Epoch: "e"})
		for _, subject := range []string{"ev.t1.s.one", "ev.t1.s.two"} {
			info, err := log.Info(t.Context())
			if err != nil {
				rt.Fatal(err)
			}
			for _, m := range sessiontest.Draw(rt, subject, info.LastSeq+1, 60) {
				if _, err := log.Append(t.Context(), subject, m.Envelope); err != nil {
					rt.Fatal(err)
				}
			}
		}
		if vs := check(t, log); len(vs) > 0 {
			rt.Fatalf("a legal history is said to break: %v", vs)
		}
	})
}

// Each invariant has logs that break it, each at its last message, and the checker
// says which.
func TestBrokenLogs(t *testing.T) {
	for _, c := range broken {
		t.Run(string(c.want)+"/"+c.name, func(t *testing.T) {
			w := newWorld(t)
			if c.given != nil {
				c.given(w)
			}
			if vs := check(t, w.log); len(vs) > 0 {
				t.Fatalf("broken before it was broken: %v", vs)
			}
			c.plant(w)
			vs := check(t, w.log)
			if len(vs) == 0 {
				t.Fatal("not noticed")
			}
			info, err := w.log.Info(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range vs {
				if v.Seq != info.LastSeq {
					t.Errorf("%s: the log was broken at %d", v, info.LastSeq)
				}
			}
			if !slices.ContainsFunc(vs, func(v invariants.Violation) bool { return v.Invariant == c.want }) {
				t.Errorf("found %v, want one of %q", vs, c.want)
			}
		})
	}
}

// A message dropped from, repeated in or moved within a good history is noticed.
func TestTamperedHistories(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		history := sessiontest.Draw(rt, "ev.t1.s.one", 2, 30)
		if len(history) < 3 {
			rt.Skip("too short")
		}
		i := rapid.IntRange(0, len(history)-2).Draw(rt, "place")
		switch rapid.SampledFrom([]string{"drop", "repeat", "swap"}).Draw(rt, "how") {
		case "drop":
			history = slices.Delete(history, i, i+1)
		case "repeat":
			history = slices.Insert(history, i, history[i])
		case "swap":
			history[i], history[i+1] = history[i+1], history[i]
		}
		log := memlog.New(eventlog.Genesis{LogID: "l", Epoch: "e"})
		for _, m := range history {
			log.Plant(m.Subject, m.Raw)
		}
		if vs := check(t, log); !slices.ContainsFunc(vs, func(v invariants.Violation) bool { return v.Invariant == invariants.Chain }) {
			rt.Fatalf("not noticed: %v", vs)
		}
	})
}

type unreadable struct{ eventlog.Log }

func (unreadable) Tail(context.Context, uint64, func(events.Message) error) error {
	return errors.New("down")
}

func TestUnreadableLog(t *testing.T) {
	if vs, err := invariants.Check(t.Context(), unreadable{newWorld(t).log}); err == nil {
		t.Errorf("a log that can't be read has %v", vs)
	}
}

func TestViolationNamesItsPlace(t *testing.T) {
	v := invariants.Violation{Invariant: invariants.Turn, Subject: "ev.t1.s.a", Seq: 7, Detail: "two"}
	if got := v.String(); got != "one turn: ev.t1.s.a at 7: two" {
		t.Error(got)
	}
}
