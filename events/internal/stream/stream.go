// Package stream reads one JetStream stream: single messages and its extent as
// the stream's leader knows them, and all of it in order. The log (natslog) and
// what agents stream (natsoutput) stand on it.
//
// Single reads are raw STREAM.MSG.GET requests, which the stream's leader
// answers. The client library takes direct get where the stream allows it, and a
// follower's direct get was measured to be stale after an acknowledged write.
package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrNoMessage says that there is no message at a sequence or on a subject.
var ErrNoMessage = errors.New("no such message")

// ErrNoStream says that the stream was never made, or was deleted.
var ErrNoStream = errors.New("no such stream")

// codeNoMessage is the server's answer where a sequence or subject has none.
const codeNoMessage jetstream.ErrorCode = 10037

// Message is what is stored at a place of the stream.
type Message struct {
	Subject string
	Seq     uint64
	Data    []byte
}

// Reader reads the stream Name over the connection that JS was made from.
type Reader struct {
	JS   jetstream.JetStream
	NC   *nats.Conn
	Name string
	// AttemptTimeout is how long one attempt waits for its answer before it is made
	// again.
	AttemptTimeout time.Duration
}

// getRequest is the body of STREAM.MSG.GET: one of the two.
type getRequest struct {
	Seq    uint64 `json:"seq,omitempty"`
	LastBy string `json:"last_by_subj,omitempty"`
}

// getResponse is its answer; data is base64 in JSON.
type getResponse struct {
	Error   *jetstream.APIError `json:"error,omitempty"`
	Message *struct {
		Subject string `json:"subject"`
		Seq     uint64 `json:"seq"`
		Data    []byte `json:"data"`
	} `json:"message,omitempty"`
}

// Last reads a subject's last message from the leader, asking again while nobody
// answers until ctx ends. Errors: ErrNoMessage, ErrNoStream, ctx's, the server's.
func (r Reader) Last(ctx context.Context, subject string) (Message, error) {
	return r.leaderRead(ctx, getRequest{LastBy: subject})
}

// Get reads the message at a sequence, as Last does.
func (r Reader) Get(ctx context.Context, seq uint64) (Message, error) {
	if seq == 0 {
		return Message{}, ErrNoMessage // a zero would be left out of the request
	}
	return r.leaderRead(ctx, getRequest{Seq: seq})
}

func (r Reader) leaderRead(ctx context.Context, req getRequest) (Message, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return Message{}, fmt.Errorf("request of STREAM.MSG.GET: %w", err)
	}
	var res getResponse
	err = r.retry(ctx, func(ctx context.Context) error {
		reply, err := r.NC.RequestWithContext(ctx, r.api("STREAM.MSG.GET."+r.Name), body)
		if err != nil {
			return err
		}
		res = getResponse{}
		if err := json.Unmarshal(reply.Data, &res); err != nil {
			return fmt.Errorf("answer to STREAM.MSG.GET: %w", err)
		}
		if res.Error != nil {
			return res.Error
		}
		return nil
	})
	var refused *jetstream.APIError
	switch {
	case errors.As(err, &refused) && refused.ErrorCode == codeNoMessage:
		return Message{}, ErrNoMessage
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return Message{}, fmt.Errorf("%w: %s", ErrNoStream, r.Name)
	case err != nil:
		return Message{}, err
	case res.Message == nil:
		return Message{}, errors.New("answer to STREAM.MSG.GET holds neither message nor error")
	}
	return Message(*res.Message), nil
}

// Extent gives the sequences of the first and last message as the leader knows
// them; an empty stream has last = first-1.
func (r Reader) Extent(ctx context.Context) (first, last uint64, err error) {
	err = r.retry(ctx, func(ctx context.Context) error {
		s, err := r.JS.Stream(ctx, r.Name)
		if err != nil {
			return err
		}
		state := s.CachedInfo().State
		first, last = state.FirstSeq, state.LastSeq
		return nil
	})
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return 0, 0, fmt.Errorf("%w: %s", ErrNoStream, r.Name)
	case err != nil:
		return 0, 0, fmt.Errorf("info of stream %s: %w", r.Name, err)
	}
	return max(first, 1), last, nil
}

// retry runs a read, each time at most AttemptTimeout long, again while no leader
// answers. Reads change nothing, so asking again is always right.
func (r Reader) retry(ctx context.Context, read func(context.Context) error) error {
	pace := NewPace()
	for {
		attempt, cancel := context.WithTimeout(ctx, r.AttemptTimeout)
		err := read(attempt)
		cancel()
		if err == nil || !Unanswered(err) {
			return err
		}
		if stop := pace.Wait(ctx); stop != nil {
			return fmt.Errorf("%w: %w", stop, err)
		}
	}
}

// Unanswered says that an error tells nothing of the stream: nobody answered, or
// the server can't at the moment.
func Unanswered(err error) bool {
	if refused, ok := errors.AsType[*jetstream.APIError](err); ok {
		return slices.Contains(passing, refused.ErrorCode)
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) ||
		errors.Is(err, nats.ErrNoResponders) || errors.Is(err, nats.ErrDisconnected) ||
		errors.Is(err, jetstream.ErrNoStreamResponse)
}

// passing are the server's refusals that pass by themselves: there is no leader,
// the asked server isn't it, it has not applied all that it holds, or it is
// shutting down and its JetStream is off already.
var passing = []jetstream.ErrorCode{10008, 10009, 10163, 10039, 10076}

// api puts the API's prefix before a request's name: another in a domain or
// across accounts.
func (r Reader) api(name string) string {
	opts := r.JS.Options()
	switch {
	case opts.APIPrefix != "":
		return opts.APIPrefix + name
	case opts.Domain != "":
		return "$JS." + opts.Domain + ".API." + name
	}
	return jetstream.DefaultAPIPrefix + name
}

// Pace spreads the attempts of one call: from 5 ms, growing to half a second,
// with jitter. Its zero value is ready.
type Pace struct{ b *backoff.ExponentialBackOff }

// NewPace starts at the shortest wait.
func NewPace() *Pace { return &Pace{} }

// Wait waits for the next attempt; it gives ctx's error where that ends first.
func (p *Pace) Wait(ctx context.Context) error {
	if p.b == nil { // made at the first wait: most calls need none
		p.b = backoff.NewExponentialBackOff()
		p.b.InitialInterval, p.b.MaxInterval = 5*time.Millisecond, 500*time.Millisecond
		p.b.Reset()
	}
	t := time.NewTimer(p.b.NextBackOff())
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
