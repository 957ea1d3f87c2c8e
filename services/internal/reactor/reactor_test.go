package reactor_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/broker/brokertest"
	"github.com/holdfast-io/holdfast/services/internal/install"
	"github.com/holdfast-io/holdfast/services/internal/reactor"
)

const patience = 30 * time.Second

var quiet = slog.New(slog.DiscardHandler)

func key(i int) reactor.Key { return reactor.Key{Tenant: "default", Session: fmt.Sprintf("s-%d", i)} }

// appendTo puts messages on sessions' subjects, as the session service would, and
// waits until they are stored.
func appendTo(t *testing.T, js jetstream.JetStream, types string, keys ...reactor.Key) {
	t.Helper()
	for _, k := range keys {
		subject, err := events.SessionSubject(k.Tenant, k.Session)
		if err != nil {
			t.Fatal(err)
		}
		m := nats.NewMsg(subject)
		m.Data = []byte("{}")
		if types != "" {
			m.Header.Set(events.HeaderTypes, types)
		}
		if _, err := js.PublishMsgAsync(m, jetstream.WithStallWait(patience)); err != nil { // a slow server is no fault of the test
			t.Fatal(err)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(patience):
		t.Fatal("messages were not stored")
	}
}

// start runs a reactor until the test, or the given function, ends it.
func start(t *testing.T, cfg reactor.Config) (r *reactor.Reactor, stop func()) {
	t.Helper()
	cfg.Service = events.ServiceSession
	if cfg.Logger == nil {
		cfg.Logger = quiet
	}
	r, err := reactor.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return r, stop
}

// pending gives what the service's consumer hasn't had acknowledged, delivered or not.
func pending(t *testing.T, js jetstream.JetStream) int {
	t.Helper()
	c, err := js.Consumer(t.Context(), events.StreamEvents, install.Consumer(events.ServiceSession))
	if err != nil {
		t.Fatal(err)
	}
	info := c.CachedInfo()
	return info.NumAckPending + int(info.NumPending)
}

func eventuallySettled(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	brokertest.Eventually(t, patience, "everything acknowledged", func() bool { return pending(t, js) == 0 })
}

// counter counts settles by key.
type counter struct {
	mu sync.Mutex
	n  map[reactor.Key]int
}

func (c *counter) add(k reactor.Key) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[reactor.Key]int{}
	}
	c.n[k]++
	return c.n[k]
}

func (c *counter) of(k reactor.Key) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[k]
}

func (c *counter) total() (keys, settles int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.n {
		settles += n
	}
	return len(c.n), settles
}

// A backlog of 10,000 messages on 20 sessions is settled in few settles, since
// nothing is settled before the backlog has been taken, and is then acknowledged.
func TestBacklogCollapsesToKeys(t *testing.T) {
	t.Parallel()
	s := brokertest.Start(t)
	js := s.JS(broker.UserSession)
	const messages, sessions = 10_000, 20
	keys := make([]reactor.Key, messages)
	for i := range keys {
		keys[i] = key(i % sessions)
	}
	appendTo(t, js, "session.created", keys...)

	var settled counter
	var taken atomic.Int64
	all := make(chan struct{})
	start(t, reactor.Config{
		NC: js.Conn(), Workers: sessions,
		Interested: func([]string) bool {
			if taken.Add(1) == messages {
				close(all)
			}
			return true
		},
		Settle: func(ctx context.Context, k reactor.Key) error {
			settled.add(k)
			select { // the last message has been seen, which makes the count exact
			case <-all:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	})
	eventuallySettled(t, js)
	gotKeys, settles := settled.total()
	if gotKeys != sessions {
		t.Errorf("%d keys settled, want %d", gotKeys, sessions)
	}
	// Each ran once while messages came, and once more for what came meanwhile.
	if settles > 2*sessions {
		t.Errorf("%d settles for %d messages on %d sessions", settles, messages, sessions)
	}
}

// Messages of no interest are acknowledged unseen; ones that don't name their types
// are looked at.
func TestInterest(t *testing.T) {
	t.Parallel()
	s := brokertest.Start(t)
	js := s.JS(broker.UserSession)
	appendTo(t, js, "call.proposed", key(1))
	appendTo(t, js, "session.created,session.message-received", key(2))
	appendTo(t, js, "", key(3))
	var settled counter
	start(t, reactor.Config{
		NC:         js.Conn(),
		Interested: func(types []string) bool { return slices.Contains(types, "session.message-received") },
		Settle:     func(_ context.Context, k reactor.Key) error { settled.add(k); return nil },
	})
	eventuallySettled(t, js)
	for i, want := range map[int]int{1: 0, 2: 1, 3: 1} {
		if got := settled.of(key(i)); got != want {
			t.Errorf("%s settled %d times, want %d", key(i), got, want)
		}
	}
}

// A process that dies in the middle of a settle acknowledged nothing: the next gets
// the key again, after the consumer's time to acknowledge.
func TestCrashInBetween(t *testing.T) {
	t.Parallel()
	s := brokertest.StartWith(t, broker.Config{}, install.Options{RedeliverAfter: []time.Duration{300 * time.Millisecond}})
	appendTo(t, s.JS(broker.UserSession), "session.created", key(1), key(1), key(1))

	dying := s.NC(broker.UserSession)
	began, hang := make(chan struct{}), make(chan struct{})
	first, err := reactor.New(reactor.Config{
		NC: dying, Service: events.ServiceSession, Logger: quiet, Grace: time.Millisecond,
		Settle: func(context.Context, reactor.Key) error {
			close(began)
			<-hang
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- first.Run(ctx) }()
	<-began
	dying.Close() // as a crash does: without a word
	var settled counter
	js := s.JS(broker.UserSession)
	start(t, reactor.Config{
		NC: js.Conn(), Settle: func(_ context.Context, k reactor.Key) error { settled.add(k); return nil },
	})
	eventuallySettled(t, js)
	if settled.of(key(1)) == 0 {
		t.Error("acknowledged without having been settled")
	}
	cancel()
	close(hang)
	if err := <-ended; err != nil {
		t.Errorf("run on a closed connection: %v", err)
	}
}

// A settle that takes longer than the consumer's time to acknowledge isn't
// delivered again.
func TestInProgressWhileSettling(t *testing.T) {
	t.Parallel()
	const wait = 200 * time.Millisecond
	s := brokertest.StartWith(t, broker.Config{}, install.Options{RedeliverAfter: []time.Duration{wait}})
	js := s.JS(broker.UserSession)
	began, release := make(chan struct{}), make(chan struct{})
	start(t, reactor.Config{
		NC: js.Conn(),
		Settle: func(context.Context, reactor.Key) error {
			close(began)
			<-release
			return nil
		},
	})
	appendTo(t, js, "session.created", key(1))
	<-began
	<-time.After(5 * wait) // nothing is to happen, so there is no signal to wait for
	c, err := js.Consumer(t.Context(), events.StreamEvents, install.Consumer(events.ServiceSession))
	if err != nil {
		t.Fatal(err)
	}
	if info := c.CachedInfo(); info.NumAckPending != 1 || info.NumRedelivered != 0 {
		t.Errorf("%d held, %d delivered again; want 1 and none", info.NumAckPending, info.NumRedelivered)
	}
	close(release)
	eventuallySettled(t, js)
}

// A clean end hands back what is held, so that another has it at once and not after
// the time to acknowledge (10 s here).
func TestCleanEndHandsBack(t *testing.T) {
	t.Parallel()
	s := brokertest.Start(t)
	js := s.JS(broker.UserSession)
	began := make(chan struct{})
	_, stop := start(t, reactor.Config{
		NC: s.NC(broker.UserSession), Workers: 1, Grace: time.Millisecond,
		Settle: func(ctx context.Context, _ reactor.Key) error {
			close(began)
			<-ctx.Done() // cut off after Grace
			return ctx.Err()
		},
	})
	appendTo(t, js, "session.created", key(1), key(2))
	<-began
	stop()
	var settled counter
	from := time.Now()
	start(t, reactor.Config{
		NC: js.Conn(), Settle: func(_ context.Context, k reactor.Key) error { settled.add(k); return nil },
	})
	eventuallySettled(t, js)
	if settled.of(key(1)) == 0 || settled.of(key(2)) == 0 {
		t.Error("not both were settled")
	}
	if took := time.Since(from); took > 8*time.Second {
		t.Errorf("it took %s", took)
	}
}

// Whatever names a key and however often, in one process it is settled by one
// goroutine at a time, and once more after the last naming.
func TestOneAtATimeForAKey(t *testing.T) {
	t.Parallel()
	s := brokertest.Start(t)
	js := s.JS(broker.UserSession)
	const sessions, rounds = 5, 200
	var running [sessions]atomic.Int32
	var wanted, seen [sessions]atomic.Int64
	r, _ := start(t, reactor.Config{
		NC: js.Conn(), Workers: 8,
		Settle: func(_ context.Context, k reactor.Key) error {
			var i int
			if _, err := fmt.Sscanf(k.Session, "s-%d", &i); err != nil {
				return err
			}
			if running[i].Add(1) != 1 {
				t.Errorf("%s is settled twice at a time", k)
			}
			seen[i].Store(wanted[i].Load())
			running[i].Add(-1)
			return nil
		},
	})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for n := range rounds {
				wanted[n%sessions].Add(1)
				r.Enqueue(key(n % sessions))
				if n%10 == 0 {
					r.EnqueueAfter(key(n%sessions), time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
	for i := range sessions {
		brokertest.Eventually(t, patience, "the last naming was settled", func() bool { return seen[i].Load() == wanted[i].Load() })
	}
}

// Two instances of a service share its messages; each is settled by one of them.
func TestTwoInstances(t *testing.T) {
	t.Parallel()
	s := brokertest.Start(t)
	js := s.JS(broker.UserSession)
	var settled counter
	settle := func(_ context.Context, k reactor.Key) error { settled.add(k); return nil }
	stops := make([]func(), 0, 2)
	for range 2 {
		_, stop := start(t, reactor.Config{NC: s.NC(broker.UserSession), Settle: settle})
		stops = append(stops, stop)
	}
	const sessions = 300
	keys := make([]reactor.Key, sessions)
	for i := range keys {
		keys[i] = key(i)
	}
	appendTo(t, js, "session.created", keys...)
	eventuallySettled(t, js)
	stops[0]() // the other goes on alone
	appendTo(t, js, "session.created", keys...)
	eventuallySettled(t, js)
	if got, settles := settled.total(); got != sessions || settles < 2*sessions {
		t.Errorf("%d keys in %d settles, want %d in %d", got, settles, sessions, 2*sessions)
	}
}

// The sweep finds at the start what no message names, and goes on after a failure of
// its source.
func TestSweep(t *testing.T) {
	t.Parallel()
	s := brokertest.Start(t)
	var calls atomic.Int32
	got := make(chan reactor.Key, 100)
	start(t, reactor.Config{
		NC: s.NC(broker.UserSession), SweepEvery: 10 * time.Millisecond,
		Unsettled: func(context.Context) ([]reactor.Key, error) {
			switch calls.Add(1) {
			case 1:
				return []reactor.Key{key(1)}, nil
			case 2:
				return nil, errors.New("no database")
			default:
				return []reactor.Key{key(2)}, nil
			}
		},
		Settle: func(_ context.Context, k reactor.Key) error {
			select {
			case got <- k:
			default:
			}
			return nil
		},
	})
	for _, want := range []reactor.Key{key(1), key(2)} {
		select {
		case k := <-got:
			if k != want {
				t.Errorf("swept %s, want %s", k, want)
			}
		case <-time.After(patience):
			t.Fatalf("%s was not swept", want)
		}
	}
}

// A server that restarts costs time and nothing else: the reactor comes back by
// itself and takes what came meanwhile.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	cfg := broker.Config{Dir: t.TempDir(), Port: -1, Logger: quiet, Passwords: map[broker.User]string{
		broker.UserSession: "session", broker.UserInstaller: "installer",
	}}
	connect := func(url string, u broker.User) *nats.Conn {
		nc, err := broker.Connect(t.Context(), broker.Client{URL: url, User: u, Password: string(u), Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	b, err := broker.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	installer, err := jetstream.New(connect(b.URL(), broker.UserInstaller))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := install.Run(t.Context(), installer); err != nil {
		t.Fatal(err)
	}
	settled := make(chan reactor.Key, 16)
	start(t, reactor.Config{
		NC:     connect(b.URL(), broker.UserSession),
		Settle: func(_ context.Context, k reactor.Key) error { settled <- k; return nil },
	})
	expect := func(k reactor.Key) {
		t.Helper()
		deadline := time.After(patience)
		for {
			select {
			case got := <-settled:
				if got == k {
					return
				}
			case <-deadline:
				t.Fatalf("%s was not settled", k)
			}
		}
	}
	publisher := func() jetstream.JetStream {
		js, err := jetstream.New(connect(b.URL(), broker.UserSession))
		if err != nil {
			t.Fatal(err)
		}
		return js
	}
	appendTo(t, publisher(), "session.created", key(1))
	expect(key(1))

	if _, err := fmt.Sscanf(b.URL(), "nats://127.0.0.1:%d", &cfg.Port); err != nil {
		t.Fatal(err)
	}
	b.Stop()
	if b, err = broker.Start(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	appendTo(t, publisher(), "session.created", key(2))
	expect(key(2))
}

// Without the consumer or the bucket the service can't work, and says so.
func TestNotInstalled(t *testing.T) {
	t.Parallel()
	settle := func(context.Context, reactor.Key) error { return nil }
	for name, remove := range map[string]func(jetstream.JetStream) error{
		"consumer": func(js jetstream.JetStream) error {
			return js.DeleteConsumer(context.Background(), events.StreamEvents, "session")
		},
		"bucket": func(js jetstream.JetStream) error {
			return js.DeleteKeyValue(context.Background(), install.BucketParked)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := brokertest.Start(t)
			if err := remove(s.JS(broker.UserInstaller)); err != nil {
				t.Fatal(err)
			}
			r, err := reactor.New(reactor.Config{NC: s.NC(broker.UserSession), Service: "session", Settle: settle, Logger: quiet})
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Run(t.Context()); err == nil {
				t.Error("it ran")
			}
			if err := r.Run(t.Context()); !errors.Is(err, reactor.ErrRunning) {
				t.Errorf("a second run: %v", err)
			}
		})
	}
	if _, err := reactor.New(reactor.Config{}); err == nil {
		t.Error("an empty config was accepted")
	}
}
