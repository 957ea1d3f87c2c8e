package natsoutput_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/internal/natstest"
	"github.com/holdfast-io/holdfast/events/output"
	"github.com/holdfast-io/holdfast/events/output/natsoutput"
	"github.com/holdfast-io/holdfast/events/output/outputtest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// The server leaves these behind for a moment after it was shut down.
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushLoop"),
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*Server).startGoRoutine.func1"),
	)
}

func fresh(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	if err := js.DeleteStream(t.Context(), events.StreamOutput); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Fatal(err)
	}
	natstest.Create(t, js, jetstream.StreamConfig{
		Name: events.StreamOutput, Subjects: []string{events.SubjectsOutput}, MaxAge: time.Hour,
	})
}

func TestSuite(t *testing.T) {
	srv := natstest.Server(t)
	nc, js := natstest.Connect(t, srv.ClientURL())
	outputtest.Run(t, outputtest.Harness{
		Open: func(t *testing.T) output.Stream {
			fresh(t, js)
			s, err := natsoutput.New(js, nc, natsoutput.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Expire: func(t *testing.T, before uint64) {
			s, err := js.Stream(t.Context(), events.StreamOutput)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Purge(t.Context(), jetstream.WithPurgeSequence(before)); err != nil {
				t.Fatal(err)
			}
		},
	})
}

func aBatch() output.Batch {
	return output.Batch{Run: "r-1", FirstK: 1, LastK: 1, Time: time.Now(), Events: []json.RawMessage{json.RawMessage(`{}`)}}
}

// A publish whose acknowledgement is lost goes on until it has one.
func TestPublishSurvivesALostReply(t *testing.T) {
	srv := natstest.Server(t)
	_, beside := natstest.Connect(t, srv.ClientURL())
	fresh(t, beside)
	proxy := natstest.NewProxy(t, strings.TrimPrefix(srv.ClientURL(), "nats://"))
	nc, js := natstest.Connect(t, proxy.URL())
	s, err := natsoutput.New(js, nc, natsoutput.Options{AttemptTimeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	proxy.LoseAnswers()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := s.Publish(ctx, "t1", "s-a", aBatch()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("publish without an answer: %v", err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.Publish(t.Context(), "t1", "s-a", aBatch())
		done <- err
	}()
	proxy.Heal()
	if err := <-done; err != nil {
		t.Errorf("publish after it healed: %v", err)
	}
}

// What isn't a batch stops nobody; a stream made anew under a tail ends it.
func TestTail(t *testing.T) {
	srv := natstest.Server(t)
	nc, js := natstest.Connect(t, srv.ClientURL())
	fresh(t, js)
	s, err := natsoutput.New(js, nc, natsoutput.Options{CheckEvery: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for _, garbage := range []string{"", "no batch", "{}"} {
		if _, err := js.Publish(t.Context(), "out.t1.s-a", []byte(garbage)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := js.Publish(t.Context(), "out.odd", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Publish(t.Context(), "t1", "s-a", aBatch()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err = s.Tail(ctx, 1, func(m output.Message) error {
		if m.Seq != 5 {
			t.Errorf("garbage was handed over: %+v", m)
		}
		fresh(t, js)
		return nil
	})
	var truncated *output.TruncatedError
	// Which of the two depends on whether it looks while there is none.
	if !errors.As(err, &truncated) && !errors.Is(err, output.ErrNoStream) {
		t.Errorf("the tail ended with %v", err)
	}
	if err := js.DeleteStream(t.Context(), events.StreamOutput); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Info(t.Context()); !errors.Is(err, output.ErrNoStream) {
		t.Errorf("info without a stream: %v", err)
	}
}
