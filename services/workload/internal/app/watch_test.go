package app_test

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/projections"
	given "github.com/holdfast-io/holdfast/services/internal/decidertest"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/sandboxtoken"
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

// hung is a host that takes requests for pools and doesn't answer.
type hung struct{ *scripted }

// EnsurePool implements driver.Driver.
func (hung) EnsurePool(ctx context.Context, _ driver.RuntimeSpec, _ int) error {
	<-ctx.Done()
	return ctx.Err()
}

// A host that hangs keeps nobody from applying a runtime.
func TestApplyWhileTheHostHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.app.UseDriver(hung{w.driver})
		begun := time.Now()
		if reply := w.applyRuntime(`{"sandbox":{"command":["agent"]},"warmPool":{"size":3},"adapter":{"protocol":"none"}}`); reply.N == 0 {
			t.Error("nothing was applied")
		}
		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// A host that began anew has empty pools, and what it has is compared with the log.
func TestHostBegins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.settle()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.app.Watch(ctx, runtimes{}) }()
		synctest.Wait()
		w.driver.pools, w.queue.now = map[string]int{}, nil
		w.driver.events <- driver.Event{Began: true}
		synctest.Wait()
		if n := w.driver.pool("default.shell"); n != 2 {
			t.Errorf("a pool of %d", n)
		}
		if len(w.queue.now) != 1 || w.queue.now[0] != key {
			t.Errorf("enqueued %v", w.queue.now)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// cluster is a driver whose starts go on, and that knows what they wait for.
type cluster struct {
	driver.Driver
	why *driver.StartError
}

func (c cluster) Explain(context.Context, driver.Ref) *driver.StartError { return c.why }

// A start that isn't waited for to its end fails at its deadline, with what it waited for.
func TestDueSaysWhatWasWaitedFor(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		why   *driver.StartError
		cause string
	}{
		{nil, "claim-timeout"},
		{&driver.StartError{Cause: driver.CauseSlow, Detail: "its Pod is Pending"}, "claim-timeout"},
		{&driver.StartError{Cause: driver.CauseUnschedulable, Detail: "no node has room"}, "unschedulable"},
	} {
		t.Run(tc.cause, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.app.UseDriver(cluster{w.driver, tc.why})
			w.append(session.ClaimRequested{Generation: 1, Deadline: w.now.Add(time.Minute)})
			w.now = w.now.Add(time.Minute)
			if err := w.app.Due(t.Context(), key.Tenant, key.Session, session.Deadline{Kind: session.DeadlineClaim}); err != nil {
				t.Fatal(err)
			}
			if st := w.state().Workload; st.Status != session.WorkloadFailed || st.Cause != tc.cause {
				t.Errorf("%s %q, want %q", st.Status, st.Cause, tc.cause)
			}
		})
	}
}

// sharing is a driver of a replica that takes care of nothing but keys.
type sharing struct {
	driver.Driver
	keys []string
}

func (s sharing) Mine(key string) bool { return slices.Contains(s.keys, key) }

// What exists is compared with the log by the replica whose it is, and so are pools kept.
func TestOthersTakeCare(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		keys          []string
		swept, filled bool
	}{
		"of all":       {},
		"of a pool":    {keys: []string{given.Session}, swept: true},
		"of a session": {keys: []string{given.Tenant + ".shell"}, filled: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.settle()
				w.queue.now, w.driver.calls = nil, nil
				w.app.UseDriver(sharing{w.driver, tc.keys})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- w.app.Watch(ctx, runtimes{}) }()
				<-time.After(2 * app.SweepEvery) // of the test's own time
				synctest.Wait()
				if swept := len(w.queue.now) > 0; swept != tc.swept {
					t.Errorf("enqueued %v", w.queue.now)
				}
				if filled := slices.Contains(w.driver.calls, "EnsurePool"); filled != tc.filled {
					t.Errorf("called %v", w.driver.calls)
				}
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A sandbox that has to leave its place is no loss; it is said once of each.
func TestDraining(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.settle()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.app.Watch(ctx, runtimes{}) }()
		synctest.Wait()
		pod := w.state().Workload.PodUID
		leave := driver.Event{Ref: driver.Ref{Tenant: key.Tenant, Session: key.Session, Generation: 1}, PodUID: pod, Cause: driver.CauseCordoned, Draining: true}
		for _, other := range []string{pod, pod, "another"} {
			leave.PodUID = other
			w.driver.events <- leave
			synctest.Wait()
		}
		if s := w.state(); s.Workload.Status != session.WorkloadReady || s.Workload.DrainingAt.IsZero() {
			t.Errorf("the sandbox is %s, draining since %v", s.Workload.Status, s.Workload.DrainingAt)
		}
		for _, other := range []string{"another", pod, pod} {
			w.driver.events <- driver.Event{Ref: leave.Ref, PodUID: other, Stays: true}
			synctest.Wait()
		}
		if s := w.state(); s.Workload.Status != session.WorkloadReady || !s.Workload.DrainingAt.IsZero() {
			t.Errorf("the sandbox that may stay is %s, draining since %v", s.Workload.Status, s.Workload.DrainingAt)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Where the host doesn't answer nothing is decided and nothing fails, whatever the
// session wants of it; once it answers everything goes its way.
func TestHostIsAway(t *testing.T) {
	t.Parallel()
	for method, given := range map[string]func(w *world){
		"Claim":   func(*world) {},
		"Bind":    func(*world) {},
		"Resume":  resume,
		"Suspend": suspend,
		"Locate":  (*world).settle,
		"Release": func(w *world) { w.settle(); w.append(session.Terminated{}) },
	} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			given(w)
			w.driver.fail(method, 12, driver.ErrUnreachable) // more often than parks a session
			phase := w.state().Phase()
			for range 12 {
				w.queue.later = nil
				if err := w.app.Settle(context.Background(), key); err != nil {
					t.Fatalf("a failure: %v", err)
				}
				if len(w.queue.later) != 1 {
					t.Fatalf("looked at again: %v", w.queue.later)
				}
				w.now = w.now.Add(w.queue.later[0])
				if got := w.state().Phase(); got != phase && method != "Claim" && method != "Bind" {
					t.Fatalf("it became %s", got)
				}
			}
			w.settle()
			if s := w.state().Workload.Status; s == session.WorkloadLost || s == session.WorkloadFailed {
				t.Errorf("it is %s", s)
			}
		})
	}
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

// By way of a host's relay the address comes with a token for that sandbox alone.
func TestLocateBehindARelay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.driver.relayed = true
	w.settle()
	reply, err := w.do(verbs.Locate, `{"generation":1}`)
	if err != nil {
		t.Fatal(err)
	}
	var found verbs.LocateResult
	if err := json.Unmarshal(reply.Result, &found); err != nil {
		t.Fatal(err)
	}
	public, _ := signer.Public().(ed25519.PublicKey)
	v, err := sandboxtoken.NewAccessVerifier(public, func() time.Time { return w.now })
	if err != nil {
		t.Fatal(err)
	}
	want := sandboxtoken.Claims{Tenant: given.Tenant, Session: given.Session, Generation: 1, PodUID: "pod-1"}
	if claims, err := v.Verify(found.Access); err != nil || claims != want {
		t.Errorf("access for %+v, %v", claims, err)
	}
	if !found.AccessUntil.After(w.now) {
		t.Errorf("good until %s", found.AccessUntil)
	}
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

// moving is a driver whose sandboxes have to leave their place, from the first on and for
// as long as there is a reason.
type moving struct {
	driver.Driver
	why string
}

func (m *moving) Leaving(driver.Ref) string { return m.why }

// A sandbox that had to leave its place before it was ready is to be put away as any other.
func TestReadyWhereItCannotStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.app.UseDriver(&moving{w.driver, driver.CauseCordoned})
	w.settle()
	s := w.state()
	if s.Workload.Status != session.WorkloadReady || s.Workload.DrainingAt.IsZero() {
		t.Errorf("the sandbox is %s, draining since %v", s.Workload.Status, s.Workload.DrainingAt)
	}
	w.settle() // says it once
	if again := w.state(); again.N != s.N {
		t.Errorf("the log goes on from %d to %d", s.N, again.N)
	}
}

// unsaid stands for a place of which the driver can't say anything now.
const unsaid = "unsaid"

// What is in use where it can't stay has its grace, and then it is lost for that reason;
// where it may stay by then, it does.
func TestOverstayed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		later time.Duration
		why   string
		want  session.WorkloadStatus
	}{
		"in time":       {given.Terms.DrainGrace.D() - 1, driver.CauseCordoned, session.WorkloadReady},
		"over":          {given.Terms.DrainGrace.D(), driver.CauseCordoned, session.WorkloadLost},
		"over, evicted": {given.Terms.DrainGrace.D(), driver.CauseEvicted, session.WorkloadLost},
		"it may stay":   {given.Terms.DrainGrace.D(), "", session.WorkloadReady},
		"nobody knows":  {given.Terms.DrainGrace.D(), unsaid, session.WorkloadReady},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			d := &moving{w.driver, driver.CauseCordoned}
			w.app.UseDriver(d)
			w.settle()
			w.append(session.MessageReceived{MessageID: "m-1", RunID: "r-1", Requester: "alice"})
			w.append(session.RunStarted{RunID: "r-1", Generation: 1, PodUID: w.state().Workload.PodUID, Requester: "alice"})
			d.why = tc.why
			w.now = w.now.Add(tc.later)
			if tc.why == unsaid {
				w.driver.fail("Locate", 1, driver.ErrUnreachable)
			}
			err := w.app.Due(t.Context(), key.Tenant, key.Session, session.Deadline{Kind: session.DeadlineDrain})
			if unsure := errors.Is(err, driver.ErrUnreachable); unsure != (tc.why == unsaid) || err != nil && !unsure {
				t.Fatal(err)
			}
			s := w.state().Workload
			if s.Status != tc.want || s.Status == session.WorkloadLost && s.Cause != tc.why || s.DrainingAt.IsZero() != (tc.why == "" || tc.want == session.WorkloadLost) {
				t.Errorf("it is %s %q, draining since %v", s.Status, s.Cause, s.DrainingAt)
			}
		})
	}
}
