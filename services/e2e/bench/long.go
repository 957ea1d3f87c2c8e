package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/projections"
)

// long is a log with a few sessions of a long history, projected.
type long struct {
	*ground

	pool   *pgxpool.Pool
	reader *projections.Reader
	log    connection
}

// newLong writes one session for each number of events, named by it.
func (l *lab) newLong(ctx context.Context, sizes ...int) (s *long, err error) {
	g, err := l.newGround(ctx, false)
	if err != nil {
		return nil, err
	}
	s = &long{ground: g}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.close())
		}
	}()
	dsn, err := g.startPostgres(ctx)
	if err != nil {
		return s, err
	}
	w, err := g.write(ctx, func(first uint64, put func(events.Message) error) error {
		for _, size := range sizes {
			if first, err = writeLong(first, size, put); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return s, err
	}
	s.log = w.log
	views := migrated{dsn: dsn, schema: "long"}
	if _, _, err := w.project(ctx, views); err != nil {
		return s, err
	}
	if s.pool, err = views.connect(ctx, nil); err != nil {
		return s, err
	}
	g.onClose(func() error { s.pool.Close(); return nil })
	s.reader, err = projections.NewReader(projections.ReaderConfig{Pool: s.pool, Epoch: g.epoch})
	if err == nil {
		g.onClose(func() error { s.reader.Close(); return nil })
	}
	return s, err
}

// longID is the session with so many events.
func longID(events int) string { return fmt.Sprintf("s-long-%d", events) }

// writeLong hands over a long life and gives the sequence after it.
func writeLong(first uint64, size int, put func(events.Message) error) (uint64, error) {
	id := longID(size)
	subject, err := events.SessionSubject(tenant, id)
	if err != nil {
		return 0, err
	}
	w := &writing{subject: subject, steps: longLife(id, size)}
	for seq := first; ; seq++ {
		m, err := w.message(seq)
		if err != nil {
			return 0, err
		}
		if err := put(m); err != nil {
			return 0, err
		}
		if len(w.steps) == 0 {
			return seq + 1, nil
		}
	}
}

// measureLoad compares a cold load of a session with reading its bytes.
func measureLoad(ctx context.Context, l *lab) (f finding, err error) {
	sizes := []int{l.size(1_000, 100), l.size(20_000, 200)}
	s, err := l.newLong(ctx, sizes...)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	f = finding{
		title:    "Cold load of a session",
		baseline: "the same bytes in order: a SELECT of the copy's rows; an ordered consumer on the session's subject",
		samples:  fmt.Sprintf("%d rounds of %d pairs (of the longer session: 1)", l.size(7, 2), l.size(5, 1)),
		notes: []string{
			"Without Postgres a load walks back along prev, a leader read a message: the price of needing nothing but the log, paid once, until the session is cached.",
		},
	}
	for i, size := range sizes {
		subject, err := events.SessionSubject(tenant, longID(size))
		if err != nil {
			return f, err
		}
		pairs := l.size(5, 1)
		if i > 0 {
			pairs = 1
		}
		for _, from := range []struct {
			what string
			copy eventlog.Copy
			base operation
		}{
			{"from the copy in Postgres", s.reader, s.selectBytes(subject)},
			{"from the log alone", nil, s.consumeBytes(subject)},
		} {
			load := timed(func(ctx context.Context) error { return s.load(ctx, subject, from.copy) })
			r, err := inTurns(ctx, 1, l.size(7, 2), pairs, load, from.base)
			if err != nil {
				return f, err
			}
			f.figures = append(f.figures, latency(fmt.Sprintf("%d events %s", size, from.what), r, 0.5, aim{}))
		}
	}
	return f, nil
}

// load folds a session that nothing has in memory.
func (s *long) load(ctx context.Context, subject string, from eventlog.Copy) error {
	store := eventlog.NewStore(eventlog.Config[*session.State]{Log: s.log.log, New: session.New, Copy: from, Epoch: s.epoch})
	return store.Read(ctx, subject, func(got eventlog.Snapshot[*session.State]) error {
		if got.N == 0 {
			return errors.New("nothing was loaded")
		}
		return nil
	})
}

// selectBytes reads a subject's bytes from Postgres.
func (s *long) selectBytes(subject string) operation {
	return timed(func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, "SELECT raw FROM envelopes WHERE subject = $1 ORDER BY seq", subject)
		if err != nil {
			return err
		}
		defer rows.Close()
		var raw []byte
		for rows.Next() {
			if err := rows.Scan(&raw); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}

// consumeBytes reads a subject's bytes from the stream, up to its last.
func (s *long) consumeBytes(subject string) operation {
	return timed(func(ctx context.Context) error {
		last, ok, err := s.log.log.Last(ctx, subject)
		if err != nil || !ok {
			return errors.Join(err, errors.New("the session has no events"))
		}
		c, err := s.log.js.OrderedConsumer(ctx, events.StreamEvents, jetstream.OrderedConsumerConfig{FilterSubjects: []string{subject}})
		if err != nil {
			return err
		}
		each, err := c.Messages()
		if err != nil {
			return err
		}
		defer each.Stop()
		for {
			m, err := each.Next()
			if err != nil {
				return err
			}
			about, err := m.Metadata()
			if err != nil {
				return err
			}
			if about.Sequence.Stream >= last.Seq {
				return nil
			}
		}
	})
}

// measureTimeline compares the first page of a long timeline.
func measureTimeline(ctx context.Context, l *lab) (f finding, err error) {
	size := l.size(10_000, 200)
	s, err := l.newLong(ctx, size)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	page := timed(func(ctx context.Context) error {
		got, err := s.reader.Timeline(ctx, tenant, longID(size), projections.Place{}, pageSize)
		if err == nil && len(got.Frames) != pageSize {
			err = fmt.Errorf("a page of %d frames", len(got.Frames))
		}
		return err
	})
	bare := timed(func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx,
			"SELECT n, kind, data, at FROM timeline WHERE tenant = $1 AND session = $2 AND n > 0 ORDER BY n LIMIT $3", tenant, longID(size), pageSize)
		if err != nil {
			return err
		}
		defer rows.Close()
		var (
			n    int64
			kind string
			data []byte
			at   time.Time
		)
		for rows.Next() {
			if err := rows.Scan(&n, &kind, &data, &at); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	count, pairs := l.size(9, 2), l.size(100, 3)
	r, err := inTurns(ctx, pairs, count, pairs, page, bare)
	if err != nil {
		return f, err
	}
	return finding{
		title:    fmt.Sprintf("First page of a timeline of %d frames", size),
		baseline: "the bare SELECT of the page's rows",
		samples:  fmt.Sprintf("%d rounds of %d pairs, pages of %d frames", count, pairs, pageSize),
		figures: []figure{
			latency("a page", r, 0.5, aim{}),
			latency("a page", r, 0.99, aim{}),
		},
		notes: []string{
			"Ours reads in one snapshot what the page needs: the session's rule for masking, what output has aged out, the events, and the output between them.",
		},
	}, nil
}

// pageSize is a page as the console asks for it.
const pageSize = 200
