package reactor_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/broker/brokertest"
	"github.com/holdfast-io/holdfast/services/internal/reactor"
)

// What can't be settled now through no fault of its own is tried for as long as it
// takes and never parked; what names it stays unacknowledged, so that another process
// gets it when this one ends.
func TestLaterIsNoFailure(t *testing.T) {
	t.Parallel()
	s := brokertest.Start(t)
	js := s.JS(broker.UserSession)
	waits := key(1)
	var older, newer counter
	cfg := reactor.Config{NC: js.Conn(), Settle: func(_ context.Context, k reactor.Key) error {
		older.add(k)
		return &reactor.LaterError{After: 10 * time.Millisecond, Err: errors.New("not in this build")}
	}}
	_, stop := start(t, cfg)
	appendTo(t, js, "session.created", waits)
	brokertest.Eventually(t, patience, "tried more often than what fails may be", func() bool { return older.of(waits) > 15 })
	if parked, err := reactor.List(t.Context(), s.JS(broker.UserInstaller)); err != nil || len(parked) > 0 {
		t.Errorf("parked: %+v, %v", parked, err)
	}
	stop()
	cfg.Settle = func(_ context.Context, k reactor.Key) error { newer.add(k); return nil }
	_, _ = start(t, cfg)
	brokertest.Eventually(t, patience, "another process has settled it", func() bool { return newer.of(waits) > 0 })
	eventuallySettled(t, js)
}

// A message that unparks has a key tried at once, however long it was to wait.
func TestLaterGivesWayToTheEnd(t *testing.T) {
	t.Parallel()
	s := brokertest.Start(t)
	js := s.JS(broker.UserSession)
	var settled counter
	ending := atomic.Bool{}
	_, _ = start(t, reactor.Config{
		NC: js.Conn(), Unparks: func(types []string) bool { return types[0] == "session.terminated" },
		Settle: func(_ context.Context, k reactor.Key) error {
			settled.add(k)
			if ending.Load() {
				return nil
			}
			return &reactor.LaterError{After: time.Hour, Err: errors.New("no room")}
		},
	})
	appendTo(t, js, "session.created", key(1))
	brokertest.Eventually(t, patience, "tried", func() bool { return settled.of(key(1)) == 1 })
	ending.Store(true)
	appendTo(t, js, "session.terminated", key(1))
	brokertest.Eventually(t, patience, "tried again", func() bool { return settled.of(key(1)) == 2 })
	eventuallySettled(t, js)
}
