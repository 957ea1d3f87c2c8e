package gateway_test

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/services/gateway"
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

// errDown is what everything gets while Postgres is down.
var errDown = errors.New("connection refused")

// down are the views while Postgres is down.
type down struct{ gateway.Views }

func (down) Envelopes(context.Context, string, string) ([]events.Message, error) { return nil, errDown }
func (down) WaitFor(context.Context, uint64) error                              { return errDown }
func (down) Ping(context.Context) error                                         { return errDown }
func (down) Position(context.Context) (uint64, error)                           { return 0, errDown }

func (w *world) projections() gateway.Views { return down{} }
