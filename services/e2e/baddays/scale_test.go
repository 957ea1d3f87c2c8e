//go:build !race

// Ten thousand sessions under the race detector are minutes of its own bookkeeping;
// what these tests share between goroutines is under it in all the others.

package baddays_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/install"
)

// writer appends to the log of a program that is stopped, as fast as it goes: it is
// alone, so it knows each sequence beforehand and needs no compare-and-set.
type writer struct {
	t    *testing.T
	js   jetstream.JetStream
	seq  uint64
	last map[string]place // of each subject
	now  time.Time
}

// place is where a subject's next envelope goes.
type place struct{ seq, n uint64 }

// writing opens the log of a program that is stopped, has it written to, and closes it.
// What was written is no backlog of the services where they have seen it.
func writing(t *testing.T, h *harness.Holdfast, seen bool, write func(*writer)) {
	t.Helper()
	b, err := broker.Start(broker.Config{Dir: filepath.Join(h.DataDir, "nats"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Stop()
	ctx := harness.Context(t)
	nc, err := b.Connect(ctx, broker.UserSession)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(2048))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(ctx, events.StreamEvents)
	if err != nil {
		t.Fatal(err)
	}
	w := &writer{t: t, js: js, seq: stream.CachedInfo().State.LastSeq, last: map[string]place{}, now: time.Now().UTC().Truncate(time.Microsecond)}
	write(w)
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		t.Fatal("the log isn't written in time")
	}
	if stream, err = js.Stream(ctx, events.StreamEvents); err != nil || stream.CachedInfo().State.LastSeq != w.seq {
		t.Fatalf("the log ends at %d, want %d: %v", stream.CachedInfo().State.LastSeq, w.seq, err)
	}
	if seen {
		acknowledge(t, b, w.seq)
	}
}

// follow finds the place of a subject that exists.
func (w *writer) follow(subject string) {
	w.t.Helper()
	stream, err := w.js.Stream(context.Background(), events.StreamEvents)
	if err != nil {
		w.t.Fatal(err)
	}
	m, err := stream.GetLastMsgForSubject(context.Background(), subject)
	if err != nil {
		w.t.Fatal(err)
	}
	env, err := events.DecodeEnvelope(m.Data)
	if err != nil {
		w.t.Fatal(err)
	}
	w.last[subject] = place{seq: m.Sequence, n: env.LastN()}
}

func (w *writer) put(subject string, service events.Service, payloads ...session.Payload) {
	w.t.Helper()
	records, err := session.Records(service, payloads...)
	if err != nil {
		w.t.Fatal(err)
	}
	at := w.last[subject]
	env := events.Envelope{
		Command: fmt.Sprintf("cmd-%d", w.seq), Actor: events.Actor{Kind: events.ActorService, ID: string(service)}, Service: service,
		N: at.n + 1, Prev: at.seq, Time: w.now, Events: records,
	}
	m := nats.NewMsg(subject)
	m.Header.Set(events.HeaderTypes, env.Types())
	if m.Data, err = env.Encode(); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.js.PublishMsgAsync(m, jetstream.WithStallWait(harness.Patience)); err != nil {
		w.t.Fatal(err)
	}
	w.seq++
	w.last[subject] = place{seq: w.seq, n: env.LastN()}
}

// A start on 10,000 sessions that sleep becomes ready in bounded memory and does nothing
// to any of them; each can be used. So it is where the services have seen them all
// before, and where each has to look at all of them.
func TestManyOpenSessions(t *testing.T) {
	t.Run("seen before", func(t *testing.T) { manyOpenSessions(t, true) })
	t.Run("a backlog", func(t *testing.T) { manyOpenSessions(t, false) })
}

func manyOpenSessions(t *testing.T, seen bool) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: it writes 50,000 messages")
	}
	t.Parallel()
	h := harness.Start(t, harness.SharedPostgres(t))
	freely(h)
	h.Stop()
	const sessions = 10_000
	id := func(i int) string { return events.HashID(events.PrefixSession, fmt.Sprint(i)) }
	terms := session.Terms{
		Kind: "agent", Adapter: "agui", Policy: "free", OnIdle: "suspend", OnLoss: "restart", Suspends: true,
		Claim: events.Duration(time.Minute), Idle: events.Duration(15 * time.Minute), Max: events.Duration(8 * time.Hour),
	}
	var end uint64
	writing(t, h, seen, func(w *writer) {
		for i := range sessions {
			subject, err := events.SessionSubject(harness.Tenant, id(i))
			if err != nil {
				t.Fatal(err)
			}
			pod := "pod-" + id(i)
			w.put(subject, events.ServiceSession, session.Created{
				Owner: "alice", Runtime: session.RuntimeRef{Name: "free", Revision: 1}, Terms: terms, Labels: map[string]string{"i": fmt.Sprint(i)},
			})
			w.put(subject, events.ServiceWorkload,
				session.ClaimRequested{Generation: 1, Deadline: w.now.Add(time.Minute)},
				session.Claimed{Generation: 1, SandboxUID: pod, PodUID: pod, Path: "cold", Isolation: "namespaces"})
			w.put(subject, events.ServiceWorkload,
				session.Ready{Generation: 1, SandboxUID: pod, PodUID: pod, Path: "cold", Isolation: "namespaces"})
			w.put(subject, events.ServiceSession, session.SuspendRequested{Cause: "idle"})
			w.put(subject, events.ServiceWorkload, session.Suspended{Generation: 1})
		}
		end = w.seq
	})

	h.Begin()
	client := h.Client("admin")
	harness.Eventually(t, "the views hold the last of them", func() bool {
		r, err := client.ListSessionsWithResponse(h.Context(), &api.ListSessionsParams{Label: &[]string{fmt.Sprintf("i=%d", sessions-1)}})
		return err == nil && len(r.JSON200.Items) == 1 && r.JSON200.Items[0].Phase == api.SessionPhaseSuspended
	})
	if got := last(t, h); got != end {
		t.Errorf("the start has appended %d messages to sessions that sleep", got-end)
	}
	var memory runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&memory)
	t.Logf("with %d open sessions: %d MiB on the heap, %d goroutines", sessions, memory.HeapAlloc>>20, runtime.NumGoroutine())
	if memory.HeapAlloc > 1<<30 {
		t.Errorf("%d MiB are on the heap", memory.HeapAlloc>>20)
	}
	if _, err := h.Client("alice").TerminateSessionWithResponse(h.Context(), id(7), nil, api.TerminateSession{}); err != nil {
		t.Errorf("terminate: %v", err)
	}
	h.AwaitPhase(id(7), api.SessionPhaseEnded)
	if now := h.CreateOf("alice", api.CreateSession{Runtime: "free"}); now.Phase != api.SessionPhaseReady {
		t.Errorf("a new session is %s", now.Phase)
	}
}

// acknowledge has the reactors' consumers know all that was written: it is no backlog,
// but what they had looked at before.
func acknowledge(t *testing.T, b *broker.Broker, last uint64) {
	t.Helper()
	ctx := harness.Context(t)
	nc, err := b.Connect(ctx, broker.UserInstaller)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	var acknowledging errgroup.Group
	for _, service := range install.Reacting() {
		acknowledging.Go(func() error {
			c, err := js.Consumer(ctx, events.StreamEvents, install.Consumer(service))
			if err != nil {
				return err
			}
			for pending := c.CachedInfo().NumPending; pending > 0; {
				batch, err := c.Fetch(int(min(pending, 5000)))
				if err != nil {
					return err
				}
				for m := range batch.Messages() {
					pending--
					if err := m.Ack(); err != nil {
						return err
					}
				}
				if err := errors.Join(batch.Error(), ctx.Err()); err != nil {
					return err
				}
			}
			return nc.FlushWithContext(ctx)
		})
	}
	if err := acknowledging.Wait(); err != nil {
		t.Fatalf("acknowledge up to %d: %v", last, err)
	}
}

// A session with 20,000 events is loaded cold, takes a message, shows its whole timeline
// and any moment of its past.
func TestLongSession(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it writes 10,000 messages")
	}
	t.Parallel()
	h := harness.Start(t, harness.SharedPostgres(t))
	freely(h)
	s := h.CreateOf("alice", api.CreateSession{Runtime: "free", Message: "echo first > note"})
	h.AwaitFact(s.ID, "its first run is over", runs(1))
	if _, err := h.Client("alice").SuspendSessionWithResponse(h.Context(), s.ID, nil); err != nil {
		t.Fatal(err)
	}
	before := h.AwaitPhase(s.ID, api.SessionPhaseSuspended).N
	h.Stop()
	const more = 20_000
	writing(t, h, true, func(w *writer) {
		subject, err := events.SessionSubject(harness.Tenant, s.ID)
		if err != nil {
			t.Fatal(err)
		}
		w.follow(subject)
		for range more / 2 {
			w.put(subject, events.ServiceSession, session.ActivityNoted{Holder: "viewer", Until: w.now.Add(time.Second)}, session.ActivityNoted{Holder: "viewer"})
		}
	})

	h.Begin()
	if got := h.Session(s.ID); got.N != before+more || got.Phase != api.SessionPhaseSuspended {
		t.Errorf("loaded cold: n %d, %s", got.N, got.Phase)
	}
	h.Send("alice", s.ID, "cat note")
	harness.Eventually(t, "it has gone on", func() bool {
		got := h.Session(s.ID)
		return got.Phase == api.SessionPhaseReady && got.Run == "" && got.N > before+more+3
	})
	admin := h.Client("admin")
	past := fmt.Sprint(before + more/2)
	r, err := admin.GetSessionWithResponse(h.Context(), s.ID, &api.GetSessionParams{AsOf: &past})
	if err != nil || r.JSON200.N != before+more/2 || r.JSON200.Phase != api.SessionPhaseSuspended {
		t.Errorf("as of %s: %+v, %v", past, r, err)
	}
	seen, limit := uint64(0), 200
	params := &api.ListTimelineParams{Limit: &limit}
	for {
		page, err := admin.ListTimelineWithResponse(h.Context(), s.ID, params)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range page.JSON200.Items {
			if f.N != 0 && f.N != seen && f.N != seen+1 {
				t.Fatalf("frame of n %d after %d", f.N, seen)
			}
			seen = max(seen, f.N)
		}
		if page.JSON200.Next == "" {
			break
		}
		params.After = &page.JSON200.Next
	}
	if seen < before+more+3 {
		t.Errorf("the timeline ends at n %d", seen)
	}
}
