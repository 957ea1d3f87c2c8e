package app_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/projections"
	given "github.com/holdfast-io/holdfast/services/internal/decidertest"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
	"github.com/holdfast-io/holdfast/services/workload/internal/app"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

func (runtimes) RuntimeNames(context.Context) ([]projections.RuntimeName, error) {
	return []projections.RuntimeName{{Tenant: given.Tenant, Name: "shell"}}, nil
}

// The sweep removes only what a release of this epoch names.
func TestSweep(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.settle()
	w.append(session.Terminated{})
	w.settle()
	unknown := driver.Ref{Tenant: given.Tenant, Session: "s-bbbbbbbbbbbbbbbbbbbb", Generation: 1}
	w.driver.boxes[ref] = &sandbox{pod: "pod-1", running: true, epoch: epoch} // a crash left it after its release
	w.driver.boxes[unknown] = &sandbox{pod: "pod-8", running: true, epoch: epoch}
	other := driver.Ref{Tenant: given.Tenant, Session: "s-cccccccccccccccccccc", Generation: 1}
	w.driver.boxes[other] = &sandbox{pod: "pod-9", running: true, epoch: "epoch-0"}
	w.watch()
	if w.driver.boxes[ref] != nil {
		t.Error("a released sandbox is left")
	}
	if w.driver.boxes[unknown] == nil || w.driver.boxes[other] == nil {
		t.Error("the sweep removed what no release names")
	}
}

// What exists and is the log's is looked at.
func TestSweepLooksAtWhatExists(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.settle()
	w.queue.now = nil
	w.watch()
	if len(w.queue.now) != 1 || w.queue.now[0] != key {
		t.Errorf("enqueued %v", w.queue.now)
	}
}

// A pool that can't be filled refuses no runtime, and is tried again.
func TestPoolIsFilledLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.driver.fail("EnsurePool", 1, errors.New("no space"))
		w.applyRuntime(`{"kind":"agent","sandbox":{"command":["agent","new"]},"entrypoints":[{"name":"app","port":8000}],"warmPool":{"size":3}}`)
		w.driver.fail("EnsurePool", 1, errors.New("no space")) // nor when Watch starts
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.app.Watch(ctx, runtimes{}) }()
		synctest.Wait()
		if n := w.driver.pool("default.shell"); n == 3 {
			t.Errorf("a pool of %d", n)
		}
		for w.driver.pool("default.shell") != 3 {
			next, stop := context.WithTimeout(t.Context(), app.SweepEvery)
			<-next.Done()
			stop()
			synctest.Wait()
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// An entrypoint that takes its time is waited for, and the session is looked at in
// between: one that ends meanwhile is put away.
func TestSlowEntrypoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		waits := 0
		w.driver.hooks["Ready"] = func() {
			if waits++; waits == 3 {
				w.append(session.Terminated{})
			}
		}
		w.driver.slow = true
		w.settle()
		if waits != 3 || w.state().Workload.Status != session.WorkloadReleased {
			t.Errorf("after %d waits: %s", waits, w.state().Workload.Status)
		}
	})
}

func TestLocate(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		given func(w *world)
		body  string
		code  string
	}{
		"ready":               {(*world).settle, `{"generation":1}`, ""},
		"whichever":           {(*world).settle, `{"generation":0}`, ""},
		"not ready":           {func(*world) {}, `{"generation":0}`, "sandbox-unreachable"},
		"an older generation": {(*world).settle, `{"generation":7}`, "sandbox-unreachable"},
		"suspending":          {suspend, `{"generation":1}`, "sandbox-unreachable"},
		"died":                {func(w *world) { w.settle(); w.driver.die() }, `{"generation":1}`, "sandbox-unreachable"},
		"nonsense":            {(*world).settle, `{"generation":-1}`, "invalid-request"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			tc.given(w)
			reply, err := w.do(verbs.Locate, tc.body)
			if tc.code != "" {
				if got := string(problem.From(err).Code); got != tc.code {
					t.Errorf("%s, want %s", got, tc.code)
				}
				return
			}
			if want := `{"endpoint":"unix:/pod-1","podUid":"pod-1","generation":1}`; err != nil || string(reply.Result) != want {
				t.Errorf("%s, %v", reply.Result, err)
			}
		})
	}
}

func TestApplyRuntime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const spec = `{"kind":"code-interpreter","sandbox":{"command":["python3"]}}`
	first := w.applyRuntime(spec)
	if second := w.applyRuntime(spec); string(first.Result) != `{"revision":2,"changed":true}` || string(second.Result) != `{"revision":2,"changed":false}` {
		t.Errorf("%s, then %s", first.Result, second.Result)
	}
	for name, tc := range map[string]struct{ verb, body, code string }{
		"unknown field":     {verbs.RuntimeApply, `{"name":"shell","spec":{"kind":"agent","nonsense":1}}`, "runtime-invalid"},
		"another name":      {verbs.RuntimeApply, `{"name":"shell","spec":{"name":"other","kind":"code-interpreter","sandbox":{"command":["x"]}}}`, "runtime-invalid"},
		"no such kind":      {verbs.RuntimeApply, `{"name":"shell","spec":{"kind":"robot"}}`, "runtime-invalid"},
		"no name":           {verbs.RuntimeApply, `{"name":"a.b","spec":{"kind":"code-interpreter","sandbox":{"command":["x"]}}}`, "runtime-invalid"},
		"not JSON":          {verbs.RuntimeApply, `{"name":"shell","spec":[]}`, "runtime-invalid"},
		"remove a stranger": {verbs.RuntimeRemove, `{"name":"stranger"}`, "runtime-not-found"},
	} {
		_, err := w.do(tc.verb, tc.body)
		if got := string(problem.From(err).Code); got != tc.code {
			t.Errorf("%s: %s, want %s", name, got, tc.code)
		}
	}
	if _, err := w.do(verbs.RuntimeRemove, `{"name":"shell"}`); err != nil {
		t.Fatal(err)
	}
	if _, err := w.do(verbs.RuntimeRemove, `{"name":"shell"}`); problem.From(err).Code != "runtime-not-found" {
		t.Errorf("removed twice: %v", err)
	}
	if n := w.driver.pool("default.shell"); n != 0 {
		t.Errorf("a removed runtime keeps a pool of %d", n)
	}
	w.settle() // the session that pinned it goes on
	w.want(session.PhaseReady, 1)
}
