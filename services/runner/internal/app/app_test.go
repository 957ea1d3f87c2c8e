package app

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/eventlog/memlog"
	"github.com/holdfast-io/holdfast/events/session"
	given "github.com/holdfast-io/holdfast/services/internal/decidertest"
	"github.com/holdfast-io/holdfast/services/internal/reactor"
)

// counted is a log that counts what is read of it.
type counted struct {
	*memlog.Log
	lasts, gets atomic.Int64
}

func (c *counted) Last(ctx context.Context, subject string) (events.Message, bool, error) {
	c.lasts.Add(1)
	return c.Log.Last(ctx, subject)
}

func (c *counted) Get(ctx context.Context, seq uint64) (events.Message, error) {
	c.gets.Add(1)
	return c.Log.Get(ctx, seq)
}

// A runner that meets more sessions than conversations fit keeps the newest ones, and
// looks at each with one confirming read.
func TestConversationsAreBounded(t *testing.T) {
	t.Parallel()
	log := &counted{Log: memlog.New(eventlog.Genesis{LogID: "log", Epoch: "1"})}
	a := New(Config{Log: log, Epoch: "1", Logger: slog.New(slog.DiscardHandler)})
	close(a.started)
	keys := make([]reactor.Key, threadCache+1)
	for i := range keys {
		keys[i] = reactor.Key{Tenant: given.Tenant, Session: fmt.Sprintf("s-%020d", i)}
		plant(t, log, keys[i])
	}
	// reads gives what settling a session reads of the log.
	reads := func(key reactor.Key) (lasts, gets int64) {
		log.lasts.Store(0)
		log.gets.Store(0)
		if err := a.Settle(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		return log.lasts.Load(), log.gets.Load()
	}
	for _, key := range keys {
		reads(key)
	}
	if lasts, gets := reads(keys[len(keys)-1]); lasts != 1 || gets != 0 {
		t.Errorf("a session that is known: %d confirming reads, %d of its history", lasts, gets)
	}
	if _, gets := reads(keys[0]); gets == 0 {
		t.Errorf("%d conversations are kept", len(keys))
	}
}

// plant gives the log a session that has nothing to do but for what more says.
func plant(t *testing.T, log eventlog.Log, key reactor.Key, more ...session.Payload) {
	t.Helper()
	subject, err := events.SessionSubject(key.Tenant, key.Session)
	if err != nil {
		t.Fatal(err)
	}
	var prev uint64
	for i, p := range given.Ready.And(more...) {
		service, _ := session.Owner(session.TypeOf(p))
		records, err := session.Records(service, p)
		if err != nil {
			t.Fatal(err)
		}
		if prev, err = log.Append(t.Context(), subject, events.Envelope{
			Command: fmt.Sprint(i), Actor: system, Service: service, N: uint64(i + 1), Prev: prev, Time: given.Start, Events: records,
		}); err != nil {
			t.Fatal(err)
		}
	}
}
