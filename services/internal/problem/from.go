package problem

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/blob"
	"github.com/holdfast-io/holdfast/events/eventlog"
)

// untilRoom is the advice that goes with a refusal for lack of room.
const untilRoom = 30 * time.Second

// blobRetryAfter is the advice where the store of large contents can't be reached.
const blobRetryAfter = time.Second

// From gives any error as a problem; nil for nil. A problem anywhere in the chain
// is the answer itself.
//
//	outcome-unknown     the append's outcome was not learnt, or time ran out
//	not-ready           NATS or the log can't be reached or isn't installed: nothing was sent
//	storage-low         the log has no room for what this would store
//	unknown-event-type  the log holds what this build doesn't know
//	blob-unavailable    large contents can't be had or kept now, or are lost
//	log-faulted         a broken chain, or an event of a service that may not write it
//	invalid-request     a name that can't be a token of a subject
//	payload-too-large   an envelope over its limit
//	internal            everything else
func From(err error) *Error {
	if err == nil {
		return nil
	}
	var p *Error
	if errors.As(err, &p) && p != nil {
		return p
	}
	var fromAPI *api.Error
	if errors.As(err, &fromAPI) && fromAPI != nil {
		return fromAPIError(fromAPI, err)
	}
	var (
		unknownOutcome *eventlog.OutcomeUnknownError
		noRoom         *eventlog.NoRoomError
		unknownType    *events.UnknownTypeError
		foreign        *events.ForeignTypeError
		chain          *eventlog.ChainError
		badToken       *events.BadTokenError
		lost           *events.LostError
		unavailable    *blob.UnavailableError
	)
	switch {
	case errors.As(err, &unknownOutcome):
		return Wrap(api.CodeOutcomeUnknown, "It may or may not have taken effect: ask again with the same idempotency key.", err)
	case errors.As(err, &noRoom):
		p := Wrap(api.CodeStorageLow, "The log's storage is nearly full: only what ends something is accepted until an operator has made room. Nothing changed.", err)
		p.RetryAfter = untilRoom
		return p
	case errors.As(err, &lost):
		return Wrap(api.CodeBlobUnavailable, "Contents of this session are lost: "+lost.Error()+"; an operator has to look at it.", err)
	case errors.As(err, &unavailable):
		p := Wrap(api.CodeBlobUnavailable, "The store of large contents can't be reached now; nothing changed. Try again.", err)
		p.RetryAfter = blobRetryAfter
		return p
	case errors.As(err, &unknownType):
		return Wrap(api.CodeUnknownEventType, unknownType.Error(), err)
	case errors.As(err, &foreign), errors.As(err, &chain):
		return Wrap(api.CodeLogFaulted, "The log of this session is faulted; an operator has to look at it.", err)
	case errors.As(err, &badToken):
		return Wrap(api.CodeInvalidRequest, badToken.Error(), err)
	case errors.Is(err, events.ErrTooLarge):
		return Wrap(api.CodePayloadTooLarge, "What this would store is over the limit of one message.", err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		// Where it stopped isn't known here, so it isn't called a refusal.
		return Wrap(api.CodeOutcomeUnknown, "It did not finish in time: ask again with the same idempotency key.", err)
	case unreachable(err):
		return Wrap(api.CodeNotReady, "The log can't be reached now; nothing changed.", err)
	default:
		return Wrap(api.CodeInternal, "", err)
	}
}

func fromAPIError(e *api.Error, cause error) *Error {
	p := Wrap(e.Problem.Code, e.Problem.Detail, cause)
	p.Phase, p.Allowed, p.Errors, p.RetryAfter = e.Problem.Phase, e.Problem.Allowed, e.Problem.Errors, e.RetryAfter
	p.status, p.title = e.Problem.Status, e.Problem.Title
	if !e.Problem.Winner.At.IsZero() {
		if winner, err := json.Marshal(e.Problem.Winner); err == nil {
			p.Winner = winner
		}
	}
	return p
}

// unreachable finds what NATS says when it is down, restarting or not installed.
// An append wraps these in an OutcomeUnknownError, so here they come from reads.
func unreachable(err error) bool {
	for _, e := range []error{
		eventlog.ErrNoGenesis,
		nats.ErrTimeout, nats.ErrNoResponders, nats.ErrNoServers, nats.ErrDisconnected,
		nats.ErrConnectionClosed, nats.ErrConnectionDraining, nats.ErrConnectionReconnecting,
		jetstream.ErrNoStreamResponse, jetstream.ErrStreamNotFound, jetstream.ErrConsumerNotFound,
		jetstream.ErrJetStreamNotEnabled, jetstream.ErrJetStreamNotEnabledForAccount,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
