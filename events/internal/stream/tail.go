package stream

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Check looks at a stream while it is tailed, and gives its last sequence; 0 where
// nobody answers. next is the sequence that the handler gets next. An error ends the
// tail with it.
type Check func(ctx context.Context, next uint64) (last uint64, err error)

// Tail hands every message from a sequence on to handle, in order, until ctx ends
// or handle fails, and gives that error back. It reads by an ordered consumer
// without a filter: filters on many subjects were measured to cost a hundredfold.
//
// A consumer that starts beyond the end of its stream waits in silence, also
// where the stream was emptied or restored from an older copy; check runs once in
// each period so that the owner notices. A consumer that gives nothing from one check
// to the next, although there is something to give, is replaced.
func (r Reader) Tail(ctx context.Context, from uint64, handle func(Message) error, check Check, every time.Duration) error {
	ctx, cancel := context.WithCancelCause(ctx)
	t := &tail{reader: r, out: make(chan Message, 64), stalled: make(chan struct{}, 1)}
	t.next.Store(max(from, 1))
	pumped, watched := make(chan struct{}), make(chan struct{})
	go func() { defer close(pumped); t.pump(ctx, cancel) }()
	go func() { defer close(watched); t.watch(ctx, cancel, check, every) }()
	defer func() {
		cancel(nil)
		<-watched
		abandon(pumped)
	}()
	for {
		select {
		case m := <-t.out:
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := handle(m); err != nil {
				return err
			}
			t.next.Store(m.Seq + 1)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// abandon waits for the pump to end, but not for a server that doesn't answer:
// the library sees the end of ctx at its next attempt, and nothing depends on it.
func abandon(pumped <-chan struct{}) {
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-pumped:
	case <-timer.C:
	}
}

// tail is one running Tail.
type tail struct {
	reader Reader
	out    chan Message
	// next is the sequence that the handler gets next.
	next atomic.Uint64
	// stalled has a value when the consumer is to be replaced.
	stalled chan struct{}
}

// pump moves messages from an ordered consumer to out, making a new consumer
// where the library gives up on one.
func (t *tail) pump(ctx context.Context, fail context.CancelCauseFunc) {
	pace := NewPace()
	for from := t.next.Load(); ; {
		next, err := t.consume(ctx, from)
		if next > from {
			from, pace = next, NewPace()
		}
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			fail(fmt.Errorf("%w: %s", ErrNoStream, t.reader.Name))
			return
		}
		if pace.Wait(ctx) != nil {
			return
		}
	}
}

// consume runs one ordered consumer from a sequence until it fails or ctx ends,
// and gives the sequence to go on with.
func (t *tail) consume(ctx context.Context, from uint64) (next uint64, _ error) {
	select {
	case <-t.stalled: // said of the one before
	default:
	}
	ctx, stop := t.untilStalled(ctx)
	defer stop()
	create, cancel := context.WithTimeout(ctx, t.reader.AttemptTimeout)
	consumer, err := t.reader.JS.OrderedConsumer(create, t.reader.Name, jetstream.OrderedConsumerConfig{
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       from,
		InactiveThreshold: 30 * time.Second,
		MaxResetAttempts:  1, // pump tries again, and its attempts end with ctx
	})
	cancel()
	if err != nil {
		return from, err
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessagesWithBytesLimit(500, 16<<20))
	if err != nil {
		return from, err
	}
	defer messages.Stop()
	for {
		// Stopping it from outside is no way to end a Next: the library may be making a
		// consumer anew just then, which it would go on with.
		msg, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return from, err
		}
		meta, err := msg.Metadata()
		if err != nil {
			return from, err
		}
		select {
		case t.out <- Message{Subject: msg.Subject(), Seq: meta.Sequence.Stream, Data: msg.Data()}:
			from = meta.Sequence.Stream + 1
		case <-ctx.Done():
			return from, ctx.Err()
		}
	}
}

// untilStalled gives a context that ends when the consumer is to be replaced; call
// stop afterwards.
func (t *tail) untilStalled(ctx context.Context) (_ context.Context, stop context.CancelFunc) {
	ctx, stop = context.WithCancel(ctx)
	go func() {
		select {
		case <-t.stalled:
			stop()
		case <-ctx.Done():
		}
	}()
	return ctx, stop
}

// watch runs check in each period, and has a consumer replaced that stands still
// before the stream's end while nothing of it waits for the handler. Libraries and
// servers notice most such ends by missing heartbeats; a viewer or a projection that
// waits for good because one of them did not is worse than a consumer too many.
func (t *tail) watch(ctx context.Context, fail context.CancelCauseFunc, check Check, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var missing uint64 // what was next, and in the stream, at the check before
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		next := t.next.Load()
		last, err := check(ctx, next)
		switch {
		case err != nil && ctx.Err() == nil:
			fail(err)
			return
		case last < next || len(t.out) > 0:
			missing = 0
		case missing != next:
			missing = next
		default:
			missing = 0
			select {
			case t.stalled <- struct{}{}:
			default: // it is being replaced
			}
		}
	}
}

// Reaches says whether the stream reaches to just before next, with its extent. A
// leader that was elected a moment ago may report less than it holds, so an end
// that is too early is looked at three times.
func (r Reader) Reaches(ctx context.Context, next uint64) (ok bool, first, last uint64, err error) {
	for look := 1; ; look++ {
		first, last, err = r.Extent(ctx)
		if err != nil || next <= last+1 || look == 3 {
			return err == nil && next <= last+1, first, last, err
		}
		t := time.NewTimer(200 * time.Millisecond)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return false, first, last, ctx.Err()
		}
	}
}
