package gateway_test

import (
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/api"
)

// While Postgres is down, as it is here, everything that a session needs works.
func TestASessionFromCreateToTerminate(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.shell()
	created := w.create("Idempotency-Key: one")
	if created.Phase != "pending" || created.Runtime.Name != "coder" || created.Tenant != "default" {
		t.Errorf("created %+v", created)
	}
	again := w.call("alice", "POST", "/v1/sessions", map[string]any{"runtime": "coder"}, "Idempotency-Key: one").want(200)
	if got := decode[api.Session](again); got.ID != created.ID {
		t.Errorf("the same key made %s and %s", created.ID, got.ID)
	}
	w.call("alice", "POST", "/v1/sessions", map[string]any{"runtime": "coder", "labels": map[string]string{"a": "b"}}, "Idempotency-Key: one").
		problem(api.CodeIdempotencyConflict)
	other := decode[api.Session](w.call("admin", "POST", "/v1/sessions", map[string]any{"runtime": "coder"}, "Idempotency-Key: one").want(201))
	if other.ID == created.ID {
		t.Error("two people share a session by their keys")
	}

	w.ready(created.ID)
	path := "/v1/sessions/" + created.ID
	if got := decode[api.Session](w.call("bob", "GET", path, nil).want(200)); got.Phase != "ready" || got.Isolation != isolation {
		t.Errorf("after ready: %+v", got)
	}
	suspending := w.call("alice", "POST", path+"/suspend", nil).want(202)
	if got := decode[api.Session](suspending); got.Phase != "suspending" || suspending.header.Get("Holdfast-Seq") == "" {
		t.Errorf("after suspend: %+v, %v", got, suspending.header)
	}
	if p := w.call("alice", "POST", path+"/suspend", nil).problem(api.CodeIllegalTransition); p.Phase != "suspending" || len(p.Allowed) == 0 {
		t.Errorf("suspending twice: %+v", p)
	}
	sent := decode[api.MessageAccepted](w.call("alice", "POST", path+"/messages", map[string]any{"content": "ls"}, "Idempotency-Key: m1").want(202))
	repeated := decode[api.MessageAccepted](w.call("alice", "POST", path+"/messages", map[string]any{"content": "ls"}, "Idempotency-Key: m1").want(202))
	if sent != repeated {
		t.Errorf("the same key sent %+v and %+v", sent, repeated)
	}
	w.call("alice", "POST", path+"/messages", map[string]any{"content": "pwd"}, "Idempotency-Key: m1").problem(api.CodeIdempotencyConflict)
	w.call("alice", "POST", path+"/extend", map[string]any{"max": "24h"}).want(200)
	w.call("alice", "POST", path+"/extend", map[string]any{"max": "1m"}).problem(api.CodeInvalidRequest)
	ending := decode[api.Session](w.call("olga", "POST", path+"/terminate", map[string]any{"reason": "done with it"}).want(202))
	if ending.Phase != "ending" || ending.Cause != "done with it" {
		t.Errorf("terminated: %+v", ending)
	}
	w.call("olga", "POST", path+"/terminate", nil).want(202)
	w.call("alice", "POST", path+"/messages", map[string]any{"content": "ls"}).problem(api.CodeSessionEnded)
}

func TestCreateWaitsForReady(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.shell()
	first := w.create("Idempotency-Key: wait")
	answered := make(chan api.Session, 1)
	go func() {
		answered <- decode[api.Session](w.call("alice", "POST", "/v1/sessions", map[string]any{"runtime": "coder"},
			"Idempotency-Key: wait", "Prefer: respond-async, wait=30").want(200))
	}()
	select {
	case s := <-answered:
		t.Fatalf("answered before it was ready: %+v", s)
	case <-time.After(50 * time.Millisecond): // long enough to see an answer that doesn't wait
	}
	w.ready(first.ID)
	if s := <-answered; s.Phase != "ready" {
		t.Errorf("answered %+v", s)
	}
	// A wait that is over says how things are.
	begin := time.Now()
	pending := decode[api.Session](w.call("alice", "POST", "/v1/sessions", map[string]any{"runtime": "coder"}, "Prefer: wait=1").want(201))
	if pending.Phase != "pending" || time.Since(begin) < time.Second {
		t.Errorf("%s after %s", pending.Phase, time.Since(begin))
	}
}
