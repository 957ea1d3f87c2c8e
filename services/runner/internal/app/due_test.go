package app

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/eventlog/memlog"
	"github.com/holdfast-io/holdfast/events/output/memoutput"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/broker/brokertest"
	"github.com/holdfast-io/holdfast/services/internal/command"
	given "github.com/holdfast-io/holdfast/services/internal/decidertest"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/reactor"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
)

// later notes what is to be looked at again.
type later struct{ after atomic.Int64 }

// Enqueue implements serving.Requeue.
func (*later) Enqueue(reactor.Key) {}

// EnqueueAfter implements serving.Requeue.
func (l *later) EnqueueAfter(_ reactor.Key, d time.Duration) { l.after.Store(int64(d)) }

// A run that is due isn't started in a sandbox which doesn't run, as one whose loss
// isn't known yet; once it runs the run starts.
func TestRunWaitsForItsSandbox(t *testing.T) {
	t.Parallel()
	s := brokertest.Start(t)
	var there atomic.Bool
	workload, err := command.Serve(s.NC(broker.UserWorkload), events.ServiceWorkload, map[string]command.Handler{
		verbs.Locate: func(context.Context, string, command.Request) (command.Reply, error) {
			if !there.Load() {
				return command.Reply{}, problem.New(api.CodeSandboxUnreachable, "the sandbox is gone")
			}
			return command.Result(0, 0, false, verbs.LocateResult{Endpoint: "http://127.0.0.1:1", PodUID: "pod-1", Generation: 1})
		},
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := workload.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	log := memlog.New(eventlog.Genesis{LogID: "log", Epoch: "1"})
	again := &later{}
	a := New(Config{NC: s.NC(broker.UserRunner), Log: log, Epoch: "1", Output: memoutput.New(), Logger: slog.New(slog.DiscardHandler)})
	a.UseRequeue(again)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Background(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	key := reactor.Key{Tenant: given.Tenant, Session: given.Session}
	plant(t, log, key, given.Queued("r-1"))
	started := func() bool {
		t.Helper()
		if err := a.Settle(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		subject, err := events.SessionSubject(key.Tenant, key.Session)
		if err != nil {
			t.Fatal(err)
		}
		last, _, err := log.Last(t.Context(), subject)
		if err != nil {
			t.Fatal(err)
		}
		return last.Envelope.Events[0].Type == session.TypeRunStarted
	}
	if started() {
		t.Error("a run was started in a sandbox that doesn't run")
	}
	if again.after.Load() == 0 {
		t.Error("the session isn't looked at again")
	}
	there.Store(true)
	if !started() {
		t.Error("no run was started in a sandbox that runs")
	}
}
