// Package memlog is a log in memory with the behaviour of the JetStream one: for
// properties of deciders and tests that need many logs fast. It forgets
// everything with the process.
package memlog

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
)

// Log is an in-memory eventlog.Log; its zero value is not usable, see New.
type Log struct {
	mu       sync.Mutex
	grown    chan struct{} // closed and replaced at each append
	messages []events.Message
	last     map[string]uint64
	genesis  eventlog.Genesis
}

var _ eventlog.Log = (*Log)(nil)

// New gives a log that holds only its genesis.
func New(genesis eventlog.Genesis) *Log {
	raw, err := json.Marshal(genesis)
	if err != nil {
		panic(err) // two strings: it can't fail
	}
	return &Log{
		grown: make(chan struct{}), last: map[string]uint64{}, genesis: genesis,
		messages: []events.Message{{Subject: events.SubjectGenesis, Seq: 1, Raw: raw}},
	}
}

// Append implements eventlog.Log.
func (l *Log) Append(ctx context.Context, subject string, env events.Envelope) (uint64, error) {
	if _, ok := events.ParseSubject(subject); !ok {
		return 0, fmt.Errorf("%w: %q", eventlog.ErrSubject, subject)
	}
	raw, err := env.Encode()
	if err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, err // nothing was sent: the outcome is known
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last[subject] != env.Prev {
		return 0, &eventlog.ConflictError{Subject: subject, Expected: env.Prev}
	}
	return l.put(subject, raw), nil
}

// Plant stores raw bytes without any check, as an attacker or a fault would. It
// is for tests of what reads the log.
func (l *Log) Plant(subject string, raw []byte) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.put(subject, raw)
}

func (l *Log) put(subject string, raw []byte) uint64 {
	seq := uint64(len(l.messages)) + 1
	m := events.Message{Subject: subject, Seq: seq, Raw: raw}
	if env, err := events.DecodeEnvelope(raw); err == nil {
		m.Envelope = env
	}
	l.messages = append(l.messages, m)
	l.last[subject] = seq
	close(l.grown)
	l.grown = make(chan struct{})
	return seq
}

// Last implements eventlog.Log.
func (l *Log) Last(_ context.Context, subject string) (events.Message, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seq, ok := l.last[subject]
	if !ok {
		return events.Message{}, false, nil
	}
	return l.messages[seq-1], true, nil
}

// Get implements eventlog.Log.
func (l *Log) Get(_ context.Context, seq uint64) (events.Message, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if seq == 0 || seq > uint64(len(l.messages)) {
		return events.Message{}, eventlog.ErrNotFound
	}
	return l.messages[seq-1], nil
}

// Tail implements eventlog.Log.
func (l *Log) Tail(ctx context.Context, from uint64, handle func(events.Message) error) error {
	from = max(from, 1)
	l.mu.Lock()
	last := uint64(len(l.messages))
	l.mu.Unlock()
	if from > last+1 {
		return &eventlog.TruncatedError{Next: from, LastSeq: last}
	}
	for next := from; ; {
		l.mu.Lock()
		grown := l.grown
		var batch []events.Message
		if next <= uint64(len(l.messages)) {
			batch = l.messages[next-1:]
		}
		l.mu.Unlock()
		for _, m := range batch {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := handle(m); err != nil {
				return err
			}
			next++
		}
		if len(batch) > 0 {
			continue
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Whole implements eventlog.Log: this one's messages are whole.
func (*Log) Whole(_ context.Context, m events.Message) (events.Message, error) { return m, nil }

// Info implements eventlog.Log.
func (l *Log) Info(context.Context) (eventlog.Info, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return eventlog.Info{Genesis: l.genesis, FirstSeq: 1, LastSeq: uint64(len(l.messages))}, nil
}
