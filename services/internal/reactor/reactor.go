package reactor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/services/internal/install"
)

// Key names a session.
type Key struct{ Tenant, Session string }

// String gives "<tenant>/<session>".
func (k Key) String() string { return k.Tenant + "/" + k.Session }

// Config of a Reactor.
type Config struct {
	// NC is a connection as the service's own NATS user, which may use its consumer
	// and its part of PARKED. Run doesn't close it.
	NC *nats.Conn
	// Service names the durable consumer, which the installer made.
	Service events.Service
	// Interested says whether a message with events of these types may change what
	// the service wants or sees. Nil means all.
	Interested func(types []string) bool
	// Unparks says whether a message with events of these types has a parked session
	// settled again, because it asks for something else than what failed. Nil means
	// none has.
	Unparks func(types []string) bool
	// Settle brings a session from observed to desired. It must be idempotent. A
	// session that has to be looked at later is no failure: EnqueueAfter, nil. One that
	// can't be settled now through no fault of its own is a *LaterError.
	Settle func(ctx context.Context, key Key) error
	// Unsettled lists the sessions that are not as they should be, as far as the
	// projections know. It may fail: then the next sweep tries again. Nil for none.
	Unsettled func(ctx context.Context) ([]Key, error)
	// SweepEvery is the time between sweeps; 0 means 30 s.
	SweepEvery time.Duration
	// RetryParkedEvery is the time between attempts at what is parked; 0 means 10 min.
	RetryParkedEvery time.Duration
	// Workers is how many keys are settled at a time; 0 means 16.
	Workers int
	// MaxKeys is how many keys may wait before no more messages are taken; 0 means
	// 16384.
	MaxKeys int
	// Grace is how long settling may go on after Run's context has ended; 0 means 5 s.
	Grace time.Duration
	// Logger is needed.
	Logger *slog.Logger
	// Metrics may be nil.
	Metrics *Metrics
}

// LaterError says that a key can't be settled now, and that this is no fault of its
// own: it is settled again After a time, isn't parked however often that happens, and
// what names it stays unacknowledged, so that another process gets it when this one
// ends.
type LaterError struct {
	After time.Duration
	Err   error
}

// Error is what stands in the way.
func (e *LaterError) Error() string { return e.Err.Error() }

// Unwrap gives what stands in the way.
func (e *LaterError) Unwrap() error { return e.Err }

// The rules of failure, from the design ("Reactors").
const (
	maxFailures = 10
	minBackoff  = 50 * time.Millisecond
	maxBackoff  = 5 * time.Second
)

func (c Config) validate() error {
	switch {
	case c.NC == nil:
		return errors.New("reactor: no connection")
	case c.Service == "":
		return errors.New("reactor: no service")
	case c.Settle == nil:
		return errors.New("reactor: no Settle")
	case c.Logger == nil:
		return errors.New("reactor: no logger")
	case c.SweepEvery < 0, c.RetryParkedEvery < 0, c.Workers < 0, c.MaxKeys < 0, c.Grace < 0:
		return errors.New("reactor: negative SweepEvery, RetryParkedEvery, Workers, MaxKeys or Grace")
	}
	return nil
}

// Reactor settles the keys that its service's messages, sweeps and callers name.
type Reactor struct {
	cfg     Config
	js      jetstream.JetStream
	log     *slog.Logger
	queue   *queue
	metrics serviceMetrics
	parking *parking
	running atomic.Bool
}

// New makes a Reactor; Run makes it work.
func New(cfg Config) (*Reactor, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	js, err := jetstream.New(cfg.NC)
	if err != nil {
		return nil, fmt.Errorf("reactor of %s: %w", cfg.Service, err)
	}
	cfg.SweepEvery = or(cfg.SweepEvery, 30*time.Second)
	cfg.RetryParkedEvery = or(cfg.RetryParkedEvery, 10*time.Minute)
	cfg.Workers = or(cfg.Workers, 16)
	cfg.MaxKeys = or(cfg.MaxKeys, 16384)
	cfg.Grace = or(cfg.Grace, 5*time.Second)
	r := &Reactor{
		cfg: cfg, js: js, log: cfg.Logger.With("service", cfg.Service),
		queue: newQueue(cfg.MaxKeys), metrics: cfg.Metrics.of(cfg.Service),
	}
	r.parking = newParking(r)
	return r, nil
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// Enqueue has the key settled soon. It can be called before Run and is forgotten
// after it; a parked key is left alone.
func (r *Reactor) Enqueue(key Key) {
	if r.parking.has(key) {
		return
	}
	r.queue.add(key, nil)
	r.observe()
}

// EnqueueAfter has the key settled once d has passed; of several for one key the
// earliest counts. It is a convenience for what is looked at again soon: it dies
// with the process, so what must not be missed is a deadline in the state.
func (r *Reactor) EnqueueAfter(key Key, d time.Duration) {
	if r.parking.has(key) {
		return
	}
	r.queue.addAfter(key, d)
	r.observe()
}

// ErrRunning is what a second Run of one Reactor returns.
var ErrRunning = errors.New("reactor: it ran already")

// Run works until ctx ends and then returns nil, after what was being settled has
// ended (or Grace has passed and it was cancelled) and what was held has been handed
// back. Another error means that it can't work: the consumer isn't there, or JetStream
// doesn't know the bucket PARKED; 'holdfast install' makes both.
func (r *Reactor) Run(ctx context.Context) error {
	if !r.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	if err := r.parking.open(ctx); err != nil {
		return r.ended(ctx, err)
	}
	// Settling outlives ctx by Grace: cut off in the middle of an external effect it
	// would be done again by whoever comes next.
	work, cancelWork := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelWork()

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.parking.watch(ctx) })
	g.Go(func() error { return r.consume(ctx) })
	g.Go(func() error { r.sweep(ctx); return nil })
	g.Go(func() error { r.retryParked(ctx); return nil })
	g.Go(func() error {
		<-ctx.Done()
		r.queue.close()
		grace := time.NewTimer(r.cfg.Grace)
		defer grace.Stop()
		select {
		case <-grace.C:
			cancelWork()
		case <-work.Done(): // all have ended
		}
		return nil
	})
	var workers sync.WaitGroup
	for range r.cfg.Workers {
		workers.Go(func() {
			if !r.parking.known(ctx) {
				return
			}
			for {
				key, ok := r.queue.next()
				if !ok {
					return
				}
				r.settle(work, key)
			}
		})
	}
	workers.Wait()
	cancelWork()
	err := g.Wait()
	r.handBack()
	return r.ended(ctx, err)
}

// ended makes an end that was asked for no error.
func (r *Reactor) ended(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return fmt.Errorf("reactor of %s: %w", r.cfg.Service, err)
}

// consume takes messages until ctx ends, for as long as the consumer exists.
func (r *Reactor) consume(ctx context.Context) error {
	if !r.parking.known(ctx) {
		return nil
	}
	failed := false // log a change, not every attempt
	for attempt := 0; ; attempt++ {
		err := r.consumeOnce(ctx, func() {
			if failed {
				r.log.Info("events are taken again")
			}
			failed, attempt = false, 0
		})
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the end that was asked for, whatever it looked like
		case gone(err):
			return err
		case !failed:
			failed = true
			r.log.Warn("events can't be taken", "error", err)
		}
		if !pause(ctx, backoff(attempt)) {
			return nil
		}
	}
}

// gone says that the consumer doesn't exist, which trying again doesn't change.
func gone(err error) bool {
	return errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound)
}

func (r *Reactor) consumeOnce(ctx context.Context, works func()) error {
	name := install.Consumer(r.cfg.Service)
	consumer, err := r.js.Consumer(ctx, events.StreamEvents, name)
	if err != nil {
		return fmt.Errorf("consumer %s of %s: %w", name, events.StreamEvents, err)
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(512))
	if err != nil {
		return fmt.Errorf("consumer %s of %s: %w", name, events.StreamEvents, err)
	}
	defer r.finish(messages)
	works()

	ctx, cancel := context.WithCancel(ctx)
	var beats sync.WaitGroup
	beats.Go(func() { r.keepHeld(ctx, timeToAck(consumer.CachedInfo().Config)/3) })
	defer func() { cancel(); beats.Wait() }()
	for {
		if err := r.queue.room(ctx); err != nil {
			return err
		}
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return fmt.Errorf("consumer %s of %s: %w", name, events.StreamEvents, err)
		}
		r.take(ctx, m)
	}
}

// finish ends taking messages; those that came ahead are handed back.
func (r *Reactor) finish(messages jetstream.MessagesContext) {
	messages.Drain()
	for {
		m, err := messages.Next()
		if err != nil {
			return // drained
		}
		if err := m.Nak(); err != nil {
			r.log.Debug("message not handed back", "subject", m.Subject(), "error", err)
		}
	}
}

// timeToAck is after which time the server delivers a message again.
func timeToAck(c jetstream.ConsumerConfig) time.Duration {
	if len(c.BackOff) > 0 {
		return c.BackOff[0]
	}
	return c.AckWait
}

// take turns a message into its key.
func (r *Reactor) take(ctx context.Context, m jetstream.Msg) {
	address, ok := events.ParseSubject(m.Subject())
	key := Key{Tenant: address.Tenant, Session: address.Key}
	if !ok || address.Aggregate != events.AggregateSession || !r.interested(m) {
		r.ack(m)
		return
	}
	unparks := r.unparks(m)
	if r.parking.has(key) {
		if !unparks {
			r.ack(m)
			return
		}
		if err := r.parking.unpark(ctx, key); err != nil {
			r.later(m, err)
			return
		}
	}
	if unparks {
		r.queue.forgive(key)
	}
	if older := r.queue.add(key, m); older != nil {
		r.ack(older)
	}
	r.metrics.messages.Inc()
	r.observe()
}

// interested asks the service; a message that doesn't name its types is looked at.
func (r *Reactor) interested(m jetstream.Msg) bool {
	types := m.Headers().Get(events.HeaderTypes)
	return r.cfg.Interested == nil || types == "" || r.cfg.Interested(strings.Split(types, ","))
}

// unparks asks the service; a message that doesn't name its types wakes nothing.
func (r *Reactor) unparks(m jetstream.Msg) bool {
	types := m.Headers().Get(events.HeaderTypes)
	return r.cfg.Unparks != nil && types != "" && r.cfg.Unparks(strings.Split(types, ","))
}

// later has a message delivered again: what it has to unpark could not be.
func (r *Reactor) later(m jetstream.Msg, cause error) {
	r.log.Warn("session not unparked, trying again", "subject", m.Subject(), "again_in", maxBackoff, "error", cause)
	if err := m.NakWithDelay(maxBackoff); err != nil {
		r.log.Debug("message not handed back", "subject", m.Subject(), "error", err)
	}
}

// ack is not waited for: an acknowledgement that gets lost means one more delivery.
func (r *Reactor) ack(m jetstream.Msg) {
	if err := m.Ack(); err != nil && !errors.Is(err, jetstream.ErrMsgAlreadyAckd) {
		r.log.Debug("acknowledgement not sent", "subject", m.Subject(), "error", err)
	}
}

// keepHeld tells the server, again and again, that what is held is being worked on.
func (r *Reactor) keepHeld(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(max(every, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			for _, m := range r.queue.heldMessages() {
				if err := m.InProgress(); err != nil && !errors.Is(err, jetstream.ErrMsgAlreadyAckd) {
					r.log.Debug("in-progress not sent", "subject", m.Subject(), "error", err)
				}
			}
		}
	}
}

// handBack gives what is still held to whoever is there.
func (r *Reactor) handBack() {
	for _, m := range r.queue.heldMessages() {
		if err := m.Nak(); err != nil && !errors.Is(err, jetstream.ErrMsgAlreadyAckd) {
			r.log.Debug("message not handed back", "subject", m.Subject(), "error", err)
		}
	}
	if err := r.cfg.NC.FlushTimeout(time.Second); err != nil {
		r.log.Debug("acknowledgements not flushed", "error", err)
	}
}

// settle settles one key and says what becomes of it.
func (r *Reactor) settle(ctx context.Context, key Key) {
	defer r.observe()
	parked := r.parking.has(key)
	if parked && !r.parking.takeTrial(key) { // named before it was known, or parked by another instance
		r.drop(key)
		return
	}
	start := time.Now()
	err := r.call(ctx, key)
	r.metrics.seconds.Observe(time.Since(start).Seconds())
	if err == nil && parked {
		err = r.parking.unpark(ctx, key)
	}
	if err == nil {
		r.metrics.settled.Inc()
		if m := r.queue.settled(key); m != nil {
			r.ack(m)
		}
		return
	}
	if r.queue.isClosed() {
		// Ended with the process: no fault of the key's. It stays held.
		r.queue.release(key)
		return
	}
	r.metrics.failed.Inc()
	if parked && r.parking.has(key) { // it stays parked until the next attempt
		r.log.Warn("parked session still not settled", "tenant", key.Tenant, "session", key.Session,
			"again_in", r.cfg.RetryParkedEvery, "error", err)
		r.drop(key)
		return
	}
	if later, ok := errors.AsType[*LaterError](err); ok {
		r.log.Info("session not settled for what is no fault of its own", "tenant", key.Tenant, "session", key.Session,
			"again_in", later.After, "error", err)
		r.queue.postponed(key, later.After)
		return
	}
	failures := r.queue.failures(key) + 1
	if failures >= maxFailures {
		parkErr := r.parking.park(ctx, key, failures, err)
		if parkErr == nil {
			r.drop(key)
			return
		}
		err = errors.Join(err, parkErr)
	}
	wait := backoff(failures - 1)
	r.log.Warn("session not settled", "tenant", key.Tenant, "session", key.Session,
		"failures", failures, "again_in", wait, "error", err)
	r.queue.failed(key, wait)
}

// drop forgets a key that is parked; what it held needs no more deliveries.
func (r *Reactor) drop(key Key) {
	if m := r.queue.drop(key); m != nil {
		r.ack(m)
	}
}

// call turns a panic into the failure of one key.
func (r *Reactor) call(ctx context.Context, key Key) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return r.cfg.Settle(ctx, key)
}

// observe sets the gauges.
func (r *Reactor) observe() {
	r.metrics.keys.Set(float64(r.queue.size()))
}
