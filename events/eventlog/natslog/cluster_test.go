//go:build cluster

package natslog_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/eventlog/eventlogtest"
	"github.com/holdfast-io/holdfast/events/eventlog/natslog"
	"github.com/holdfast-io/holdfast/events/internal/natstest"
	"github.com/holdfast-io/holdfast/events/session"
)

// The suite on a stream that three servers replicate.
func TestSuiteOnCluster(t *testing.T) {
	c := natstest.StartCluster(t)
	_, js := natstest.Connect(t, c.URL())
	natstest.Streams(t, js, 3)
	eventlogtest.Run(t, harness(t, c.URL(), natslog.Options{}, 20))
}

// The stream's leader is killed while eight writers and a tail are busy. Every
// command that was answered with success is stored once, under the sequence of its
// answer; what was unknown is repeated and then known; the tail misses nothing.
func TestLeaderKilled(t *testing.T) {
	const writers, each = 8, 60
	c := natstest.StartCluster(t)
	_, js := natstest.Connect(t, c.URL())
	natstest.Streams(t, js, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()

	tailNC, tailJS := natstest.Connect(t, c.URL())
	var read atomic.Uint64
	tail := make(chan error, 1)
	tailCtx, stopTail := context.WithCancel(ctx)
	defer stopTail()
	go func() {
		tail <- open(t, tailJS, tailNC, natslog.Options{}).Tail(tailCtx, 1, func(m events.Message) error {
			read.Store(m.Seq) // Tail itself refuses a gap
			return nil
		})
	}()

	var g errgroup.Group
	var done atomic.Int64
	half := make(chan struct{})
	for w := range writers {
		nc, js := natstest.Connect(t, c.URL())
		// Two writers share a subject, so that conflicts and the kill meet.
		subject := fmt.Sprintf("ev.t1.s.s-%d", w/2)
		store := newSessionStore(open(t, js, nc, natslog.Options{AttemptTimeout: 500 * time.Millisecond}))
		g.Go(func() error {
			for i := range each {
				id := fmt.Sprintf("w%d-%d", w, i)
				if err := untilKnown(ctx, store, subject, id); err != nil {
					return err
				}
				if done.Add(1) == writers*each/2 {
					close(half)
				}
			}
			return nil
		})
	}
	select {
	case <-half:
	case <-ctx.Done():
		t.Fatal("the writers did not get half way")
	}
	t.Logf("killed leader %s", c.KillLeader(t, events.StreamEvents))
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}

	nc, js2 := natstest.Connect(t, c.URL())
	log := open(t, js2, nc, natslog.Options{})
	for s := range writers / 2 {
		if err := eventlogtest.CheckChain(ctx, log, fmt.Sprintf("ev.t1.s.s-%d", s), 2*each); err != nil {
			t.Error(err)
		}
	}
	info, err := log.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if info.LastSeq != 1+writers*each {
		t.Errorf("the log holds %d messages, want %d", info.LastSeq, 1+writers*each)
	}
	natstest.Eventually(t, "the tail has read everything", func() bool { return read.Load() == info.LastSeq })
	stopTail()
	if err := <-tail; !errors.Is(err, context.Canceled) {
		t.Errorf("the tail ended with %v", err)
	}
}

// untilKnown repeats a command under its id until its outcome is known, as a
// client does after 503, and checks the answer against what is stored.
func untilKnown(ctx context.Context, store *eventlog.Store[*session.State], subject, id string) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		cmd := eventlog.Command{ID: id, Actor: events.Actor{Kind: events.ActorPerson, ID: "alice"}}
		res, err := store.Execute(attempt, subject, cmd, message)
		cancel()
		var unknown *eventlog.OutcomeUnknownError
		switch {
		case err == nil && len(res.Records) == 1:
			return nil
		case err == nil:
			return fmt.Errorf("command %s was answered with %+v", id, res)
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &unknown), errors.Is(err, context.DeadlineExceeded):
		default:
			return fmt.Errorf("command %s: %w", id, err)
		}
	}
}
