package serving

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/services/internal/reactor"
)

// How long a session waits for what is no fault of its own.
const (
	untilRoom    = 15 * time.Second
	untilUpgrade = 30 * time.Second
)

// patient wraps a Settle: where the log has no room for what comes next, or holds what
// only a newer build can read, ten failures in a row would park every session that
// something happens to, and somebody would have to wake them all. They are looked at
// again instead, for as long as it takes.
func patient(settle func(context.Context, reactor.Key) error) func(context.Context, reactor.Key) error {
	return func(ctx context.Context, key reactor.Key) error {
		err := settle(ctx, key)
		if _, full := errors.AsType[*eventlog.NoRoomError](err); full {
			return &reactor.LaterError{After: untilRoom, Err: err}
		}
		if _, unknown := errors.AsType[*events.UnknownTypeError](err); unknown {
			return &reactor.LaterError{After: untilUpgrade, Err: err}
		}
		return err
	}
}
