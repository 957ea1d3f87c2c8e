package gateway_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/migrations/pgtest"
	"github.com/holdfast-io/holdfast/projections"
	"github.com/holdfast-io/holdfast/services/gateway"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/deadlines"
	"github.com/holdfast-io/holdfast/services/internal/reactor"
)

// idle tells services that nothing is due and everything settled: these tests
// wait for no deadline.
type idle struct{}

func (idle) Due(context.Context, events.Service, time.Time, int) ([]deadlines.Due, error) {
	return nil, nil
}

func (idle) Unsettled(context.Context, events.Service) ([]reactor.Key, error) { return nil, nil }

// down are the views while Postgres is down: a reader whose server isn't there.
func down(t *testing.T, epoch string) gateway.Views {
	t.Helper()
	pool := pgtest.Pool(t)
	reader, err := projections.NewReader(projections.ReaderConfig{Pool: pool, Epoch: epoch})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(reader.Close)
	pool.Close()
	return reader
}

// withPostgres gives a world a projector and what it writes.
func withPostgres(w *world, cfg *gateway.Config) {
	w.t.Helper()
	pool := pgtest.Pool(w.t)
	log, _ := w.logAs(broker.UserProjector)
	projector, err := projections.NewProjector(projections.Config{Log: log, Pool: pool})
	if err != nil {
		w.t.Fatal(err)
	}
	reader, err := projections.NewReader(projections.ReaderConfig{Pool: pool, Epoch: w.nats.Genesis.Epoch, Log: log})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := projector.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
			w.t.Errorf("projector: %v", err)
		}
	})
	w.t.Cleanup(func() { reader.Close(); stop(); running.Wait() })
	cfg.Views = reader
}
