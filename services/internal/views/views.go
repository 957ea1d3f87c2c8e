// Package views words what the deciding services read from the projections: what
// is due, what isn't settled, which runtimes there are. It is for their sweeps,
// which tolerate a view that lags or is down.
package views

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/projections"
	"github.com/holdfast-io/holdfast/services/internal/deadlines"
	"github.com/holdfast-io/holdfast/services/internal/reactor"
)

// Views reads through a projections.Reader.
type Views struct{ reader *projections.Reader }

// Of gives the views of a reader.
func Of(r *projections.Reader) Views { return Views{r} }

// Due implements deadlines.Reader.
func (v Views) Due(ctx context.Context, service events.Service, now time.Time, limit int) ([]deadlines.Due, error) {
	rows, err := v.reader.Due(ctx, service, now, limit)
	if err != nil {
		return nil, err
	}
	due := make([]deadlines.Due, len(rows))
	for i, d := range rows {
		due[i] = deadlines.Due{Tenant: d.Tenant, Session: d.Session, Kind: d.Kind, Key: d.Key, At: d.At}
	}
	return due, nil
}

// Unsettled lists the sessions that a service would act on.
func (v Views) Unsettled(ctx context.Context, service events.Service) ([]reactor.Key, error) {
	rows, err := v.reader.Unsettled(ctx, service)
	if err != nil {
		return nil, err
	}
	keys := make([]reactor.Key, len(rows))
	for i, r := range rows {
		keys[i] = reactor.Key{Tenant: r.Tenant, Session: r.Session}
	}
	return keys, nil
}

// RuntimeNames lists the runtimes whose warm pools are to be kept.
func (v Views) RuntimeNames(ctx context.Context) ([]projections.RuntimeName, error) {
	return v.reader.RuntimeNames(ctx)
}
