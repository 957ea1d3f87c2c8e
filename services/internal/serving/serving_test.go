package serving_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/eventlog/natslog"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/broker/brokertest"
	"github.com/holdfast-io/holdfast/services/internal/command"
	"github.com/holdfast-io/holdfast/services/internal/deadlines"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/reactor"
	"github.com/holdfast-io/holdfast/services/internal/serving"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushLoop"),
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*Server).startGoRoutine.func1"),
	)
}

const patience = 60 * time.Second

// quietViews know of nothing to do.
type quietViews struct{}

// Due implements deadlines.Reader.
func (quietViews) Due(context.Context, events.Service, time.Time, int) ([]deadlines.Due, error) {
	return nil, nil
}

// Unsettled implements serving.Views.
func (quietViews) Unsettled(context.Context, events.Service) ([]reactor.Key, error) { return nil, nil }

// world is the session service with a Settle of the test's.
type world struct {
	t        *testing.T
	log      eventlog.Log
	commands *command.Client
}

func serve(t *testing.T, settle func(context.Context, reactor.Key) error) *world {
	t.Helper()
	s := brokertest.Start(t)
	nc := s.NC(broker.UserSession)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	log, err := natslog.New(js, nc, natslog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- serving.Run(ctx, serving.Config{
			NC: nc, Log: log, Epoch: s.Genesis.Epoch, Views: quietViews{}, Logger: slog.New(slog.DiscardHandler),
		}, serving.Parts{Service: events.ServiceSession, Settle: settle})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return &world{t: t, log: log, commands: &command.Client{NC: s.NC(broker.UserGateway)}}
}

// begin appends the first event of a session.
func (w *world) begin(tenant, id string) {
	w.t.Helper()
	subject, err := events.SessionSubject(tenant, id)
	if err != nil {
		w.t.Fatal(err)
	}
	records, err := session.Records(events.ServiceSession, session.Created{Owner: "alice"})
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.log.Append(w.t.Context(), subject, events.Envelope{
		Command: events.RandomID("cmd"), Actor: events.Actor{Kind: events.ActorPerson, ID: "alice"}, Service: events.ServiceSession,
		N: 1, Time: time.Now(), Events: records,
	}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) do(tenant, verb, id string) (command.Reply, error) {
	return w.commands.Do(w.t.Context(), events.ServiceSession, tenant, verb, command.Request{
		Actor: events.Actor{Kind: events.ActorPerson, ID: "admin"}, Session: id, Body: json.RawMessage(`{}`),
	})
}

// parked lists what the service has parked of a tenant; none before it serves.
func (w *world) parked(tenant string) []verbs.Parked {
	reply, err := w.do(tenant, verbs.ParkedList, "")
	if err != nil {
		return nil
	}
	var out verbs.ParkedListResult
	if err := json.Unmarshal(reply.Result, &out); err != nil {
		w.t.Fatal(err)
	}
	return out.Items
}

// A session that fails ten times is parked and listed with its reason, for its own
// tenant alone; the others go on; once the cause is gone a retry settles it.
func TestParkedIsListedAndRetried(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	broken.Store(true)
	var mended, other atomic.Int64
	w := serve(t, func(_ context.Context, k reactor.Key) error {
		switch {
		case k.Session == "s-other":
			other.Add(1)
		case broken.Load():
			return errors.New("no space left on device")
		default:
			mended.Add(1)
		}
		return nil
	})
	w.begin("t1", "s-bad")
	brokertest.Eventually(t, patience, "it is parked", func() bool { return len(w.parked("t1")) == 1 })
	if p := w.parked("t1")[0]; p.Session != "s-bad" || p.Failures != 10 || p.Reason != "no space left on device" || p.At.IsZero() {
		t.Errorf("parked: %+v", p)
	}
	w.begin("t1", "s-other")
	brokertest.Eventually(t, patience, "another session is settled", func() bool { return other.Load() > 0 })

	if got := w.parked("t2"); len(got) != 0 {
		t.Errorf("another tenant sees %+v", got)
	}
	for _, c := range [][2]string{{"t2", "s-bad"}, {"t1", "s-other"}} {
		if _, err := w.do(c[0], verbs.ParkedRetry, c[1]); !errors.Is(err, problem.New(api.CodeNotFound, "")) {
			t.Errorf("retry of %v: %v", c, err)
		}
	}
	broken.Store(false)
	if _, err := w.do("t1", verbs.ParkedRetry, "s-bad"); err != nil {
		t.Fatal(err)
	}
	brokertest.Eventually(t, patience, "it is settled", func() bool { return mended.Load() > 0 && len(w.parked("t1")) == 0 })
}

// Neither a full log nor an older build parks a session.
func TestNoFaultOfItsOwn(t *testing.T) {
	t.Parallel()
	var tried atomic.Int64
	w := serve(t, func(_ context.Context, k reactor.Key) error {
		tried.Add(1)
		if k.Session == "s-full" {
			return &eventlog.NoRoomError{Err: errors.New("full")}
		}
		return &events.UnknownTypeError{Type: "session.later", V: 1}
	})
	w.begin("t1", "s-full")
	w.begin("t1", "s-newer")
	brokertest.Eventually(t, patience, "both were tried", func() bool { return tried.Load() == 2 })
	// A failure would be tried again within 50 ms, ten times in half a minute.
	quiet := time.Now().Add(500 * time.Millisecond)
	brokertest.Eventually(t, patience, "a failure had its time", func() bool { return time.Now().After(quiet) })
	if n := tried.Load(); n != 2 {
		t.Errorf("tried %d times", n)
	}
}
