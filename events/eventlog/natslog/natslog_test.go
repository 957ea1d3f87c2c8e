package natslog_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/eventlog/eventlogtest"
	"github.com/holdfast-io/holdfast/events/eventlog/natslog"
	"github.com/holdfast-io/holdfast/events/internal/natstest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// The server leaves these behind for a moment after it was shut down.
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushLoop"),
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*Server).startGoRoutine.func1"),
	)
}

func open(t testing.TB, js jetstream.JetStream, nc *nats.Conn, opts natslog.Options) *natslog.Log {
	t.Helper()
	l, err := natslog.New(js, nc, opts)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// harness makes the suite's harness over connections to url.
func harness(t *testing.T, url string, opts natslog.Options, checks int) eventlogtest.Harness {
	t.Helper()
	ncA, jsA := natstest.Connect(t, url)
	ncB, jsB := natstest.Connect(t, url)
	a, b := open(t, jsA, ncA, opts), open(t, jsB, ncB, opts)
	return eventlogtest.Harness{
		Open: func(*testing.T) (eventlog.Log, eventlog.Log) { return a, b },
		Plant: func(t *testing.T, subject string, raw []byte) uint64 {
			t.Helper()
			ack, err := jsA.Publish(t.Context(), subject, raw)
			if err != nil {
				t.Fatal(err)
			}
			return ack.Sequence
		},
		Genesis: natstest.Genesis,
		Checks:  checks,
	}
}

func TestSuite(t *testing.T) {
	srv := natstest.Server(t)
	_, js := natstest.Connect(t, srv.ClientURL())
	natstest.Streams(t, js, 1)
	eventlogtest.Run(t, harness(t, srv.ClientURL(), natslog.Options{}, 30))
}

func TestNewRefuses(t *testing.T) {
	srv := natstest.Server(t)
	nc, js := natstest.Connect(t, srv.ClientURL())
	for name, build := range map[string]func() (*natslog.Log, error){
		"no JetStream":     func() (*natslog.Log, error) { return natslog.New(nil, nc, natslog.Options{}) },
		"no connection":    func() (*natslog.Log, error) { return natslog.New(js, nil, natslog.Options{}) },
		"negative timeout": func() (*natslog.Log, error) { return natslog.New(js, nc, natslog.Options{AttemptTimeout: -1}) },
		"negative period":  func() (*natslog.Log, error) { return natslog.New(js, nc, natslog.Options{CheckEvery: -1}) },
	} {
		if l, err := build(); err == nil {
			t.Errorf("%s: made %+v", name, l)
		}
	}
}

// A log that isn't installed, or whose first message isn't a genesis.
func TestNoGenesis(t *testing.T) {
	srv := natstest.Server(t)
	nc, js := natstest.Connect(t, srv.ClientURL())
	l := open(t, js, nc, natslog.Options{})
	check := func(what string) {
		t.Helper()
		if _, err := l.Info(t.Context()); !errors.Is(err, eventlog.ErrNoGenesis) {
			t.Errorf("info with %s: %v", what, err)
		}
		if err := l.Tail(t.Context(), 1, func(events.Message) error { return nil }); !errors.Is(err, eventlog.ErrNoGenesis) {
			t.Errorf("tail with %s: %v", what, err)
		}
	}
	check("no stream")
	if _, _, err := l.Last(t.Context(), "ev.t1.s.a"); !errors.Is(err, eventlog.ErrNoGenesis) {
		t.Errorf("last with no stream: %v", err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: events.StreamEvents, Subjects: []string{events.SubjectsEvents}}); err != nil {
		t.Fatal(err)
	}
	check("an empty stream")
	for _, body := range []string{"", "{}", `{"logId":"a"}`} {
		s, err := js.Stream(t.Context(), events.StreamEvents)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := js.Publish(t.Context(), events.SubjectGenesis, []byte(body)); err != nil {
			t.Fatal(err)
		}
		check("genesis " + body)
	}
}

func TestHeaderNamesTypes(t *testing.T) {
	srv := natstest.Server(t)
	nc, js := natstest.Connect(t, srv.ClientURL())
	natstest.Streams(t, js, 1)
	env := events.Envelope{
		Command: "c1", Actor: events.Actor{Kind: events.ActorPerson, ID: "a"}, Service: events.ServiceSession,
		N: 1, Time: time.Now(), Events: []events.Record{{Type: "x.a", V: 1, Data: []byte("1")}, {Type: "x.b", V: 1, Data: []byte("2")}},
	}
	seq, err := open(t, js, nc, natslog.Options{}).Append(t.Context(), "ev.t1.s.a", env)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), events.StreamEvents)
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.GetMsg(t.Context(), seq)
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Header.Get(events.HeaderTypes); got != "x.a,x.b" {
		t.Errorf("%s is %q", events.HeaderTypes, got)
	}
	if id := m.Header.Get(nats.MsgIdHdr); id != "" {
		t.Errorf("the message has an id %q: a replicated stream drops another body under it", id)
	}
}

// A refusal by the server is definite and comes at once; what one replica alone could
// not store is nowhere.
func TestRefused(t *testing.T) {
	srv := natstest.Server(t)
	nc, js := natstest.Connect(t, srv.ClientURL())
	natstest.Streams(t, js, 1)
	limit := func(change func(*jetstream.StreamConfig)) {
		t.Helper()
		s, err := js.Stream(t.Context(), events.StreamEvents)
		if err != nil {
			t.Fatal(err)
		}
		cfg := s.CachedInfo().Config
		change(&cfg)
		if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	l := open(t, js, nc, natslog.Options{})
	env := events.Envelope{
		Command: "c1", Actor: events.Actor{Kind: events.ActorPerson, ID: "a"}, Service: events.ServiceSession,
		N: 1, Time: time.Now(), Events: []events.Record{{Type: "x", V: 1, Data: []byte("1")}},
	}
	tryFor := func(d time.Duration) (error, bool) {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		_, err := l.Append(ctx, "ev.t1.s.a", env)
		return err, ctx.Err() != nil
	}
	var refused *jetstream.APIError
	var unknown *eventlog.OutcomeUnknownError

	limit(func(c *jetstream.StreamConfig) { c.MaxMsgSize = 10 })
	if err, ended := tryFor(20 * time.Second); !errors.As(err, &refused) || errors.As(err, &unknown) || ended {
		t.Errorf("append of more than the stream takes: %v, want the server's refusal at once", err)
	}
	limit(func(c *jetstream.StreamConfig) { c.MaxMsgSize, c.MaxMsgs, c.Discard = -1, 1, jetstream.DiscardNew })
	var full *eventlog.NoRoomError
	if err, ended := tryFor(20 * time.Second); !errors.As(err, &full) || !errors.As(err, &refused) || errors.As(err, &unknown) || ended {
		t.Errorf("append that could not be stored: %v, want that there is no room, with its cause", err)
	}
	limit(func(c *jetstream.StreamConfig) { c.MaxMsgs = -1 })
	if err, _ := tryFor(20 * time.Second); err != nil {
		t.Errorf("append when there is room again: %v", err)
	}
	nc.Close()
	if err, ended := tryFor(20 * time.Second); !errors.Is(err, nats.ErrConnectionClosed) || errors.As(err, &unknown) || ended {
		t.Errorf("append on a closed connection: %v, want that nothing was sent", err)
	}
}
