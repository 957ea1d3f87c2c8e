package runner_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/eventlog/natslog"
	"github.com/holdfast-io/holdfast/events/output/natsoutput"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/broker/brokertest"
	"github.com/holdfast-io/holdfast/services/internal/command"
	"github.com/holdfast-io/holdfast/services/internal/deadlines"
	given "github.com/holdfast-io/holdfast/services/internal/decidertest"
	"github.com/holdfast-io/holdfast/services/internal/reactor"
	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/internal/serving"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
	"github.com/holdfast-io/holdfast/services/runner"
)

const patience = 30 * time.Second

// views are projections that know the one session, as a sweep at the start finds it.
type views struct{}

func (views) Due(context.Context, events.Service, time.Time, int) ([]deadlines.Due, error) {
	return nil, nil
}

func (views) Unsettled(context.Context, events.Service) ([]reactor.Key, error) {
	return []reactor.Key{{Tenant: given.Tenant, Session: given.Session}}, nil
}

// world is a NATS with a session whose sandbox's agent says something and then waits
// until it is let go on, or cancelled.
type world struct {
	t        *testing.T
	nats     *brokertest.Server
	goOn     chan struct{}
	cancel   chan struct{}
	once     sync.Once
	sessions *eventlog.Store[*session.State]
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, nats: brokertest.Start(t), goOn: make(chan struct{}), cancel: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+sandboxapi.PathRuns, func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusAccepted) })
	mux.HandleFunc("POST "+sandboxapi.PathRuns+"/{run}/cancel", func(rw http.ResponseWriter, _ *http.Request) {
		w.once.Do(func() { close(w.cancel) })
		rw.WriteHeader(http.StatusAccepted)
	})
	mux.HandleFunc("GET "+sandboxapi.PathRuns+"/{run}/spool", w.spool)
	box := httptest.NewServer(mux)
	t.Cleanup(box.Close)

	// The workload service says where the sandbox is.
	server, err := command.Serve(w.nats.NC(broker.UserWorkload), events.ServiceWorkload, map[string]command.Handler{
		verbs.Locate: func(context.Context, string, command.Request) (command.Reply, error) {
			return command.Result(0, 0, false, verbs.LocateResult{Endpoint: box.URL, PodUID: "pod-1", Generation: 1})
		},
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop(context.WithoutCancel(t.Context())) })

	for _, p := range given.Ready.And(given.Queued("r-1")) {
		w.append(p)
	}
	w.sessions = eventlog.NewStore(eventlog.Config[*session.State]{Log: w.log(broker.UserSession), New: session.New})
	return w
}

func (w *world) log(user broker.User) *natslog.Log {
	w.t.Helper()
	log, err := natslog.New(w.nats.JS(user), w.nats.NC(user), natslog.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	return log
}

func (w *world) append(p session.Payload) {
	w.t.Helper()
	service, _ := session.Owner(session.TypeOf(p))
	subject, err := events.SessionSubject(given.Tenant, given.Session)
	if err != nil {
		w.t.Fatal(err)
	}
	store := eventlog.NewStore(eventlog.Config[*session.State]{Log: w.log(broker.User(service)), New: session.New, Service: service})
	if _, err := store.Execute(w.t.Context(), subject, eventlog.Command{
		ID: events.RandomID("cmd"), Actor: events.Actor{Kind: events.ActorService, ID: string(service)},
	}, func(*session.State, time.Time) ([]events.Record, error) { return session.Records(service, p) }); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) spool(rw http.ResponseWriter, r *http.Request) {
	enc := json.NewEncoder(rw)
	for k, e := range []string{
		`{"type":"RUN_STARTED"}`, `{"type":"TEXT_MESSAGE_START","messageId":"a-1"}`,
		`{"type":"TEXT_MESSAGE_CONTENT","messageId":"a-1","delta":"hi"}`, `{"type":"TEXT_MESSAGE_END","messageId":"a-1"}`,
	} {
		_ = enc.Encode(sandboxapi.SpoolLine{K: uint64(k + 1), Event: json.RawMessage(e)})
	}
	_ = http.NewResponseController(rw).Flush()
	outcome := "success"
	select {
	case <-w.goOn:
	case <-w.cancel:
		outcome = "cancelled"
	case <-r.Context().Done():
		return
	}
	_ = enc.Encode(sandboxapi.SpoolLine{K: 5, Event: json.RawMessage(fmt.Sprintf(`{"type":"RUN_FINISHED","outcome":{"type":%q}}`, outcome))})
	_ = enc.Encode(sandboxapi.SpoolLine{End: true, Outcome: outcome})
}

// start runs a runner; stop ends it, and its pings with it.
func (w *world) start() (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	nc := w.nats.NC(broker.UserRunner)
	out, err := natsoutput.New(w.nats.JS(broker.UserRunner), nc, natsoutput.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		done <- runner.Run(ctx, runner.Config{Output: out, Config: serving.Config{
			NC: nc, Log: w.log(broker.UserRunner), Epoch: w.nats.Genesis.Epoch, Views: views{}, Logger: slog.New(slog.DiscardHandler),
		}})
	}()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				w.t.Errorf("runner: %v", err)
			}
			nc.Close()
		})
	}
	w.t.Cleanup(stop)
	return stop
}

func (w *world) eventually(what string, holds func(*session.State) bool) *session.State {
	w.t.Helper()
	subject, err := events.SessionSubject(given.Tenant, given.Session)
	if err != nil {
		w.t.Fatal(err)
	}
	var st *session.State
	brokertest.Eventually(w.t, patience, what, func() bool {
		ok := false
		err := w.sessions.Read(w.t.Context(), subject, func(s eventlog.Snapshot[*session.State]) error {
			st, ok = s.State, holds(s.State)
			return nil
		})
		if err != nil {
			w.t.Fatal(err)
		}
		return ok
	})
	return st
}

func spoken(s *session.State) bool { return s.Run != nil && s.Run.Recorded["a-1"] }

// A runner ends while the agent goes on: the next one takes the run over, repeats
// nothing, and ends it.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stop := w.start()
	first := w.eventually("the agent has spoken", spoken).Run.Instance
	stop()
	w.start()
	w.eventually("the run is taken over", func(s *session.State) bool { return s.Run != nil && s.Run.Instance != first })
	close(w.goOn)
	w.eventually("the run has ended", func(s *session.State) bool { return s.RunIDs["r-1"] == session.RunSucceeded })
}

// Whichever runner hears of a cancel, the sandbox gets it.
func TestCancelReachesTheSandbox(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	w.start()
	w.eventually("the agent has spoken", spoken)
	client := command.Client{NC: w.nats.NC(broker.UserGateway)}
	body, err := json.Marshal(verbs.CancelRunBody{RunID: "r-1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Do(t.Context(), events.ServiceRunner, given.Tenant, verbs.CancelRun, command.Request{
		CommandID: "cmd-cancel", Actor: events.Actor{Kind: events.ActorPerson, ID: "alice"}, Session: given.Session, Body: body,
	}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the run is cancelled", func(s *session.State) bool { return s.RunIDs["r-1"] == session.RunCancelled })
}
