package natslog_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/eventlog/natslog"
	"github.com/holdfast-io/holdfast/events/internal/natstest"
	"github.com/holdfast-io/holdfast/events/session"
)

// faultWorld is a log behind a proxy that loses, and another beside it that sees
// what is stored.
type faultWorld struct {
	proxy  *natstest.Proxy
	nc     *nats.Conn
	log    *natslog.Log
	beside *natslog.Log
	js     jetstream.JetStream // beside, too
	pjs    jetstream.JetStream
	store  *eventlog.Store[*session.State]
}

const faultSubject = "ev.t1.s.faulty"

func newFaultWorld(t *testing.T) *faultWorld {
	t.Helper()
	srv := natstest.Server(t)
	nc, js := natstest.Connect(t, srv.ClientURL())
	natstest.Streams(t, js, 1)
	w := &faultWorld{js: js, beside: open(t, js, nc, natslog.Options{}), proxy: natstest.NewProxy(t, strings.TrimPrefix(srv.ClientURL(), "nats://"))}
	w.nc, w.pjs = natstest.Connect(t, w.proxy.URL())
	w.log = open(t, w.pjs, w.nc, natslog.Options{AttemptTimeout: 100 * time.Millisecond})
	w.store = newSessionStore(w.log)
	return w
}

func newSessionStore(log eventlog.Log) *eventlog.Store[*session.State] {
	return eventlog.NewStore(eventlog.Config[*session.State]{Log: log, New: session.New, Service: events.ServiceSession})
}

func create(_ *session.State, _ time.Time) ([]events.Record, error) {
	return session.Records(events.ServiceSession, session.Created{Owner: "alice"})
}

func message(_ *session.State, _ time.Time) ([]events.Record, error) {
	return session.Records(events.ServiceSession, session.MessageReceived{MessageID: "m-1", RunID: "r-1", Content: json.RawMessage(`"hi"`)})
}

func (w *faultWorld) execute(t *testing.T, limit time.Duration, id string, decide eventlog.Decide[*session.State]) (eventlog.Result, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := eventlog.Command{ID: id, Actor: events.Actor{Kind: events.ActorPerson, ID: "alice"}}
	return w.store.Execute(ctx, faultSubject, cmd, decide)
}

// stored gives the id of the subject's last command.
func (w *faultWorld) stored(t *testing.T) string {
	t.Helper()
	m, _, err := w.beside.Last(t.Context(), faultSubject)
	if err != nil {
		t.Fatal(err)
	}
	return m.Envelope.Command
}

// The append is stored, its acknowledgement is lost, the connection heals: the
// caller gets the answer it would have got.
func TestLostAcknowledgementHeals(t *testing.T) {
	w := newFaultWorld(t)
	if _, err := w.execute(t, 20*time.Second, "c1", create); err != nil {
		t.Fatal(err)
	}
	w.proxy.LoseAnswers()
	type answer struct {
		res eventlog.Result
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		res, err := w.execute(t, 20*time.Second, "c2", message)
		answers <- answer{res, err}
	}()
	natstest.Eventually(t, "the append is stored", func() bool { return w.stored(t) == "c2" })
	select {
	case a := <-answers:
		t.Fatalf("an answer came before one could: %+v", a)
	default:
	}
	w.proxy.Heal()
	a := <-answers
	last, _, err := w.beside.Last(t.Context(), faultSubject)
	if err != nil {
		t.Fatal(err)
	}
	if a.err != nil || a.res.N != 2 || a.res.Seq != last.Seq || a.res.Repeated {
		t.Errorf("the answer is %+v, %v; want n 2 at %d", a.res, a.err, last.Seq)
	}
}

// It never heals: the outcome is unknown whether or not it was stored, and the
// same command repeated later gives the right answer.
func TestNeverHeals(t *testing.T) {
	for name, c := range map[string]struct {
		lose   func(*natstest.Proxy)
		stored bool
	}{
		"answers lost":  {(*natstest.Proxy).LoseAnswers, true},
		"requests lost": {(*natstest.Proxy).LoseRequests, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFaultWorld(t)
			if _, err := w.execute(t, 20*time.Second, "c1", create); err != nil {
				t.Fatal(err)
			}
			c.lose(w.proxy)
			_, err := w.execute(t, 500*time.Millisecond, "c2", message)
			var unknown *eventlog.OutcomeUnknownError
			if !errors.As(err, &unknown) || unknown.Command != "c2" || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("outcome: %v, want *OutcomeUnknownError", err)
			}
			if got := w.stored(t) == "c2"; got != c.stored {
				t.Fatalf("stored: %t", got)
			}
			w.proxy.Heal()
			res, err := w.execute(t, 20*time.Second, "c2", message)
			if err != nil || res.N != 2 || c.stored && !res.Repeated {
				t.Errorf("repeated after it healed: %+v, %v; want n 2", res, err)
			}
			info, err := w.beside.Info(t.Context())
			if err != nil || info.LastSeq != 3 {
				t.Errorf("the log holds %d messages, %v; want genesis and two", info.LastSeq, err)
			}
		})
	}
}

// Another process moves the subject on while the acknowledgement of an append that
// never arrived is awaited: a conflict, decided again.
func TestConflictWhileInDoubt(t *testing.T) {
	w := newFaultWorld(t)
	if _, err := w.execute(t, 20*time.Second, "c1", create); err != nil {
		t.Fatal(err)
	}
	w.proxy.LoseRequests()
	done := make(chan error, 1)
	var res eventlog.Result
	sent := make(chan struct{}, 100)
	go func() {
		var err error
		res, err = w.execute(t, 20*time.Second, "c2", func(s *session.State, now time.Time) ([]events.Record, error) {
			sent <- struct{}{}
			return message(s, now)
		})
		done <- err
	}()
	<-sent
	other := newSessionStore(w.beside)
	cmd := eventlog.Command{ID: "c9", Actor: events.Actor{Kind: events.ActorPerson, ID: "bob"}}
	if _, err := other.Execute(t.Context(), faultSubject, cmd, message); err != nil {
		t.Fatal(err)
	}
	w.proxy.Heal()
	if err := <-done; err != nil || res.N != 3 {
		t.Errorf("result %+v, %v; want it after the other's, at n 3", res, err)
	}
}

// Reads are asked again while nobody answers, and end with ctx.
func TestReadsWaitForALeader(t *testing.T) {
	w := newFaultWorld(t)
	w.proxy.LoseAnswers()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, _, err := w.log.Last(ctx, faultSubject); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("last: %v", err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := w.log.Info(t.Context())
		done <- err
	}()
	w.proxy.Heal()
	if err := <-done; err != nil {
		t.Errorf("info after it healed: %v", err)
	}
}

// A tail survives a cut connection without gap or repeat.
func TestTailSurvivesCuts(t *testing.T) {
	w := newFaultWorld(t)
	const rounds, each = 4, 50
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	got := make(chan uint64, rounds*each+2)
	tail := make(chan error, 1)
	go func() {
		tail <- w.log.Tail(ctx, 1, func(m events.Message) error { got <- m.Seq; return nil })
	}()
	next, prev := uint64(1), uint64(0)
	for round := range rounds {
		for i := range each {
			env := events.Envelope{
				Command: "c", Actor: events.Actor{Kind: events.ActorPerson, ID: "a"}, Service: events.ServiceSession,
				N: uint64(round*each+i) + 1, Prev: prev, Time: time.Now(), Events: []events.Record{{Type: "x", V: 1, Data: []byte("1")}},
			}
			var err error
			if prev, err = w.beside.Append(ctx, faultSubject, env); err != nil {
				t.Fatal(err)
			}
		}
		if round < rounds-1 {
			w.proxy.Heal() // cuts what is connected
		}
		for next <= prev {
			select {
			case seq := <-got:
				if seq != next {
					t.Fatalf("sequence %d came where %d was next", seq, next)
				}
				next++
			case err := <-tail:
				t.Fatalf("the tail ended: %v", err)
			case <-ctx.Done():
				t.Fatalf("sequence %d did not come", next)
			}
		}
	}
	cancel()
	if err := <-tail; !errors.Is(err, context.Canceled) {
		t.Errorf("tail ended with %v", err)
	}
}

// A consumer that is alive by all its heartbeats but gives nothing, which the client
// library can't notice, is replaced.
func TestTailReplacesAConsumerThatStandsStill(t *testing.T) {
	w := newFaultWorld(t)
	l := open(t, w.pjs, w.nc, natslog.Options{CheckEvery: 20 * time.Millisecond})
	if _, err := w.execute(t, 20*time.Second, "c1", message); err != nil {
		t.Fatal(err)
	}
	// Far less than the library takes to give up on a consumer that is silent.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	done := errors.New("all came")
	next := uint64(1)
	err := l.Tail(ctx, 1, func(m events.Message) error {
		if m.Seq != next {
			t.Errorf("sequence %d came where %d was next", m.Seq, next)
		}
		next++
		if m.Seq == 3 {
			return done
		}
		if m.Seq < 2 {
			return nil
		}
		stream, err := w.js.Stream(ctx, events.StreamEvents)
		if err != nil {
			return err
		}
		for c := range stream.ListConsumers(ctx).Info() {
			if _, err := stream.PauseConsumer(ctx, c.Name, time.Now().Add(time.Hour)); err != nil {
				return err
			}
		}
		_, err = w.execute(t, 5*time.Second, "c2", message)
		return err
	})
	if !errors.Is(err, done) {
		t.Errorf("the tail ended with %v", err)
	}
}

// The stream is emptied, made anew or restored from an older copy under a running
// tail: it ends with a typed error instead of waiting beyond the end.
func TestTailNoticesAnotherLog(t *testing.T) {
	for name, c := range map[string]struct {
		replace func(t *testing.T, js jetstream.JetStream)
		want    func(error) bool
	}{
		"deleted": {
			func(*testing.T, jetstream.JetStream) {},
			func(err error) bool { return errors.Is(err, eventlog.ErrNoGenesis) },
		},
		"older, of the same epoch": {
			func(t *testing.T, js jetstream.JetStream) { natstest.Events(t, js, 1, natstest.Genesis) },
			func(err error) bool {
				var e *eventlog.TruncatedError
				return errors.As(err, &e) && e.LastSeq == 1 && e.Next >= 3
			},
		},
		"of another epoch": {
			func(t *testing.T, js jetstream.JetStream) {
				natstest.Events(t, js, 1, eventlog.Genesis{LogID: natstest.Genesis.LogID, Epoch: "e2"})
			},
			func(err error) bool { var e *eventlog.EpochError; return errors.As(err, &e) && e.Got.Epoch == "e2" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFaultWorld(t)
			for _, id := range []string{"c1", "c2"} {
				if _, err := w.execute(t, 20*time.Second, id, message); err != nil {
					t.Fatal(err)
				}
			}
			l := open(t, w.pjs, w.nc, natslog.Options{AttemptTimeout: 100 * time.Millisecond, CheckEvery: 20 * time.Millisecond})
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			err := l.Tail(ctx, 1, func(m events.Message) error {
				if m.Seq < 3 {
					return nil
				}
				w.proxy.LoseRequests() // so that the tail sees none of what is between
				if err := w.js.DeleteStream(ctx, events.StreamEvents); err != nil {
					return err
				}
				c.replace(t, w.js)
				w.proxy.Heal()
				return nil
			})
			if !c.want(err) {
				t.Errorf("the tail ended with %v", err)
			}
		})
	}
}
