// Package natslog is the log on JetStream: the stream EVENTS, written by
// compare-and-set on literal subjects and read from its leader.
//
// # Append and the lost reply
//
// A publish that isn't answered may have been stored, may still be stored, or may
// never have arrived. [Log.Append] therefore sends the identical bytes at the
// same expected sequence again until it knows:
//
//	            ┌────────── no answer: an attempt is in doubt ─────────┐
//	            ▼                                                      │
//	send ──▶ wait ──▶ ack ─────────────────────────▶ stored, seq       │
//	            │                                                      │
//	            ├──▶ wrong last sequence (10071)                       │
//	            │      no attempt in doubt ────────▶ *ConflictError    │
//	            │      else the leader is read:                        │
//	            │        subject moved on ─────────▶ *ConflictError    │
//	            │        it did not ───────────────────────────────────┤
//	            ├──▶ write in flight (10164): not yet decided ─────────┤
//	            ├──▶ no room (10002, 10023, 10047, on one replica 10077)
//	            │      no attempt in doubt ────────▶ *NoRoomError      │
//	            │      else, or 10077 of several ──────────────────────┘
//	            └──▶ ctx ends: in doubt ───────────▶ *OutcomeUnknownError
//	                           not in doubt ───────▶ ctx's error
//
// A conflict is definite: either the subject has moved past the expected
// sequence, so no attempt of ours that isn't stored ever will be, or the only
// attempt was refused by the leader. The conflict may have been with an own
// earlier attempt; the Store looks for the command's id. There is no Nats-Msg-Id:
// on a replicated stream the server acknowledges a different body under the same
// id as a duplicate and drops it.
//
// # Reads
//
// Last, Get and Info are answered by the stream's leader, never by a follower's
// direct get. Tail reads by an ordered consumer, and notices when the stream was
// emptied, or restored from an older copy, instead of waiting beyond its end.
package natslog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/internal/stream"
)

// Options of a Log; the zero value takes the defaults.
type Options struct {
	// AttemptTimeout is how long one attempt of an append or a read waits for its
	// answer before it is sent again; 0 means 2 s. The longest silence measured
	// when a leader of three was killed is 8.3 s.
	AttemptTimeout time.Duration
	// CheckEvery is how often a tail compares what it has read with what the
	// stream holds; 0 means 5 s. It is how long a stream that was emptied under a
	// running tail stays unnoticed.
	CheckEvery time.Duration
}

// Log is an eventlog.Log on the stream EVENTS. It owns nothing: whoever made the
// connection closes it, after the contexts of all calls have ended.
type Log struct {
	js     jetstream.JetStream
	reader stream.Reader
	opts   Options
}

var _ eventlog.Log = (*Log)(nil)

// New makes a Log on the connection that js was made from. It does not touch the
// stream: a stream that isn't there shows as eventlog.ErrNoGenesis in Info.
func New(js jetstream.JetStream, nc *nats.Conn, opts Options) (*Log, error) {
	switch {
	case js == nil || nc == nil:
		return nil, errors.New("natslog: needs a JetStream context and its connection")
	case opts.AttemptTimeout < 0 || opts.CheckEvery < 0:
		return nil, fmt.Errorf("natslog: timeouts can't be negative: %+v", opts)
	}
	if opts.AttemptTimeout == 0 {
		opts.AttemptTimeout = 2 * time.Second
	}
	if opts.CheckEvery == 0 {
		opts.CheckEvery = 5 * time.Second
	}
	return &Log{
		js: js, opts: opts,
		reader: stream.Reader{JS: js, NC: nc, Name: events.StreamEvents, AttemptTimeout: opts.AttemptTimeout},
	}, nil
}

// Last implements eventlog.Log.
func (l *Log) Last(ctx context.Context, subject string) (events.Message, bool, error) {
	if _, ok := events.ParseSubject(subject); !ok {
		return events.Message{}, false, fmt.Errorf("%w: %q", eventlog.ErrSubject, subject)
	}
	m, err := l.reader.Last(ctx, subject)
	switch {
	case errors.Is(err, stream.ErrNoMessage):
		return events.Message{}, false, nil
	case err != nil:
		return events.Message{}, false, fmt.Errorf("last of %s: %w", subject, named(err))
	}
	return message(m), true, nil
}

// Get implements eventlog.Log.
func (l *Log) Get(ctx context.Context, seq uint64) (events.Message, error) {
	m, err := l.reader.Get(ctx, seq)
	if err != nil {
		return events.Message{}, fmt.Errorf("get %d: %w", seq, named(err))
	}
	return message(m), nil
}

// Whole implements eventlog.Log: this one's messages are whole.
func (*Log) Whole(_ context.Context, m events.Message) (events.Message, error) { return m, nil }

// Info implements eventlog.Log. The log's first message has to be its genesis.
func (l *Log) Info(ctx context.Context) (eventlog.Info, error) {
	first, last, err := l.reader.Extent(ctx)
	if err != nil {
		return eventlog.Info{}, named(err)
	}
	genesis, err := l.genesisAt(ctx, first)
	if err != nil {
		return eventlog.Info{}, err
	}
	return eventlog.Info{Genesis: genesis, FirstSeq: first, LastSeq: last}, nil
}

// genesisAt reads the log's identity from its first message.
func (l *Log) genesisAt(ctx context.Context, first uint64) (eventlog.Genesis, error) {
	m, err := l.reader.Get(ctx, first)
	switch {
	case errors.Is(err, stream.ErrNoMessage):
		return eventlog.Genesis{}, eventlog.ErrNoGenesis
	case err != nil:
		return eventlog.Genesis{}, named(err)
	case m.Subject != events.SubjectGenesis:
		return eventlog.Genesis{}, fmt.Errorf("%w: its first message is on %s", eventlog.ErrNoGenesis, m.Subject)
	}
	var g eventlog.Genesis
	if err := json.Unmarshal(m.Data, &g); err != nil || g.LogID == "" || g.Epoch == "" {
		return eventlog.Genesis{}, fmt.Errorf("%w: the body of its first message is not one: %q", eventlog.ErrNoGenesis, m.Data)
	}
	return g, nil
}

// Tail implements eventlog.Log. It looks at the log's extent and genesis before
// it starts and every CheckEvery while it runs.
func (l *Log) Tail(ctx context.Context, from uint64, handle func(events.Message) error) error {
	next := max(from, 1)
	info, err := l.Info(ctx)
	if err != nil {
		return err
	}
	if _, err := l.check(ctx, next, info.Genesis); err != nil {
		return err
	}
	err = l.reader.Tail(ctx, next, func(m stream.Message) error {
		if m.Seq != next {
			return &eventlog.ChainError{
				Subject: m.Subject, Seq: m.Seq,
				Detail: fmt.Sprintf("the log keeps every message, but %d came where %d was next", m.Seq, next),
			}
		}
		if err := handle(message(m)); err != nil {
			return err
		}
		next++
		return nil
	}, func(ctx context.Context, next uint64) (uint64, error) {
		last, err := l.check(ctx, next, info.Genesis)
		if changed(err) {
			return 0, err
		}
		return last, nil // where nobody answered the tail goes on as soon as somebody does
	}, l.opts.CheckEvery)
	return named(err)
}

// check compares what was read with what the log holds now, and gives its last
// sequence.
func (l *Log) check(ctx context.Context, next uint64, genesis eventlog.Genesis) (last uint64, err error) {
	reaches, first, last, err := l.reader.Reaches(ctx, next)
	if err != nil {
		return 0, named(err)
	}
	now, err := l.genesisAt(ctx, first)
	switch {
	case err != nil:
		return 0, err
	case now != genesis:
		return 0, &eventlog.EpochError{Want: genesis, Got: now}
	case !reaches:
		return 0, &eventlog.TruncatedError{Next: next, LastSeq: last}
	}
	return last, nil
}

// changed says that an error tells of another log than the one that was read.
func changed(err error) bool {
	var truncated *eventlog.TruncatedError
	var epoch *eventlog.EpochError
	return errors.Is(err, eventlog.ErrNoGenesis) || errors.As(err, &truncated) || errors.As(err, &epoch)
}

// named gives the reader's errors the log's names.
func named(err error) error {
	switch {
	case errors.Is(err, stream.ErrNoStream):
		return fmt.Errorf("%w (%w)", eventlog.ErrNoGenesis, err)
	case errors.Is(err, stream.ErrNoMessage):
		return eventlog.ErrNotFound
	}
	return err
}

// message makes what is stored at a place into a Message; what isn't an envelope
// keeps a zero one.
func message(m stream.Message) events.Message {
	out := events.Message{Subject: m.Subject, Seq: m.Seq, Raw: m.Data}
	if env, err := events.DecodeEnvelope(m.Data); err == nil {
		out.Envelope = env
	}
	return out
}
