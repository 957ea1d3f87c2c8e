package natslog

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/internal/stream"
)

// Codes of the server's refusals.
const (
	// codeWrongLast names the subject's last sequence as the leader knows it.
	codeWrongLast jetstream.ErrorCode = 10071
	// codeInFlight says, on a replicated stream, that another write of the subject
	// isn't decided yet; that one may be our own earlier attempt.
	codeInFlight jetstream.ErrorCode = 10164
	// codeStoreFailed says that a limit of the stream doesn't let it be stored. On a
	// replicated stream it may say so of what was replicated already: another replica
	// may have stored it, and lead next.
	codeStoreFailed jetstream.ErrorCode = 10077
)

// codesNoRoom are refusals for the limits of the account and of the server, which
// are asked before anything is stored or replicated.
var codesNoRoom = []jetstream.ErrorCode{10002, 10023, 10047}

// Append implements eventlog.Log; see the package's doc for how it comes to know.
func (l *Log) Append(ctx context.Context, subject string, env events.Envelope) (uint64, error) {
	if _, ok := events.ParseSubject(subject); !ok {
		return 0, fmt.Errorf("%w: %q", eventlog.ErrSubject, subject)
	}
	body, err := env.Encode()
	if err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, err // nothing was sent: the outcome is known
	}
	a := attempt{log: l, subject: subject, body: body, types: env.Types(), prev: env.Prev}
	pace := stream.NewPace()
	for {
		seq, err := a.send(ctx)
		if err == nil {
			return seq, nil
		}
		settled, err := a.judge(ctx, err)
		if settled {
			return 0, err
		}
		if stop := pace.Wait(ctx); stop != nil {
			if a.inDoubt {
				return 0, &eventlog.OutcomeUnknownError{Subject: subject, Command: env.Command, Err: fmt.Errorf("%w: %w", stop, err)}
			}
			return 0, fmt.Errorf("append to %s: %w: %w", subject, stop, err)
		}
	}
}

// attempt is one append through all its sendings.
type attempt struct {
	log     *Log
	subject string
	body    []byte
	types   string
	prev    uint64
	// inDoubt says that a sending got no answer: it may be stored, now or later.
	inDoubt bool
}

// send publishes once and waits for the answer.
func (a *attempt) send(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, a.log.opts.AttemptTimeout)
	defer cancel()
	msg := nats.NewMsg(a.subject)
	msg.Header.Set(events.HeaderTypes, a.types)
	msg.Data = a.body
	ack, err := a.log.js.PublishMsg(ctx, msg,
		jetstream.WithExpectStream(events.StreamEvents),
		jetstream.WithExpectLastSequencePerSubject(a.prev),
		jetstream.WithRetryAttempts(0),
	)
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// judge says whether an unsuccessful sending settles the append, and with what.
func (a *attempt) judge(ctx context.Context, err error) (settled bool, _ error) {
	var refused *jetstream.APIError
	switch {
	case errors.As(err, &refused):
		return a.refused(ctx, refused)
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders):
		// Nobody took it: the stream has no leader at the moment, or isn't there.
		return false, err
	case neverSent(err):
		return !a.inDoubt, err
	default:
		a.inDoubt = true
		return false, err
	}
}

// refused judges a refusal by the server.
func (a *attempt) refused(ctx context.Context, refusal *jetstream.APIError) (settled bool, _ error) {
	switch {
	case refusal.ErrorCode == codeInFlight:
		return false, refusal
	case refusal.ErrorCode == codeWrongLast:
		if a.inDoubt && !a.movedOn(ctx) {
			return false, refusal
		}
		return true, &eventlog.ConflictError{Subject: a.subject, Expected: a.prev}
	case refusal.ErrorCode == codeStoreFailed && (a.inDoubt || !a.alone(ctx)):
		a.inDoubt = true
		return false, refusal
	case a.inDoubt, stream.Unanswered(refusal):
		return false, refusal
	case refusal.ErrorCode == codeStoreFailed, slices.Contains(codesNoRoom, refusal.ErrorCode):
		return true, &eventlog.NoRoomError{Subject: a.subject, Err: refusal}
	default:
		return true, fmt.Errorf("append to %s: %w", a.subject, refusal)
	}
}

// movedOn says whether the subject's last message is known to be beyond the
// expected one, so that no sending in doubt can still be stored. A leader that
// has just been elected may refuse before it has applied all that it holds.
func (a *attempt) movedOn(ctx context.Context) bool {
	last, ok, err := a.log.Last(ctx, a.subject)
	return err == nil && ok && last.Seq > a.prev
}

// alone says whether it is known that the stream has one replica, whose refusal to
// store is then the last word.
func (a *attempt) alone(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, a.log.opts.AttemptTimeout)
	defer cancel()
	s, err := a.log.js.Stream(ctx, events.StreamEvents)
	return err == nil && s.CachedInfo().Config.Replicas == 1
}

// neverSent says that the client library refused to send at all.
func neverSent(err error) bool {
	return errors.Is(err, nats.ErrConnectionClosed) ||
		errors.Is(err, nats.ErrConnectionDraining) ||
		errors.Is(err, nats.ErrReconnectBufExceeded) ||
		errors.Is(err, nats.ErrMaxPayload) ||
		errors.Is(err, nats.ErrBadSubject)
}
