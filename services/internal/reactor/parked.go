package reactor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/services/internal/install"
)

// Parked is a session that a service gave up on until somebody retries it, a message
// unparks it, or one of the seldom attempts at it succeeds.
type Parked struct {
	Service events.Service `json:"service"`
	Tenant  string         `json:"tenant"`
	Session string         `json:"session"`
	// Reason is the last failure.
	Reason   string    `json:"reason"`
	Failures int       `json:"failures"`
	At       time.Time `json:"at"`
}

// maxReason bounds a stored reason; the log has the whole.
const maxReason = 4 << 10

func bucketKey(service events.Service, key Key) string {
	return string(service) + "." + key.Tenant + "." + key.Session
}

// keyOf takes a bucketKey apart.
func keyOf(s string) (key Key, ok bool) {
	parts := strings.Split(s, ".")
	if len(parts) != 3 {
		return Key{}, false
	}
	return Key{Tenant: parts[1], Session: parts[2]}, true
}

// List gives what is parked, all services', oldest first.
func List(ctx context.Context, js jetstream.JetStream) ([]Parked, error) { return list(ctx, js, ">") }

// ListOf gives what a service has parked of a tenant, oldest first. The service's own
// NATS user may ask.
func ListOf(ctx context.Context, js jetstream.JetStream, service events.Service, tenant string) ([]Parked, error) {
	return list(ctx, js, string(service)+"."+tenant+".*")
}

func list(ctx context.Context, js jetstream.JetStream, keysLike string) ([]Parked, error) {
	kv, err := bucket(ctx, js)
	if err != nil {
		return nil, err
	}
	keys, err := kv.ListKeysFiltered(ctx, keysLike)
	if err != nil {
		return nil, fmt.Errorf("list what is parked: %w", err)
	}
	defer func() { _ = keys.Stop() }() // it has been read to its end
	var all []Parked
	for name := range keys.Keys() {
		entry, err := kv.Get(ctx, name)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			continue // retried meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("read parked %s: %w", name, err)
		}
		var p Parked
		if err := json.Unmarshal(entry.Value(), &p); err != nil {
			return nil, fmt.Errorf("read parked %s: %w", name, err)
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b Parked) int { return a.At.Compare(b.At) })
	return all, nil
}

// ErrNotParked says that there is nothing to retry.
var ErrNotParked = errors.New("not parked")

// Retry takes a session out of PARKED; the service's reactors see it and settle it
// at once, wherever they run, and one that isn't running does when it starts.
func Retry(ctx context.Context, js jetstream.JetStream, service events.Service, key Key) error {
	kv, err := bucket(ctx, js)
	if err != nil {
		return err
	}
	name := bucketKey(service, key)
	entry, err := kv.Get(ctx, name)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return fmt.Errorf("%s %s: %w", service, key, ErrNotParked)
	}
	if err != nil {
		return fmt.Errorf("read parked %s: %w", name, err)
	}
	// Only what was seen: parked anew meanwhile is another failure.
	if err := kv.Delete(ctx, name, jetstream.LastRevision(entry.Revision())); err != nil {
		return fmt.Errorf("retry %s: %w", name, err)
	}
	return nil
}

func bucket(ctx context.Context, js jetstream.JetStream) (jetstream.KeyValue, error) {
	kv, err := js.KeyValue(ctx, install.BucketParked)
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", install.BucketParked, err)
	}
	return kv, nil
}

// parking is a reactor's own part of PARKED. The bucket is the truth, the set what
// the watcher has seen of it.
type parking struct {
	reactor *Reactor
	kv      jetstream.KeyValue

	// first is closed once the set has been read.
	first     chan struct{}
	firstOnce sync.Once

	mu  sync.RWMutex
	set map[Key]noted
}

// noted is what is known of one parked key.
type noted struct {
	// revision is the bucket's, 0 while it isn't known yet.
	revision uint64
	// trial says that the key is to be settled once though it is parked.
	trial bool
}

func newParking(r *Reactor) *parking {
	return &parking{reactor: r, first: make(chan struct{}), set: map[Key]noted{}}
}

// known waits until it is known what is parked: before that, taking messages would
// wake what was put to rest. False when ctx ended first.
func (p *parking) known(ctx context.Context) bool {
	select {
	case <-p.first:
		return true
	case <-ctx.Done():
		return false
	}
}

func (p *parking) has(key Key) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	_, ok := p.set[key]
	return ok
}

// open waits for the bucket, for as long as it isn't definite that there is none.
func (p *parking) open(ctx context.Context) error {
	for attempt := 0; ; attempt++ {
		kv, err := bucket(ctx, p.reactor.js)
		switch {
		case err == nil:
			p.kv = kv
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, jetstream.ErrBucketNotFound):
			return err
		case attempt == 0:
			p.reactor.log.Warn("parked sessions can't be read", "error", err)
		}
		if !pause(ctx, backoff(attempt)) {
			return ctx.Err()
		}
	}
}

// watch keeps the set like the bucket until ctx ends, and enqueues what was retried.
func (p *parking) watch(ctx context.Context) error {
	for attempt := 0; ; attempt++ {
		err := p.watchOnce(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the end that was asked for, whatever it looked like
		}
		p.reactor.log.Warn("parked sessions can't be watched", "error", err)
		if !pause(ctx, backoff(attempt)) {
			return nil
		}
	}
}

// errWatchEnded says that the watcher's channel was closed under it.
var errWatchEnded = errors.New("the watch ended")

func (p *parking) watchOnce(ctx context.Context) error {
	watcher, err := p.kv.Watch(ctx, string(p.reactor.cfg.Service)+".>")
	if err != nil {
		return err
	}
	defer func() { _ = watcher.Stop() }()
	seen := map[Key]noted{}
	initial := true
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case entry, ok := <-watcher.Updates():
			switch {
			case !ok:
				return errWatchEnded
			case entry == nil: // the end of what was there before
				initial = false
				p.replace(seen)
			case initial:
				if key, ok := keyOf(entry.Key()); ok && entry.Operation() == jetstream.KeyValuePut {
					seen[key] = noted{revision: entry.Revision()}
				}
			default:
				if key, ok := keyOf(entry.Key()); ok {
					p.update(key, entry)
				}
			}
		}
	}
}

// replace makes the set what the bucket holds; what isn't there any more was
// retried while nobody watched.
func (p *parking) replace(now map[Key]noted) {
	var retried []Key
	p.mu.Lock()
	for key := range p.set {
		if _, still := now[key]; !still {
			retried = append(retried, key)
		}
	}
	p.set = now
	p.reactor.metrics.parked.Set(float64(len(now)))
	p.mu.Unlock()
	for _, key := range retried {
		p.reactor.Enqueue(key)
	}
	p.firstOnce.Do(func() { close(p.first) })
}

func (p *parking) update(key Key, seen jetstream.KeyValueEntry) {
	if seen.Operation() == jetstream.KeyValuePut {
		p.mark(key, seen.Revision())
		return
	}
	p.unmark(key)
	p.reactor.Enqueue(key)
}

func (p *parking) mark(key Key, revision uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set[key] = noted{revision: revision}
	p.reactor.metrics.parked.Set(float64(len(p.set)))
}

func (p *parking) unmark(key Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.set, key)
	p.reactor.metrics.parked.Set(float64(len(p.set)))
}

// try has every parked key settled once, when its turn comes, and lists them.
func (p *parking) try() []Key {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, e := range p.set {
		e.trial = true
		p.set[key] = e
	}
	return slices.Collect(maps.Keys(p.set))
}

// takeTrial says whether a parked key is to be settled, and that it is being settled
// from now on.
func (p *parking) takeTrial(key Key) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.set[key]
	if e.trial {
		p.set[key] = noted{revision: e.revision}
	}
	return e.trial
}

// errBeingParked says that the entry is on its way to the bucket.
var errBeingParked = errors.New("it is just being parked")

// unpark takes a key out of PARKED, in the form in which it was seen there; one that
// isn't in it any more needs nothing.
func (p *parking) unpark(ctx context.Context, key Key) error {
	p.mu.RLock()
	e, parked := p.set[key]
	p.mu.RUnlock()
	switch {
	case !parked:
		return nil
	case e.revision == 0:
		return fmt.Errorf("unpark: %w", errBeingParked)
	}
	// Only what was seen: parked anew meanwhile is another failure.
	if err := p.kv.Delete(ctx, bucketKey(p.reactor.cfg.Service, key), jetstream.LastRevision(e.revision)); err != nil {
		return fmt.Errorf("unpark: %w", err)
	}
	p.unmark(key)
	p.reactor.log.Info("session no longer parked", "tenant", key.Tenant, "session", key.Session)
	return nil
}

// park stores that the service gave up on a key.
func (p *parking) park(ctx context.Context, key Key, failures int, reason error) error {
	text := reason.Error()
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "")
	}
	value, err := json.Marshal(Parked{
		Service: p.reactor.cfg.Service, Tenant: key.Tenant, Session: key.Session,
		Reason: text, Failures: failures, At: time.Now().UTC(),
	})
	if err != nil {
		return fmt.Errorf("park: %w", err)
	}
	// Marked first: a retry that follows the Put at once has to find the mark.
	p.mark(key, 0)
	revision, err := p.kv.Put(ctx, bucketKey(p.reactor.cfg.Service, key), value)
	if err != nil {
		p.unmark(key)
		return fmt.Errorf("park: %w", err)
	}
	p.parkedAs(key, revision)
	p.reactor.metrics.parkings.Inc()
	p.reactor.log.Error("session parked: it is tried seldom until it settles, or 'holdfast parked retry'",
		"again_in", p.reactor.cfg.RetryParkedEvery, "tenant", key.Tenant, "session", key.Session, "failures", failures, "error", reason)
	return nil
}

// parkedAs notes the revision under which a key was parked, unless it was retried or
// parked anew before the answer came.
func (p *parking) parkedAs(key Key, revision uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e, parked := p.set[key]; parked && e.revision == 0 {
		p.set[key] = noted{revision: revision, trial: e.trial}
	}
}
