package hub

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/eventlog/natslog"
	"github.com/holdfast-io/holdfast/events/output"
	"github.com/holdfast-io/holdfast/events/output/natsoutput"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/migrations/pgtest"
	"github.com/holdfast-io/holdfast/projections"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/broker/brokertest"
	"github.com/holdfast-io/holdfast/services/internal/install"
)

// parts are both streams as one user of NATS has them.
type parts struct {
	log eventlog.Log
	out output.Stream
}

func partsOf(t *testing.T, b *broker.Broker, u broker.User) parts {
	t.Helper()
	nc, err := b.Connect(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	log, err := natslog.New(js, nc, natslog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	out, err := natsoutput.New(js, nc, natsoutput.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return parts{log, out}
}

// realWorld is a hub as the gateway's user of a real JetStream, with projections in
// a real Postgres. Events are written as the session service, output as the runner.
//
// The last is the streams' owner.
func realWorld(t *testing.T) (*world, *pgxpool.Pool, jetstream.JetStream) {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	b, err := broker.Start(broker.Config{Dir: t.TempDir(), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	nc, err := b.Connect(t.Context(), broker.UserInstaller)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	genesis, err := install.Run(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	pool := pgtest.Pool(t)
	project(t, partsOf(t, b, broker.UserProjector), pool, genesis.Epoch)
	reader, err := projections.NewReader(projections.ReaderConfig{Pool: pool, Epoch: genesis.Epoch})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(reader.Close)
	gateway := partsOf(t, b, broker.UserGateway)
	w := startWorld(t, gateway.log, gateway.out, func(c *Config) {
		c.Epoch = genesis.Epoch
		c.History, c.Copy = Projected(reader), reader
		c.RingBytes = 4000
	})
	w.log, w.out = partsOf(t, b, broker.UserSession).log, partsOf(t, b, broker.UserRunner).out
	return w, pool, js
}

// project runs both projectors until the test ends.
func project(t *testing.T, from parts, pool *pgxpool.Pool, epoch string) {
	t.Helper()
	views, err := projections.NewProjector(projections.Config{Log: from.log, Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	said, err := projections.NewOutputProjector(projections.OutputConfig{
		Stream: from.out, Pool: pool, Epoch: epoch, Keep: 100 * 365 * 24 * time.Hour, // the test's clock stands
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- views.Run(ctx) }()
	go func() { done <- said.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-done; err != nil && ctx.Err() == nil {
				t.Errorf("projector: %v", err)
			}
		}
	})
}

// TestOnRealStreams is TestHandover on JetStream and Postgres; afterwards a viewer
// gets everything though Postgres can't be reached any more.
func TestOnRealStreams(t *testing.T) {
	w, pool, _ := realWorld(t)
	const turns = 120
	handOver(t, w, turns)
	id := sid("a")
	replay := w.open(t, "/v1/sessions/"+id+"/replay?speed=0", "")
	whole := replay.until("end", func(f api.Frame) bool { return word(f) == "end" })
	if len(whole) != 2*turns+3 {
		t.Errorf("a replay of %d frames, want %d", len(whole), 2*turns+3)
	}
	pool.Close()
	v := &viewed{said: map[string]uint64{}}
	watch(t, w, id, "", v, turns, 2*turns+1)
	if v.n != turns+1 || v.said["r-1"] != turns {
		t.Errorf("without Postgres came n %d and k %d", v.n, v.said["r-1"])
	}
}

// TestLateOutputOnRealStreams has the server deliver no output for a while, as when a
// stream's leader was lost: the end of a run comes behind what was said before it.
func TestLateOutputOnRealStreams(t *testing.T) {
	w, _, js := realWorld(t)
	id := sid("a")
	w.begin(t, id)
	w.say(t, id, "r-1", 1, 2, 3)
	r := w.open(t, "/v1/sessions/"+id+"/stream", "")
	r.until("history", at(3, 1))
	resume := brokertest.Pause(t, js, events.StreamOutput)
	w.say(t, id, "r-1", 3, 3, 3)
	last := w.say(t, id, "r-1", 4, 5, 3)
	w.append(t, testTenant, id, session.RunFinished{RunID: "r-1", LastK: 5, Outcome: "success"})
	seq := w.append(t, testTenant, id, note("gateway"))
	if err := w.hub.awaitEvents(t.Context(), seq); err != nil {
		t.Fatal(err)
	}
	resume()
	const want = "r-1:3-3 r-1:4-5 n4 n5"
	wantWords(t, "live", r.until("all", at(5, last)), want)
	replay := w.open(t, "/v1/sessions/"+id+"/replay?speed=0", "").until("end", func(f api.Frame) bool { return word(f) == "end" })
	wantWords(t, "replay", replay, "replay n1 n2 n3 r-1:1-2 "+want+" end")
}
