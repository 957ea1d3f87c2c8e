package hub

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apispec"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/output"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/projections/view"
	"github.com/holdfast-io/holdfast/services/gateway/internal/auth"
)

// Config of a Hub.
type Config struct {
	// Log is EVENTS, Epoch its genesis' epoch, Output is OUTPUT. Required.
	Log    eventlog.Log
	Epoch  string
	Output output.Stream
	// Sessions reads a session as it is now. Required; live.Live is one.
	Sessions Sessions
	// History is the projections; nil reads everything from the streams.
	History History
	// Copy shortens loads of sessions from the log; may be nil.
	Copy eventlog.Copy
	// Commands takes what comes over the WebSocket. Required for ServeWebSocket.
	Commands Commands
	// Admit says again who a WebSocket's request is from, and whether an operation
	// is still allowed: auth.Auth's. Required for ServeWebSocket.
	Admit func(op *apispec.Operation, r *http.Request) (auth.Principal, error)
	// Origins are where a browser may open a socket from, besides its own machine.
	Origins auth.Origins
	// Fail writes an error as the answer of a stream that hasn't begun. Required.
	Fail func(w http.ResponseWriter, r *http.Request, err error)
	// Seen is called with every message of EVENTS, in order, by one goroutine; may
	// be nil.
	Seen   func(events.Message)
	Logger *slog.Logger
	// Metrics is where metrics are registered; nil for nowhere.
	Metrics prometheus.Registerer

	// QueueBytes bounds what waits for one connection; 0 means 1 MiB.
	QueueBytes int
	// RingBytes bounds the recent output that is kept for those who attach; 0 means
	// 8 MiB.
	RingBytes int
	// HeldBytes bounds what of one session waits: output for its event, the largest batch
	// of it apart, and events for the output before them, the first message apart. HoldFor
	// is how long output waits before the log is asked whether the event exists, and the
	// most that an event waits; 0 means 4 MiB and 15 s: a tail takes up to 10 s to find that
	// its consumer stands still.
	HeldBytes int
	HoldFor   time.Duration
	// Heartbeat is the silence after which a connection gets a word; 0 means 15 s.
	Heartbeat time.Duration
	// WriteTimeout is how long one write may take; 0 means 10 s.
	WriteTimeout time.Duration
	// ViewersPerPrincipal bounds the connections of one person in one tenant,
	// SubscriptionsPerSocket those on one WebSocket; 0 means 64 and 256.
	ViewersPerPrincipal    int
	SubscriptionsPerSocket int
	// ScanMessages is how many messages of a stream may be read through for one
	// viewer where the projections can't help; 0 means 20000.
	ScanMessages int
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Sessions reads sessions from the log, confirmed by its leader.
type Sessions interface {
	// Session hands the state to view. A session that isn't in the tenant is a
	// not-found problem.
	Session(ctx context.Context, tenant, id string, view func(*session.State) error) error
}

// History is what the projections keep of streams (see Projected). An error means
// that they can't be read now.
type History interface {
	// Timeline gives a session's frames with n above after, in order and without
	// cursors, at most limit. more says that it has others behind them: where frames
	// are large, fewer than limit come.
	Timeline(ctx context.Context, tenant, session string, after uint64, limit int) (frames []view.Frame, more bool, err error)
	// Output gives a session's batches with a sequence above after, in order, at
	// most limit.
	Output(ctx context.Context, tenant, session string, after uint64, limit int) (OutputPage, error)
	// OutputBehind gives the sequence of a session's last batch that was written
	// before its version went beyond n; 0 where it knows of none.
	OutputBehind(ctx context.Context, tenant, session string, n uint64) (uint64, error)
	// Pending gives the tenant's open questions, at most limit.
	Pending(ctx context.Context, tenant string, limit int) ([]view.Approval, error)
}

// OutputPage is a part of a session's output.
type OutputPage struct {
	Batches []output.Message
	// Reached is the sequence up to which the copy has all that OUTPUT had, read
	// before Batches.
	Reached uint64
	// Floor is the highest sequence of a batch of this session that has aged out; 0
	// for none.
	Floor uint64
}

// Commands are the writes that viewers make. The principal is in the context
// (auth.From).
type Commands interface {
	// Decide answers a question. first says that this is the answer that counts.
	Decide(ctx context.Context, id string, body api.DecideApproval, key *string) (out api.Approval, seq uint64, first bool, err error)
	// Send appends a message to a session.
	Send(ctx context.Context, session string, body api.SendMessage, key *string) (out api.MessageAccepted, seq uint64, err error)
}

// Defaults of a Config.
const (
	DefaultQueueBytes             = 1 << 20
	DefaultRingBytes              = 8 << 20
	DefaultHeldBytes              = 4 << 20
	DefaultHoldFor                = 15 * time.Second
	DefaultHeartbeat              = 15 * time.Second
	DefaultWriteTimeout           = 10 * time.Second
	DefaultViewersPerPrincipal    = 64
	DefaultSubscriptionsPerSocket = 256
	DefaultScanMessages           = 20000
)

func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Log == nil, c.Output == nil, c.Sessions == nil, c.Fail == nil, c.Logger == nil:
		return c, errors.New("hub: Log, Output, Sessions, Fail and Logger are required")
	case c.Epoch == "":
		return c, errors.New("hub: no epoch")
	}
	for _, d := range []struct {
		field    *int
		standard int
	}{
		{&c.QueueBytes, DefaultQueueBytes},
		{&c.RingBytes, DefaultRingBytes},
		{&c.HeldBytes, DefaultHeldBytes},
		{&c.ViewersPerPrincipal, DefaultViewersPerPrincipal},
		{&c.SubscriptionsPerSocket, DefaultSubscriptionsPerSocket},
		{&c.ScanMessages, DefaultScanMessages},
	} {
		if *d.field < 0 {
			return c, errors.New("hub: a bound is negative")
		}
		if *d.field == 0 {
			*d.field = d.standard
		}
	}
	for _, d := range []struct {
		field    *time.Duration
		standard time.Duration
	}{{&c.HoldFor, DefaultHoldFor}, {&c.Heartbeat, DefaultHeartbeat}, {&c.WriteTimeout, DefaultWriteTimeout}} {
		if *d.field < 0 {
			return c, errors.New("hub: a duration is negative")
		}
		if *d.field == 0 {
			*d.field = d.standard
		}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c, nil
}
