package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/migrations"
	"github.com/holdfast-io/holdfast/projections"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/postgres"
)

// alive is how many sessions of the projected log live at the same time.
const alive = 200

// measureProjector compares what the projector writes in a second.
func measureProjector(ctx context.Context, l *lab) (f finding, err error) {
	g, err := l.newGround(ctx, false)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	dsn, err := g.startPostgres(ctx)
	if err != nil {
		return f, err
	}
	log, err := g.writeLives(ctx, l.size(4500, 20))
	if err != nil {
		return f, err
	}
	count := l.size(3, 1)
	var ours, base []time.Duration
	var transactions int64
	for round := range count {
		views := migrated{dsn: dsn, schema: fmt.Sprintf("projected_%d", round)}
		took, commits, err := log.project(ctx, views)
		if err != nil {
			return f, err
		}
		transactions = commits
		ours = append(ours, took)
		if took, err = copyAgain(ctx, views, int(commits)); err != nil {
			return f, err
		}
		base = append(base, took)
	}
	return finding{
		title:    "Projector: EVENTS → Postgres",
		baseline: "COPY (binary) of the rows that it had written, from memory into the same tables with the same indexes, in as many transactions",
		samples: fmt.Sprintf("%d rounds of %d events in %d messages of %d sessions, %d alive at a time; %d transactions",
			count, log.events, log.messages, log.sessions, alive, transactions),
		figures: []figure{rate("project a log", "events", log.events, ours, base, aim{atLeast: 0.6})},
		notes: []string{
			"Ours reads JetStream, decodes, folds and words each event; the baseline only sends bytes that are ready, and each row once, where ours writes a session's row again in every transaction that touches it.",
		},
	}, nil
}

// startPostgres starts a server with dev's settings.
func (g *ground) startPostgres(ctx context.Context) (dsn string, err error) {
	dir, err := g.lab.folder("postgres")
	if err != nil {
		return "", err
	}
	server, err := postgres.Start(ctx, postgres.Config{Dir: dir, Logger: g.lab.logger})
	if err != nil {
		return "", err
	}
	g.onClose(server.Stop)
	return server.DSN(), migrations.Up(ctx, server.DSN())
}

// written is a log with lives in it.
type written struct {
	log                        connection
	sessions, events, messages int
	last                       uint64
}

// writeLives fills the log with lives.
func (g *ground) writeLives(ctx context.Context, sessions int) (written, error) {
	w, err := g.write(ctx, func(first uint64, put func(events.Message) error) error { return lives(sessions, alive, first, put) })
	w.sessions = sessions
	return w, err
}

// write stores what author hands over, the first message at the sequence that it is
// given, without waiting for each ack.
func (g *ground) write(ctx context.Context, author func(first uint64, put func(events.Message) error) error) (written, error) {
	var w written
	writer, err := g.connect(ctx, broker.UserSession)
	if err != nil {
		return w, err
	}
	info, err := writer.log.Info(ctx)
	if err != nil {
		return w, err
	}
	w.last = info.LastSeq
	js, err := jetstream.New(writer.nc, jetstream.WithPublishAsyncMaxPending(512))
	if err != nil {
		return w, err
	}
	err = author(w.last+1, func(m events.Message) error {
		msg := nats.NewMsg(m.Subject)
		msg.Header.Set(events.HeaderTypes, m.Envelope.Types())
		msg.Data = m.Raw
		w.last = m.Seq
		w.messages++
		w.events += len(m.Envelope.Events)
		_, err := js.PublishMsgAsync(msg, jetstream.WithStallWait(time.Minute))
		return err
	})
	if err != nil {
		return w, err
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		return w, ctx.Err()
	}
	if info, err = writer.log.Info(ctx); err != nil {
		return w, err
	}
	if info.LastSeq != w.last {
		return w, fmt.Errorf("the log ends at %d, not at %d: some of it was not stored", info.LastSeq, w.last)
	}
	w.log, err = g.connect(ctx, broker.UserProjector)
	return w, err
}

// migrated is a schema of read models in a database.
type migrated struct{ dsn, schema string }

// connect connects to the schema. The tracer may be nil.
func (m migrated) connect(ctx context.Context, tracer pgx.QueryTracer) (*pgxpool.Pool, error) {
	conf, err := pgxpool.ParseConfig(m.dsn)
	if err != nil {
		return nil, err
	}
	conf.ConnConfig.RuntimeParams["search_path"] = migrations.SearchPath(m.schema)
	conf.ConnConfig.Tracer = tracer
	return pgxpool.NewWithConfig(ctx, conf)
}

// open makes the schema, empty, and connects to it. The tracer may be nil.
func (m migrated) open(ctx context.Context, tracer pgx.QueryTracer) (*pgxpool.Pool, error) {
	pool, err := m.connect(ctx, tracer)
	if err != nil {
		return nil, err
	}
	if err := migrations.CreateViews(ctx, pool, m.schema); err != nil {
		pool.Close()
		return nil, err
	}
	// Neither side pays for what the other left to write out.
	if _, err := pool.Exec(ctx, "CHECKPOINT"); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// commits counts the transactions of a pool.
type commits struct{ count atomic.Int64 }

// TraceQueryStart implements pgx.QueryTracer.
func (c *commits) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if strings.EqualFold(q.SQL, "commit") {
		c.count.Add(1)
	}
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (c *commits) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// project runs a projector over the whole log and gives how long it took, in how
// many transactions.
func (w written) project(ctx context.Context, into migrated) (took time.Duration, transactions int64, err error) {
	var counted commits
	pool, err := into.open(ctx, &counted)
	if err != nil {
		return 0, 0, err
	}
	defer pool.Close()
	p, err := projections.NewProjector(projections.Config{Log: w.log.log, Pool: pool})
	if err != nil {
		return 0, 0, err
	}
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	before := counted.count.Load()
	begin := time.Now()
	go func() { done <- p.Run(running) }()
	err = p.WaitFor(ctx, w.last)
	took, transactions = time.Since(begin), counted.count.Load()-before
	stop()
	return took, transactions, errors.Join(err, <-done)
}
