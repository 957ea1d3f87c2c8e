package natslog

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
)

// Tail implements eventlog.Log by an ordered consumer without a filter: filters
// on many subjects were measured to cost a hundredfold.
//
// A consumer that starts beyond the end of its stream waits in silence, also
// where the stream was emptied or restored from an older copy. So Tail looks at
// the stream's extent and genesis before it starts and every CheckEvery while it
// runs, and gives *eventlog.TruncatedError or *eventlog.EpochError.
func (l *Log) Tail(ctx context.Context, from uint64, handle func(events.Message) error) error {
	from = max(from, 1)
	info, err := l.confirmedInfo(ctx, from)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t := &tail{log: l, genesis: info.Genesis, out: make(chan events.Message, 64)}
	t.next.Store(from)

	pumped, watched := make(chan struct{}), make(chan struct{})
	go func() { defer close(pumped); t.pump(ctx, cancel, from) }()
	go func() { defer close(watched); t.watch(ctx, cancel) }()
	defer func() {
		cancel(nil)
		<-watched
		// The library may be waiting for a server that is gone; it sees the end of
		// ctx at its next attempt, and nothing of ours depends on that.
		t.abandon(pumped)
	}()
	for {
		select {
		case m := <-t.out:
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if next := t.next.Load(); m.Seq != next {
				return &eventlog.ChainError{
					Subject: m.Subject, Seq: m.Seq,
					Detail: fmt.Sprintf("the log keeps every message, but %d follows %d", m.Seq, next-1),
				}
			}
			if err := handle(m); err != nil {
				return err
			}
			t.next.Add(1)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tail is one running Tail.
type tail struct {
	log     *Log
	genesis eventlog.Genesis
	out     chan events.Message
	// next is the sequence that the handler gets next.
	next atomic.Uint64
}

// pump moves messages from an ordered consumer to out, making a new consumer
// where the library gives up on one.
func (t *tail) pump(ctx context.Context, fail context.CancelCauseFunc, from uint64) {
	pace := newPace()
	for {
		next, err := t.consume(ctx, from)
		if next > from {
			from, pace = next, newPace()
		}
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			fail(eventlog.ErrNoGenesis)
			return
		}
		if pace.wait(ctx) != nil {
			return
		}
	}
}

// consume runs one ordered consumer from a sequence until it fails or ctx ends,
// and gives the sequence to go on with.
func (t *tail) consume(ctx context.Context, from uint64) (next uint64, _ error) {
	create, cancel := context.WithTimeout(ctx, t.log.opts.AttemptTimeout)
	consumer, err := t.log.js.OrderedConsumer(create, events.StreamEvents, jetstream.OrderedConsumerConfig{
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       from,
		InactiveThreshold: 30 * time.Second,
		MaxResetAttempts:  1,
	})
	cancel()
	if err != nil {
		return from, err
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessagesWithBytesLimit(500, 16<<20))
	if err != nil {
		return from, err
	}
	defer context.AfterFunc(ctx, messages.Stop)()
	defer messages.Stop()
	for {
		msg, err := messages.Next()
		if err != nil {
			return from, err
		}
		meta, err := msg.Metadata()
		if err != nil {
			return from, err
		}
		select {
		case t.out <- message(msg.Subject(), meta.Sequence.Stream, msg.Data()):
			from = meta.Sequence.Stream + 1
		case <-ctx.Done():
			return from, ctx.Err()
		}
	}
}

// watch compares what was read with what the stream holds, from time to time.
func (t *tail) watch(ctx context.Context, fail context.CancelCauseFunc) {
	tick := time.NewTicker(t.log.opts.CheckEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		info, err := t.log.confirmedInfo(ctx, t.next.Load())
		if ctx.Err() != nil {
			return
		}
		if err == nil && info.Genesis != t.genesis {
			err = &eventlog.EpochError{Want: t.genesis, Got: info.Genesis}
		}
		var truncated *eventlog.TruncatedError
		var epoch *eventlog.EpochError
		if errors.Is(err, eventlog.ErrNoGenesis) || errors.As(err, &truncated) || errors.As(err, &epoch) {
			fail(err)
			return
		}
	}
}

// confirmedInfo reads Info and makes sure that the log reaches to just before
// next. A leader that was elected a moment ago may report less than it holds, so
// an end that is too early is looked at three times.
func (l *Log) confirmedInfo(ctx context.Context, next uint64) (eventlog.Info, error) {
	pace := newPace()
	pace.b.InitialInterval = 200 * time.Millisecond
	pace.b.Reset()
	for look := 1; ; look++ {
		info, err := l.Info(ctx)
		if err != nil || next <= info.LastSeq+1 {
			return info, err
		}
		if look == 3 {
			return info, &eventlog.TruncatedError{Next: next, LastSeq: info.LastSeq}
		}
		if err := pace.wait(ctx); err != nil {
			return info, err
		}
	}
}

// abandon waits for the pump to end, but not for a server that doesn't answer.
func (t *tail) abandon(pumped <-chan struct{}) {
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-pumped:
	case <-timer.C:
	}
}
