package hub

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/output"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

// Hub follows both streams once and serves all viewers of this gateway. It is
// safe for concurrent use.
type Hub struct {
	cfg      Config
	metrics  *metrics
	follower *eventlog.Follower[*session.State] // the events tail's alone
	scans    chan struct{}                      // bounds reads through a stream
	serving  sync.WaitGroup
	ctx      context.Context // ends with Run: what outlives a call ends by it
	end      context.CancelFunc

	mu        sync.Mutex
	topics    map[sessionKey]*topic
	inboxes   map[string]*inbox
	conns     map[*connection]struct{}
	persons   map[person]int
	recent    ring
	eventsAt  place
	outputAt  place
	handled   uint64        // sequence of the last event that was passed on
	said      uint64        // sequence of the last batch that was passed on
	moved     chan struct{} // closed when handled or said moves; nil if nobody waits
	stopping  bool
	eventsErr error
	outputErr error
}

// place is how far a stream was followed.
type place struct {
	known bool
	seq   uint64
}

type sessionKey struct{ tenant, session string }

// person is who a connection counts for.
type person struct{ tenant, name string }

// errNotStarted says that a stream isn't followed yet.
var errNotStarted = errors.New("not followed yet")

// scansAtOnce is how many viewers may read through a stream at the same time.
const scansAtOnce = 8

// New makes a Hub. It serves while Run runs.
func New(cfg Config) (*Hub, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	h := &Hub{
		cfg: cfg,
		follower: eventlog.NewFollower(eventlog.Config[*session.State]{
			Log: cfg.Log, New: session.New, Copy: cfg.Copy, Epoch: cfg.Epoch,
		}),
		scans:  make(chan struct{}, scansAtOnce),
		topics: map[sessionKey]*topic{}, inboxes: map[string]*inbox{}, conns: map[*connection]struct{}{},
		persons: map[person]int{}, recent: ring{limit: cfg.RingBytes},
		eventsErr: errNotStarted, outputErr: errNotStarted,
	}
	if h.metrics, err = newMetrics(cfg.Metrics, h); err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	h.ctx, h.end = context.WithCancel(context.Background())
	return h, nil
}

// Run follows the streams until ctx ends. It then tells all viewers to come back
// later (4000 going-away), waits for their connections to end, and gives nil. A
// stream that can't be followed is tried again; see Healthy. Run may be called
// once.
func (h *Hub) Run(ctx context.Context) error {
	g, following := errgroup.WithContext(ctx)
	g.Go(func() error { return h.persist(following, "events", &h.eventsErr, h.followEvents) })
	g.Go(func() error { return h.persist(following, "output", &h.outputErr, h.followOutput) })
	g.Go(func() error { h.sweep(following); return nil })
	err := g.Wait()
	h.stop()
	return err
}

// stop closes all connections and waits for them.
func (h *Hub) stop() {
	h.mu.Lock()
	h.stopping = true
	h.mu.Unlock()
	h.closeAll(api.CloseGoingAway)
	h.end()
	h.serving.Wait()
}

// closeAll closes every connection.
func (h *Hub) closeAll(code api.CloseCode) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.conns {
		c.out.close(code)
	}
}

// Healthy says why a stream isn't followed; nil while both are.
func (h *Hub) Healthy() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.eventsErr != nil {
		return fmt.Errorf("hub: events: %w", h.eventsErr)
	}
	if h.outputErr != nil {
		return fmt.Errorf("hub: output: %w", h.outputErr)
	}
	return nil
}

// retryTail is how soon a tail that broke is begun again.
const retryTail = time.Second

// persist runs a tail again and again until ctx ends.
func (h *Hub) persist(ctx context.Context, stream string, state *error, follow func(context.Context, func()) error) error {
	for {
		err := follow(ctx, func() { h.note(state, nil) })
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was stopped: that isn't an error
		}
		h.note(state, err)
		h.cfg.Logger.Error("stream not followed, trying again", "stream", stream, "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retryTail):
		}
	}
}

func (h *Hub) note(state *error, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*state = err
}

// followEvents tails EVENTS from where it stopped, or from its end.
func (h *Hub) followEvents(ctx context.Context, begun func()) error {
	info, err := h.cfg.Log.Info(ctx)
	if err != nil {
		return err
	}
	if info.Genesis.Epoch != h.cfg.Epoch {
		h.lost(&h.eventsAt)
		return &eventlog.EpochError{Want: eventlog.Genesis{Epoch: h.cfg.Epoch}, Got: info.Genesis}
	}
	from := h.resume(&h.eventsAt, info.LastSeq) + 1
	begun()
	err = h.cfg.Log.Tail(ctx, from, func(m events.Message) error { return h.onEvent(ctx, m) })
	_, truncated := errors.AsType[*eventlog.TruncatedError](err)
	_, epoch := errors.AsType[*eventlog.EpochError](err)
	if truncated || epoch || errors.Is(err, eventlog.ErrNoGenesis) {
		h.lost(&h.eventsAt)
	}
	return err
}

// followOutput tails OUTPUT from where it stopped, or from its end.
func (h *Hub) followOutput(ctx context.Context, begun func()) error {
	_, last, err := h.cfg.Output.Info(ctx)
	if err != nil {
		return err
	}
	from := h.resume(&h.outputAt, last) + 1
	begun()
	err = h.cfg.Output.Tail(ctx, from, func(m output.Message) error { h.onOutput(m); return nil }) //nolint:contextcheck // what it begins ends with the hub
	if _, truncated := errors.AsType[*output.TruncatedError](err); truncated {
		h.lost(&h.outputAt)
	}
	return err
}

// resume gives where to go on, which is the stream's end at the first time.
func (h *Hub) resume(at *place, last uint64) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !at.known {
		*at = place{known: true, seq: last}
		if at == &h.outputAt {
			h.recent.reset(last)
			h.said = last
		} else {
			h.handled = last
		}
		h.stir()
	}
	return at.seq
}

// lost forgets a place in a stream that isn't the one it was. Viewers have to come
// back: their cursors then meet what is there, and gaps say what isn't.
func (h *Hub) lost(at *place) {
	h.mu.Lock()
	*at = place{}
	// Who is closed gives its topic back later; nobody else gets it.
	h.topics, h.inboxes = map[sessionKey]*topic{}, map[string]*inbox{}
	h.mu.Unlock()
	h.closeAll(api.CloseSourceLost)
}

// ready is a problem while a stream isn't followed.
func (h *Hub) ready() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.eventsAt.known && h.outputAt.known && !h.stopping {
		return nil
	}
	p := problem.New(api.CodeNotReady, "The streams aren't followed now.")
	p.RetryAfter = time.Second
	return p
}

// onEvent handles the next message of EVENTS.
func (h *Hub) onEvent(ctx context.Context, m events.Message) error {
	if h.cfg.Seen != nil {
		h.cfg.Seen(m)
	}
	a, ok := events.ParseSubject(m.Subject)
	if !ok || a.Aggregate != events.AggregateSession || m.Envelope.N == 0 {
		a = events.Address{}
	}
	h.mu.Lock()
	// Looking up and moving on are one step: who comes later finds this message in
	// the log, at or before the hub's place.
	t, in := h.topics[sessionKey{a.Tenant, a.Key}], h.inboxes[a.Tenant]
	h.eventsAt.seq = m.Seq
	h.mu.Unlock()
	if t == nil && in == nil {
		h.passed(m.Seq)
		return nil
	}
	made, err := h.frames(ctx, m)
	if err != nil {
		return err
	}
	if t != nil {
		t.event(m, made) //nolint:contextcheck // what it begins ends with the hub
	}
	if in != nil {
		in.event(m, a, made)
	}
	h.passed(m.Seq)
	return nil
}

// passed notes that an event has reached whoever watches.
func (h *Hub) passed(seq uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handled = seq
	h.stir()
}

// onOutput handles the next batch of OUTPUT.
func (h *Hub) onOutput(m output.Message) {
	h.mu.Lock()
	t := h.topics[sessionKey{m.Tenant, m.Session}]
	h.recent.add(m)
	h.outputAt.seq = m.Seq
	h.mu.Unlock()
	if t != nil {
		t.output(m)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said = m.Seq
	h.stir()
}

// stir wakes those who wait for the hub to move, with the lock held.
func (h *Hub) stir() {
	if h.moved != nil {
		close(h.moved)
		h.moved = nil
	}
}

// awaitOutput waits until the hub has passed on OUTPUT up to a sequence.
func (h *Hub) awaitOutput(ctx context.Context, seq uint64) error {
	return h.await(ctx, func() bool { return h.outputAt.known && h.said >= seq })
}

// awaitEvents waits until the hub has passed on EVENTS up to a sequence.
func (h *Hub) awaitEvents(ctx context.Context, seq uint64) error {
	return h.await(ctx, func() bool { return h.eventsAt.known && h.handled >= seq })
}

// await waits for what reached, which is called with the lock held, says.
func (h *Hub) await(ctx context.Context, reached func() bool) error {
	for {
		h.mu.Lock()
		if reached() {
			h.mu.Unlock()
			return nil
		}
		if h.moved == nil {
			h.moved = make(chan struct{})
		}
		moved := h.moved
		h.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
