package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/holdfast/dev"
	"github.com/holdfast-io/holdfast/services/internal/broker"
)

// eventsAtRest is about how many events a session has that was put away.
const eventsAtRest = 20

// lifeAtRest writes the life of a session that has been put away and waits for its next
// message. It began at start.
func lifeAtRest(id string, seed uint64, start time.Time) []step {
	for ; ; seed += 1 << 32 {
		a := newAuthor(id, seed)
		a.now = start
		if !a.lives(eventsAtRest) {
			continue
		}
		a.add(events.ServiceSession, session.SuspendRequested{Cause: "idle"})
		a.add(events.ServiceWorkload, session.Suspended{Generation: a.generation})
		return a.steps
	}
}

// restID names a session at rest.
func restID(i int) string { return events.HashID(events.PrefixSession, "rest", strconv.Itoa(i)) }

// writeAtRest writes so many of them into the log of a dev that doesn't run, and gives
// the log's last sequence and how many bytes they are.
func (l *lab) writeAtRest(ctx context.Context, dataDir string, count int) (last uint64, size int, err error) {
	g := &ground{lab: l}
	defer func() { err = errors.Join(err, g.close()) }()
	if g.broker, err = broker.Start(broker.Config{Dir: filepath.Join(dataDir, "nats"), Logger: l.logger}); err != nil {
		return 0, 0, err
	}
	g.onClose(func() error { g.broker.Stop(); return nil })
	start := time.Now().Add(-4 * time.Hour)
	w, err := g.write(ctx, func(first uint64, put func(events.Message) error) error {
		for i := range count {
			subject, err := events.SessionSubject(dev.Tenant, restID(i))
			if err != nil {
				return err
			}
			life := &writing{subject: subject, steps: lifeAtRest(restID(i), uint64(i), start)}
			for ; len(life.steps) > 0; first++ {
				m, err := life.message(first)
				if err != nil {
					return err
				}
				size += len(m.Raw)
				if err := put(m); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return w.last, size, err
}

// house is a dev's data that is started again and again.
type house struct {
	lab *lab
	dir string
	// used is the memory after the last start, live heap and stacks.
	used uint64
}

// start starts dev on it, until everything answers; stopping doesn't count.
func (h *house) start(ctx context.Context) (time.Duration, error) {
	begin := time.Now()
	p, err := h.lab.startProgram(ctx, h.dir, "none")
	took := time.Since(begin)
	if err != nil {
		return took, err
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	h.used = m.HeapAlloc + m.StackInuse
	return took, p.close()
}

// newHouse makes one, with so many sessions in it, and lets the views catch up.
func (l *lab) newHouse(ctx context.Context, sessions int) (h *house, bytes int, err error) {
	h = &house{lab: l}
	if h.dir, err = l.folder("house"); err != nil {
		return h, 0, err
	}
	if _, err := h.start(ctx); err != nil {
		return h, 0, err
	}
	if sessions == 0 {
		return h, 0, nil
	}
	last, bytes, err := l.writeAtRest(ctx, h.dir, sessions)
	if err != nil {
		return h, 0, err
	}
	p, err := l.startProgram(ctx, h.dir, "none")
	if err != nil {
		return h, 0, err
	}
	err = eventually(ctx, func() error {
		_, err := p.client.GetSessionWithResponse(ctx, restID(sessions-1), &api.GetSessionParams{MinSeq: &last})
		return err
	})
	return h, bytes, errors.Join(err, p.close())
}

// measureStartup compares a start with many sessions with one without any.
func measureStartup(ctx context.Context, l *lab) (f finding, err error) {
	sessions, count := l.size(10_000, 20), l.size(5, 1)
	full, bytes, err := l.newHouse(ctx, sessions)
	if err != nil {
		return f, err
	}
	empty, _, err := l.newHouse(ctx, 0)
	if err != nil {
		return f, err
	}
	var started rounds
	var each []float64
	for range count {
		ours, base, err := alternate(ctx, 1, full.start, empty.start)
		if err != nil {
			return f, err
		}
		started.ours, started.base = append(started.ours, ours), append(started.base, base)
		each = append(each, (float64(full.used)-float64(empty.used))/float64(sessions))
	}
	stored := float64(bytes) / float64(sessions)
	ratios := make([]float64, len(each))
	for i := range each {
		ratios[i] = each[i] / stored
	}
	kib := func(b float64) string { return fmt.Sprintf("%.2f KiB", b/1024) }
	return finding{
		title:    fmt.Sprintf("Start of dev on %d sessions at rest", sessions),
		baseline: "the start on no sessions; for memory, a session's own bytes in the log",
		samples:  fmt.Sprintf("%d rounds of a start each; sessions of about %d events, put away; Postgres runs from the start on", count, eventsAtRest),
		figures: []figure{
			latency("until everything answers", started, 0.5, aim{}),
			{what: "memory of the process for a session at rest", ours: kib(spreadOf(each).median), base: kib(stored), ratio: spreadOf(ratios)},
		},
		notes: []string{
			"A service keeps no session in memory that nothing is wanted of; what a session costs at rest is what the embedded NATS keeps of its subject.",
		},
	}, nil
}
