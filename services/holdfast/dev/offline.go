package dev

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast/events/eventlog"
)

// Offline opens the log and the Postgres of a dev that doesn't run, hands them to
// use, and closes everything again. While a dev runs on the data it is a
// *BusyError.
func Offline(ctx context.Context, cfg Config, use func(context.Context, eventlog.Log, *pgxpool.Pool) error) error {
	ctx, cancel := context.WithCancel(ctx)
	p := &Program{cfg: cfg, cancel: cancel, done: make(chan struct{})}
	if p.cfg.Progress == nil {
		p.cfg.Progress = noProgress
	}
	defer cancel()
	err := func() error {
		var g ground
		if err := p.openData(&g); err != nil {
			return err
		}
		if err := p.startBroker(ctx, &g); err != nil {
			return err
		}
		if err := p.startPostgres(ctx, &g); err != nil {
			return err
		}
		log, closeLog, err := p.OpenLog(ctx)
		if err != nil {
			return err
		}
		defer closeLog()
		return use(ctx, log, g.pool)
	}()
	return errors.Join(err, p.close())
}
