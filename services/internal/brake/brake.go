package brake

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/blob"
	"github.com/holdfast-io/holdfast/events/eventlog"
)

// Usage is one measure of the log's storage, in bytes.
type Usage struct {
	// What is short and constant: "stream", "blobs", "account" or "disk".
	What        string
	Used, Limit uint64
}

// usageBlobs is What of the contents beside the log.
const usageBlobs = "blobs"

// Share is how much is used, 1 for all of it; 0 where there is no limit.
func (u Usage) Share() float64 {
	if u.Limit == 0 {
		return 0
	}
	return float64(u.Used) / float64(u.Limit)
}

// Source measures. One that fails leaves its last measures standing.
type Source func(ctx context.Context) ([]Usage, error)

// The shares between which the brake is set and let off, from the design ("The log").
const (
	SetAt = 0.85
	OffAt = 0.80
)

// Config of a Brake.
type Config struct {
	// Sources are asked in turn.
	Sources []Source
	// Every is the time between measurements; 0 means 5 s.
	Every time.Duration
	// Logger is told when the brake is set and let off. It is needed.
	Logger *slog.Logger
	// Metrics may be nil.
	Metrics *Metrics
}

// Brake is set and let off by what it measures. It is open before the first
// measurement.
type Brake struct {
	cfg     Config
	metrics *Metrics

	mu     sync.RWMutex
	usages map[string]Usage
	set    bool
}

// New makes a Brake; Measure or Run makes it look.
func New(cfg Config) (*Brake, error) {
	if cfg.Logger == nil || cfg.Every < 0 {
		return nil, errors.New("brake: needs a Logger and no negative time")
	}
	if cfg.Every == 0 {
		cfg.Every = 5 * time.Second
	}
	metrics := cfg.Metrics
	if metrics == nil {
		metrics = newMetrics()
	}
	return &Brake{cfg: cfg, metrics: metrics, usages: map[string]Usage{}}, nil
}

// Run measures until ctx ends.
func (b *Brake) Run(ctx context.Context) {
	tick := time.NewTicker(b.cfg.Every)
	defer tick.Stop()
	for {
		b.Measure(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Measure looks once, and sets the brake or lets it off.
func (b *Brake) Measure(ctx context.Context) {
	var all []Usage
	for _, source := range b.cfg.Sources {
		found, err := source(ctx)
		if err != nil {
			b.cfg.Logger.Debug("storage can't be measured", "error", err)
		}
		all = append(all, found...)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, u := range all {
		b.usages[u.What] = u
		b.metrics.used.WithLabelValues(u.What).Set(u.Share())
	}
	worst := b.worst()
	switch share := worst.Share(); {
	case !b.set && share >= SetAt:
		b.set = true
		b.cfg.Logger.Error("the log's storage is low: only what ends something is accepted until there is room", "what", worst.What,
			"used", worst.Used, "limit", worst.Limit)
	case b.set && share < OffAt:
		b.set = false
		b.cfg.Logger.Info("the log has room again: everything is accepted", "what", worst.What, "used", worst.Used, "limit", worst.Limit)
	}
	b.metrics.braking.Set(asNumber(b.set))
}

func asNumber(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// worst is the fullest of what is known. Called with mu held.
func (b *Brake) worst() Usage {
	var worst Usage
	for _, u := range b.usages {
		if worst.What == "" || u.Share() > worst.Share() {
			worst = u
		}
	}
	return worst
}

// State says whether the brake is set, and the fullest measure.
func (b *Brake) State() (set bool, worst Usage) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.set, b.worst()
}

// lacking gives the measure by which a message of so many bytes has no room at all, as
// it was when it was looked at last. Contents beside the log have a limit of their own,
// and whoever stores them hears of it.
func (b *Brake) lacking(size uint64) (Usage, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for what, u := range b.usages {
		if what != usageBlobs && u.Limit > 0 && u.Used+size > u.Limit {
			return u, true
		}
	}
	return Usage{}, false
}

// sizeOf is about what an envelope takes in the log: its data, but for what is kept
// beside it, and the rest of it.
func sizeOf(env events.Envelope) uint64 {
	const around, each = 384, 64
	size := around
	for _, r := range env.Events {
		size += each
		if len(r.Data) <= blob.Over {
			size += len(r.Data)
		}
	}
	return uint64(size)
}

// LowError is what a NoRoomError of the brake wraps.
type LowError struct{ Usage Usage }

// Error says how full it is.
func (e *LowError) Error() string {
	return fmt.Sprintf("storage is low: %.0f %% of the %s's limit is used", 100*e.Usage.Share(), e.Usage.What)
}

// Log is inner behind the brake.
func (b *Brake) Log(inner eventlog.Log) eventlog.Log { return braked{Log: inner, brake: b} }

// braked refuses appends while the brake is set; reads pass.
type braked struct {
	eventlog.Log
	brake *Brake
}

// Append implements eventlog.Log.
func (l braked) Append(ctx context.Context, subject string, env events.Envelope) (uint64, error) {
	if set, worst := l.brake.State(); set && !concludes(env) {
		l.brake.metrics.refused.Inc()
		return 0, &eventlog.NoRoomError{Subject: subject, Err: &LowError{Usage: worst}}
	}
	// A replicated stream that is full doesn't refuse for good: the leader can't say that
	// no other replica has stored it. What isn't sent is refused for good, and at once.
	if full, ok := l.brake.lacking(sizeOf(env)); ok {
		l.brake.metrics.refused.Inc()
		return 0, &eventlog.NoRoomError{Subject: subject, Err: &LowError{Usage: full}}
	}
	return l.Log.Append(ctx, subject, env)
}
