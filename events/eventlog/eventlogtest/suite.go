// Package eventlogtest holds every implementation of eventlog.Log, and the Store
// above it, to one behaviour: [Run] is called by the tests of memlog and natslog,
// and once more on three clustered servers.
package eventlogtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
)

// Harness opens logs for the suite.
type Harness struct {
	// Open gives two ways into one log, as two processes have. It may be the same
	// log every time: the suite uses fresh subjects.
	Open func(t *testing.T) (a, b eventlog.Log)
	// Plant stores bytes on a subject without any check.
	Plant func(t *testing.T, subject string, raw []byte) (seq uint64)
	// Genesis is what Info has to tell.
	Genesis eventlog.Genesis
	// MaxData is how large an event's data may be; 0 where it has to fit into one
	// message.
	MaxData int
	// Checks is how many random histories the concurrency test runs.
	Checks int
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for _, c := range []struct {
		name string
		run  func(*testing.T, Harness)
	}{
		{"append takes only what follows the subject's last message", testAppend},
		{"append refuses what is not a literal subject or an envelope", testAppendRefuses},
		{"an append that was never sent gives ctx's error", testAppendEnded},
		{"what is stored reads back byte for byte", testReads},
		{"the largest envelope is stored and read back", testLargest},
		{"tail gives everything once, in order, and goes on live", testTail},
		{"tail refuses to start beyond the end", testTailTruncated},
		{"info tells the genesis and the extent", testInfo},
		{"execute chains n and prev", testExecuteChain},
		{"a command is done once, also by a new store", testExecuteOnce},
		{"without room nothing is done twice or later", testNoRoom},
		{"a conflict with another process is resolved by deciding again", testExecuteConflict},
		{"a refusal on an outdated cache is decided again", testRefusalConfirmed},
		{"a refusal with records is stored and still the answer", testRefusalRecorded},
		{"an acknowledgement that was lost gives the same answer", testLostReply},
		{"an unknown outcome is not a refusal, and repeating it answers", testUnknownOutcome},
		{"failing after an attempt is an unknown outcome", testFailedAfterAttempt},
		{"what was decided reads back as the same state", testStateAsStored},
		{"events of a foreign or unknown type stop every decision", testForeignAndUnknown},
		{"a broken chain stops every decision", testBrokenChain},
		{"a cache ahead of the log is dropped", testCacheAhead},
		{"a copy saves the walk, and is never trusted", testCopy},
		{"a follower has the state as of each message", testFollower},
		{"two stores and many goroutines keep one chain", testConcurrent},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, h) })
	}
}

// within bounds each call of the suite, so that a hang is a failure with a place.
const within = 30 * time.Second

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	t.Cleanup(cancel)
	return ctx
}

var subjects atomic.Uint64

// freshSubject gives a session's subject that no test used before.
func freshSubject() string {
	s, err := events.SessionSubject("t1", fmt.Sprintf("s-%d-%d", time.Now().UnixNano(), subjects.Add(1)))
	if err != nil {
		panic(err) // the tokens are ours
	}
	return s
}

// The suite's own aggregate: a ledger that may not go below zero.
const (
	typePut     = "ledger.put"
	typeTaken   = "ledger.taken"
	typeRefused = "ledger.take-refused"
)

var errTooLittle = errors.New("too little")

type ledger struct {
	Balance, Refused int
	Times            []time.Time
}

func newLedger() *ledger { return &ledger{} }

// Apply implements eventlog.Aggregate.
func (l *ledger) Apply(m events.Message) error {
	for i, r := range m.Envelope.Events {
		if m.Envelope.Service != events.ServiceSession {
			return &events.ForeignTypeError{Type: r.Type, Service: m.Envelope.Service, Owner: events.ServiceSession}
		}
		var amount int
		if err := json.Unmarshal(r.Data, &amount); err != nil {
			return err
		}
		switch r.Type {
		case typePut:
			l.Balance += amount
		case typeTaken:
			l.Balance -= amount
		case typeRefused:
			l.Refused++
		default:
			return &events.UnknownTypeError{Type: r.Type, V: r.V}
		}
		l.Times = append(l.Times, m.MetaAt(i).Time)
	}
	return nil
}

func record(kind string, amount int) events.Record {
	return events.Record{Type: kind, V: 1, Data: json.RawMessage(strconv.Itoa(amount))}
}

func put(amounts ...int) eventlog.Decide[*ledger] {
	return func(*ledger, time.Time) ([]events.Record, error) {
		rs := make([]events.Record, 0, len(amounts))
		for _, a := range amounts {
			rs = append(rs, record(typePut, a))
		}
		return rs, nil
	}
}

func take(amount int) eventlog.Decide[*ledger] {
	return func(l *ledger, _ time.Time) ([]events.Record, error) {
		if l.Balance < amount {
			return nil, errTooLittle
		}
		return []events.Record{record(typeTaken, amount)}, nil
	}
}

// takeOrRecord is take whose refusal is an event too.
func takeOrRecord(amount int) eventlog.Decide[*ledger] {
	return func(l *ledger, _ time.Time) ([]events.Record, error) {
		if l.Balance < amount {
			return []events.Record{record(typeRefused, amount)}, errTooLittle
		}
		return []events.Record{record(typeTaken, amount)}, nil
	}
}

var clerk = events.Actor{Kind: events.ActorPerson, ID: "clerk"}

func command(id string) eventlog.Command { return eventlog.Command{ID: id, Actor: clerk} }

func newStore(log eventlog.Log, cfg ...func(*eventlog.Config[*ledger])) *eventlog.Store[*ledger] {
	c := eventlog.Config[*ledger]{Log: log, New: newLedger, Service: events.ServiceSession, Epoch: "e1"}
	for _, f := range cfg {
		f(&c)
	}
	return eventlog.NewStore(c)
}

func envelope(id string, n, prev uint64, records ...events.Record) events.Envelope {
	return events.Envelope{
		Command: id, Actor: clerk, Service: events.ServiceSession, N: n, Prev: prev,
		Time: time.Now().UTC().Round(0), Events: records,
	}
}

// execute fails the test where the command does.
func execute(t *testing.T, s *eventlog.Store[*ledger], subject, id string, decide eventlog.Decide[*ledger]) eventlog.Result {
	t.Helper()
	res, err := s.Execute(bounded(t), subject, command(id), decide)
	if err != nil {
		t.Fatalf("command %s: %v", id, err)
	}
	return res
}

// balance reads the ledger through a store.
func balance(t *testing.T, s *eventlog.Store[*ledger], subject string) (amount int, n uint64) {
	t.Helper()
	if err := s.Read(bounded(t), subject, func(snap eventlog.Snapshot[*ledger]) error {
		amount, n = snap.State.Balance, snap.N
		return nil
	}); err != nil {
		t.Fatalf("read: %v", err)
	}
	return amount, n
}
