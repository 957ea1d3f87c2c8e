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
//	            ├──▶ write in flight (10164): not yet decided ─────────┘
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
// Last and Get are raw STREAM.MSG.GET requests, which the stream's leader
// answers. The client library takes direct get where the stream allows it, and a
// follower's direct get was measured to be stale after an acknowledged write.
package natslog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
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
	js   jetstream.JetStream
	nc   *nats.Conn
	opts Options
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
	return &Log{js: js, nc: nc, opts: opts}, nil
}

// Info implements eventlog.Log. The log's first message has to be its genesis.
func (l *Log) Info(ctx context.Context) (eventlog.Info, error) {
	state, err := l.streamState(ctx)
	if err != nil {
		return eventlog.Info{}, err
	}
	genesis, err := l.genesisAt(ctx, state.FirstSeq)
	if err != nil {
		return eventlog.Info{}, err
	}
	return eventlog.Info{Genesis: genesis, FirstSeq: state.FirstSeq, LastSeq: state.LastSeq}, nil
}

// message makes what is stored at a place into a Message; what isn't an envelope
// keeps a zero one.
func message(subject string, seq uint64, raw []byte) events.Message {
	m := events.Message{Subject: subject, Seq: seq, Raw: raw}
	if env, err := events.DecodeEnvelope(raw); err == nil {
		m.Envelope = env
	}
	return m
}
