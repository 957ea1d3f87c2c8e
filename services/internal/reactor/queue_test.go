package reactor

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

var (
	one = Key{Tenant: "acme", Session: "s-1"}
	two = Key{Tenant: "acme", Session: "s-2"}
)

// message is one that only has to be told from another.
type message struct {
	jetstream.Msg
	name string
}

func next(t *testing.T, q *queue, want Key) {
	t.Helper()
	got, ok := q.next()
	if !ok || got != want {
		t.Fatalf("next is %v %v, want %v", got, ok, want)
	}
}

func TestNewestMessageIsHeld(t *testing.T) {
	t.Parallel()
	q := newQueue(10)
	first, second, third := &message{name: "1"}, &message{name: "2"}, &message{name: "3"}
	if older := q.add(one, first); older != nil {
		t.Errorf("nothing was held, got %v", older)
	}
	if older := q.add(one, second); older != first {
		t.Errorf("replaced %v, want the first", older)
	}
	next(t, q, one)
	if older := q.add(one, third); older != second {
		t.Errorf("replaced %v, want the second", older)
	}
	if m := q.settled(one); m != nil {
		t.Errorf("named while it ran, and yet acknowledged %v", m)
	}
	next(t, q, one)
	if m := q.settled(one); m != third {
		t.Errorf("acknowledged %v, want the third", m)
	}
	if q.size() != 0 {
		t.Errorf("%d keys are left", q.size())
	}
}

// Between failures a key waits, whatever names it meanwhile; a good end forgets them.
func TestBackoffHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(10)
		began := time.Now()
		q.add(one, nil)
		next(t, q, one)
		q.failed(one, 3*time.Second)
		q.add(one, nil)
		q.addAfter(one, time.Second)
		q.add(two, nil)
		next(t, q, two)
		q.settled(two)
		next(t, q, one)
		if waited := time.Since(began); waited != 3*time.Second {
			t.Errorf("ready after %s, want 3s", waited)
		}
		if q.failures(one) != 1 {
			t.Errorf("%d failures", q.failures(one))
		}
		q.settled(one)
		if q.failures(one) != 0 || q.size() != 0 {
			t.Errorf("%d failures, %d keys after a good end", q.failures(one), q.size())
		}
	})
}

func TestEarliestOfSeveralTimesCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(10)
		began := time.Now()
		q.addAfter(one, time.Minute)
		q.addAfter(one, 2*time.Second)
		q.addAfter(one, time.Hour)
		next(t, q, one)
		q.addAfter(one, time.Second) // as Settle itself does
		q.settled(one)
		next(t, q, one)
		if waited := time.Since(began); waited != 3*time.Second {
			t.Errorf("ready the second time after %s, want 3s", waited)
		}
		q.settled(one)
		if q.size() != 0 {
			t.Errorf("%d keys are left", q.size())
		}
	})
}

func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(1)
		if err := q.room(t.Context()); err != nil {
			t.Fatal(err)
		}
		q.add(one, nil)
		got := make(chan error)
		go func() { got <- q.room(t.Context()) }()
		synctest.Wait()
		select {
		case <-got:
			t.Error("room in a full queue")
		default:
		}
		next(t, q, one)
		q.settled(one)
		if err := <-got; err != nil {
			t.Error(err)
		}
		q.add(one, nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := q.room(ctx); err == nil {
			t.Error("waited on though cancelled")
		}
	})
}

// After close nothing is given out, no timer fires, and what was held is still known.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(10)
		held := &message{name: "held"}
		q.add(one, held)
		q.addAfter(two, time.Second)
		q.close()
		q.add(two, nil)
		q.addAfter(two, time.Second)
		time.Sleep(time.Minute) //nolint:forbidigo // the bubble's time
		if key, ok := q.next(); ok {
			t.Errorf("%v after close", key)
		}
		if ms := q.heldMessages(); len(ms) != 1 || ms[0] != held {
			t.Errorf("held: %v", ms)
		}
	})
}

func TestBackoffGrowsToItsBound(t *testing.T) {
	t.Parallel()
	for before, want := range map[int]time.Duration{
		0: 50 * time.Millisecond, 1: 100 * time.Millisecond, 6: 3200 * time.Millisecond, 7: 5 * time.Second, 1000: 5 * time.Second,
	} {
		for range 100 {
			if d := backoff(before); d > want || d < want/2 {
				t.Fatalf("after %d failures %s, want %s less up to half", before, d, want)
			}
		}
	}
}

// What is asked for while a run goes badly doesn't wait for what that run would wait for.
func TestForgivenWhileRunning(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]func(*queue){
		"postponed": func(q *queue) { q.postponed(one, time.Hour) },
		"failed":    func(q *queue) { q.failed(one, time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(10)
				begin := time.Now()
				q.add(one, &message{name: "begins"})
				next(t, q, one)
				q.forgive(one)
				ends(q)
				q.add(one, &message{name: "ends"})
				next(t, q, one)
				if waited := time.Since(begin); waited > 0 || q.failures(one) != 0 {
					t.Errorf("it waited %s, with %d failures", waited, q.failures(one))
				}
				ends(q) // nothing was forgiven this time
				next(t, q, one)
				if waited := time.Since(begin); waited != time.Hour {
					t.Errorf("the next waited %s", waited)
				}
				q.settled(one)
			})
		})
	}
}
