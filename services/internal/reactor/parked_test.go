package reactor_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/broker/brokertest"
	"github.com/holdfast-io/holdfast/services/internal/install"
	"github.com/holdfast-io/holdfast/services/internal/reactor"
)

// After ten failures a key is parked and acknowledged, the others go on, another
// instance and a restart leave it alone, and a retry wakes it.
func TestParkAndRetry(t *testing.T) {
	t.Parallel()
	s := brokertest.Start(t)
	js := s.JS(broker.UserSession)
	bad, good := key(1), key(2)
	var settled counter
	broken := atomic.Bool{}
	broken.Store(true)
	cfg := reactor.Config{
		NC: js.Conn(), SweepEvery: 50 * time.Millisecond,
		Unsettled: func(context.Context) ([]reactor.Key, error) { return []reactor.Key{bad}, nil },
		Settle: func(_ context.Context, k reactor.Key) error {
			settled.add(k)
			if k == bad && broken.Load() {
				panic("no such driver") // a panic is a failure like any other
			}
			return nil
		},
		Metrics: reactor.NewMetrics(prometheus.NewRegistry()),
	}
	_, stop := start(t, cfg)
	appendTo(t, js, "session.created", bad, good)

	var parked []reactor.Parked
	brokertest.Eventually(t, 2*patience, "parked", func() bool {
		var err error
		if parked, err = reactor.List(t.Context(), s.JS(broker.UserInstaller)); err != nil {
			t.Fatal(err)
		}
		return len(parked) > 0
	})
	p := parked[0]
	if len(parked) != 1 || p.Service != events.ServiceSession || p.Tenant != bad.Tenant || p.Session != bad.Session ||
		p.Failures != 10 || p.At.IsZero() || !strings.Contains(p.Reason, "no such driver") {
		t.Errorf("parked: %+v", parked)
	}
	if n := settled.of(bad); n != 10 {
		t.Errorf("tried %d times, want 10", n)
	}
	eventuallySettled(t, js)
	if settled.of(good) == 0 {
		t.Error("the other session didn't go on")
	}

	// Neither a message, nor the sweep, nor a new process wakes it.
	stop()
	_, _ = start(t, cfg)
	appendTo(t, js, "session.created", bad, good)
	eventuallySettled(t, js)
	if n := settled.of(bad); n != 10 {
		t.Errorf("settled %d times, though parked", n)
	}

	broken.Store(false)
	if err := reactor.Retry(t.Context(), s.JS(broker.UserInstaller), events.ServiceSession, bad); err != nil {
		t.Fatal(err)
	}
	brokertest.Eventually(t, patience, "retried", func() bool { return settled.of(bad) > 10 })
	if parked, err := reactor.List(t.Context(), s.JS(broker.UserInstaller)); err != nil || len(parked) != 0 {
		t.Errorf("still parked: %+v, %v", parked, err)
	}
	err := reactor.Retry(t.Context(), s.JS(broker.UserInstaller), events.ServiceSession, bad)
	if !errors.Is(err, reactor.ErrNotParked) {
		t.Errorf("retry of what isn't parked: %v", err)
	}
}

// park puts a key into PARKED, as a reactor that gave it up would.
func park(t *testing.T, js jetstream.JetStream, k reactor.Key) {
	t.Helper()
	kv, err := js.KeyValue(t.Context(), install.BucketParked)
	if err != nil {
		t.Fatal(err)
	}
	value, err := json.Marshal(reactor.Parked{Service: events.ServiceSession, Tenant: k.Tenant, Session: k.Session, Reason: "no disk", Failures: 10})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(t.Context(), string(events.ServiceSession)+"."+k.Tenant+"."+k.Session, value); err != nil {
		t.Fatal(err)
	}
}

// listed counts what is parked.
func listed(t *testing.T, js jetstream.JetStream) int {
	t.Helper()
	parked, err := reactor.List(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	return len(parked)
}

// A message that Unparks names has a parked key settled again, which any other leaves
// alone.
func TestMessageUnparks(t *testing.T) {
	t.Parallel()
	s := brokertest.Start(t)
	js, installer := s.JS(broker.UserSession), s.JS(broker.UserInstaller)
	park(t, installer, key(1))
	park(t, installer, key(2))
	var settled counter
	start(t, reactor.Config{
		NC:      js.Conn(),
		Unparks: func(types []string) bool { return slices.Contains(types, "session.terminated") },
		Settle:  func(_ context.Context, k reactor.Key) error { settled.add(k); return nil },
	})
	appendTo(t, js, "session.message-received", key(1), key(2))
	appendTo(t, js, "", key(1))
	eventuallySettled(t, js)
	if keys, _ := settled.total(); keys != 0 {
		t.Error("settled, though parked")
	}
	appendTo(t, js, "session.terminated,call.cancelled", key(1))
	brokertest.Eventually(t, patience, "unparked", func() bool { return settled.of(key(1)) > 0 })
	eventuallySettled(t, js)
	if n := listed(t, installer); n != 1 || settled.of(key(2)) != 0 {
		t.Errorf("%d are parked, the other was settled %d times; want 1 and none", n, settled.of(key(2)))
	}
	appendTo(t, js, "session.message-received", key(1))
	eventuallySettled(t, js)
	if n := settled.of(key(1)); n < 2 {
		t.Errorf("settled %d times: still left alone", n)
	}
}

// What asks for something else than what failed doesn't inherit its failures.
func TestMessageForgives(t *testing.T) {
	t.Parallel()
	s := brokertest.Start(t)
	js := s.JS(broker.UserSession)
	var settled counter
	tenth, taken := make(chan struct{}), make(chan struct{})
	start(t, reactor.Config{
		NC:      js.Conn(),
		Unparks: func(types []string) bool { return slices.Contains(types, "session.terminated") },
		Interested: func(types []string) bool {
			if slices.Contains(types, "call.proposed") {
				close(taken) // and so is all that came before
				return false
			}
			return true
		},
		Settle: func(ctx context.Context, k reactor.Key) error {
			n := settled.add(k)
			if n == 10 { // it would be parked, but that the end comes meanwhile
				close(tenth)
				select {
				case <-taken:
				case <-ctx.Done():
				}
			}
			if n < 12 {
				return errors.New("no disk")
			}
			return nil
		},
	})
	appendTo(t, js, "session.created", key(1))
	select {
	case <-tenth:
	case <-time.After(2 * patience):
		t.Fatal("not tried ten times")
	}
	appendTo(t, js, "session.terminated", key(1))
	appendTo(t, js, "call.proposed", key(1))
	brokertest.Eventually(t, patience, "settled", func() bool { return settled.of(key(1)) == 12 })
	eventuallySettled(t, js)
	if n := listed(t, s.JS(broker.UserInstaller)); n != 0 {
		t.Errorf("%d are parked", n)
	}
}

// What is parked is attempted seldom; it is listed until an attempt succeeds.
func TestParkedIsTriedAgain(t *testing.T) {
	t.Parallel()
	s := brokertest.Start(t)
	js, installer := s.JS(broker.UserSession), s.JS(broker.UserInstaller)
	park(t, installer, key(1))
	var settled counter
	var works atomic.Bool
	start(t, reactor.Config{
		NC: js.Conn(), RetryParkedEvery: 20 * time.Millisecond,
		Settle: func(_ context.Context, k reactor.Key) error {
			settled.add(k)
			if !works.Load() {
				return errors.New("no disk")
			}
			return nil
		},
	})
	brokertest.Eventually(t, patience, "tried more than ten times", func() bool { return settled.of(key(1)) > 10 })
	if n := listed(t, installer); n != 1 {
		t.Errorf("%d are parked, want 1", n)
	}
	works.Store(true)
	brokertest.Eventually(t, patience, "unparked", func() bool { return listed(t, installer) == 0 })
}
