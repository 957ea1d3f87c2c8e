package natslog_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/session"
)

// A stream that reaches its limit refuses at once and for good: what was refused isn't
// stored when there is room again, and the same command works then.
func TestNoRoom(t *testing.T) {
	w := newFaultWorld(t)
	limit(t, w.js, 4<<10)
	if _, err := w.execute(t, 20*time.Second, "c1", create); err != nil {
		t.Fatal(err)
	}
	long := func(*session.State, time.Time) ([]events.Record, error) {
		return session.Records(events.ServiceSession, session.Terminated{Reason: strings.Repeat("x", 5<<10)})
	}
	begun := time.Now()
	_, err := w.execute(t, 20*time.Second, "c2", long)
	var full *eventlog.NoRoomError
	if !errors.As(err, &full) || full.Subject != faultSubject {
		t.Fatalf("%v, want a NoRoomError", err)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("it took %s to say so", took)
	}

	limit(t, w.js, -1)
	if got := w.stored(t); got != "c1" {
		t.Fatalf("%s was stored after it was refused", got)
	}
	if res, err := w.execute(t, 20*time.Second, "c2", long); err != nil || res.Repeated {
		t.Errorf("with room: %+v, %v", res, err)
	}
}

func limit(t *testing.T, js jetstream.JetStream, bytes int64) {
	t.Helper()
	s, err := js.Stream(t.Context(), events.StreamEvents)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.MaxBytes, cfg.Discard = bytes, jetstream.DiscardNew
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}
