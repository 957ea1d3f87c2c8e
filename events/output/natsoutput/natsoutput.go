// Package natsoutput is the output stream on JetStream: the stream OUTPUT.
package natsoutput

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/internal/stream"
	"github.com/holdfast-io/holdfast/events/output"
)

// Options of a Stream; the zero value takes the defaults.
type Options struct {
	// AttemptTimeout is how long one attempt of a publish or a read waits for its
	// answer before it is made again; 0 means 2 s.
	AttemptTimeout time.Duration
	// CheckEvery is how often a tail looks whether the stream was made anew under
	// it; 0 means 5 s.
	CheckEvery time.Duration
}

// Stream is an output.Stream on the stream OUTPUT. It owns nothing: whoever made
// the connection closes it, after the contexts of all calls have ended.
type Stream struct {
	js     jetstream.JetStream
	reader stream.Reader
	opts   Options
}

var _ output.Stream = (*Stream)(nil)

// New makes a Stream on the connection that js was made from. It does not touch
// the stream, which the installer makes.
func New(js jetstream.JetStream, nc *nats.Conn, opts Options) (*Stream, error) {
	switch {
	case js == nil || nc == nil:
		return nil, errors.New("natsoutput: needs a JetStream context and its connection")
	case opts.AttemptTimeout < 0 || opts.CheckEvery < 0:
		return nil, fmt.Errorf("natsoutput: timeouts can't be negative: %+v", opts)
	}
	if opts.AttemptTimeout == 0 {
		opts.AttemptTimeout = 2 * time.Second
	}
	if opts.CheckEvery == 0 {
		opts.CheckEvery = 5 * time.Second
	}
	return &Stream{
		js: js, opts: opts,
		reader: stream.Reader{JS: js, NC: nc, Name: events.StreamOutput, AttemptTimeout: opts.AttemptTimeout},
	}, nil
}

// Publish implements output.Stream.
func (s *Stream) Publish(ctx context.Context, tenant, session string, b output.Batch) (uint64, error) {
	subject, err := events.OutputSubject(tenant, session)
	if err != nil {
		return 0, err
	}
	body, err := b.Encode()
	if err != nil {
		return 0, err
	}
	pace := stream.NewPace()
	for {
		seq, err := s.send(ctx, subject, body)
		if err == nil {
			return seq, nil
		}
		if !stream.Unanswered(err) {
			return 0, fmt.Errorf("publish on %s: %w", subject, err)
		}
		if stop := pace.Wait(ctx); stop != nil {
			return 0, fmt.Errorf("publish on %s: %w: %w", subject, stop, err)
		}
	}
}

func (s *Stream) send(ctx context.Context, subject string, body []byte) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.AttemptTimeout)
	defer cancel()
	ack, err := s.js.Publish(ctx, subject, body,
		jetstream.WithExpectStream(events.StreamOutput), jetstream.WithRetryAttempts(0))
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// Last implements output.Stream. It asks the stream's leader: a runner that took
// over goes on after the last k, and would publish again what a follower lacks.
func (s *Stream) Last(ctx context.Context, tenant, session string) (output.Batch, uint64, bool, error) {
	subject, err := events.OutputSubject(tenant, session)
	if err != nil {
		return output.Batch{}, 0, false, err
	}
	m, err := s.reader.Last(ctx, subject)
	switch {
	case errors.Is(err, stream.ErrNoMessage):
		return output.Batch{}, 0, false, nil
	case err != nil:
		return output.Batch{}, 0, false, fmt.Errorf("last of %s: %w", subject, named(err))
	}
	b, err := output.Decode(m.Data)
	if err != nil {
		return output.Batch{}, 0, false, fmt.Errorf("%s at %d: %w", subject, m.Seq, err)
	}
	return b, m.Seq, true, nil
}

// Info implements output.Stream.
func (s *Stream) Info(ctx context.Context) (first, last uint64, err error) {
	first, last, err = s.reader.Extent(ctx)
	return first, last, named(err)
}

// Tail implements output.Stream.
func (s *Stream) Tail(ctx context.Context, from uint64, handle func(output.Message) error) error {
	from = max(from, 1)
	if _, err := s.check(ctx, from); err != nil {
		return err
	}
	err := s.reader.Tail(ctx, from, func(m stream.Message) error {
		tenant, session, ok := events.ParseOutputSubject(m.Subject)
		if !ok {
			return nil
		}
		b, err := output.Decode(m.Data)
		if err != nil {
			return nil //nolint:nilerr // one bad batch must not stop every session's viewers; its k are missed and show as a gap
		}
		return handle(output.Message{Tenant: tenant, Session: session, Seq: m.Seq, Batch: b})
	}, func(ctx context.Context, next uint64) (uint64, error) {
		last, err := s.check(ctx, next)
		var truncated *output.TruncatedError
		if errors.As(err, &truncated) || errors.Is(err, output.ErrNoStream) {
			return 0, err
		}
		return last, nil // nobody answered: the tail goes on as soon as somebody does
	}, s.opts.CheckEvery)
	return named(err)
}

// named gives the reader's errors the port's names.
func named(err error) error {
	if errors.Is(err, stream.ErrNoStream) {
		return fmt.Errorf("%w (%w)", output.ErrNoStream, err)
	}
	return err
}

// check compares what was read with what the stream holds now, and gives its last
// sequence.
func (s *Stream) check(ctx context.Context, next uint64) (last uint64, err error) {
	reaches, _, last, err := s.reader.Reaches(ctx, next)
	switch {
	case err != nil:
		return 0, named(err)
	case !reaches:
		return 0, &output.TruncatedError{Next: next, Last: last}
	}
	return last, nil
}
