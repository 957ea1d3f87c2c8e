package drivertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// Run runs the suite; open gives each test a driver of its own, which it closes.
func Run(t *testing.T, open func(t *testing.T) Subject) {
	t.Helper()
	tests := []struct {
		name string
		test func(*testing.T, suite)
	}{
		{"ClaimIsIdempotent", testClaim},
		{"ClaimsAtOnceAreOne", testConcurrentClaims},
		{"BindIsExclusive", testBind},
		{"SuspendKeepsTheVolume", testSuspend},
		{"WithoutVolumeAWorkspaceIsNew", testNoVolume},
		{"ReleaseRemovesEverything", testRelease},
		{"NextGenerationTakesTheVolume", testNextGeneration},
		{"OlderIntentsAreRefused", testOlderIntents},
		{"WarmSandboxesAreAdoptedOnce", testWarm},
		{"WarmVolumeIsTheSessions", testWarmVolume},
		{"OldRevisionsLeaveThePool", testPoolRevision},
		{"FailedEntrypointIsToldApart", testEntrypoint},
		{"NonsenseIsRefused", testInvalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := open(t)
			// Sessions of the suite have a volume: equal names and revisions have equal contents.
			s.Runtime.HasVolume = true
			tt.test(t, suite{s.Driver, s.Runtime, s.Isolation})
		})
	}
}

type suite struct {
	driver    driver.Driver
	runtime   driver.RuntimeSpec
	isolation string
}

// claim is a claim of a session by name, with a volume.
func (s suite) claim(session string, generation, intent uint64) driver.Claim {
	return driver.Claim{Ref: driver.Ref{Tenant: "default", Session: session, Generation: generation}, Intent: intent, Epoch: "e-1", Runtime: s.runtime}
}

// only returns the one sandbox of a list.
func (s suite) only(t *testing.T) driver.Found {
	t.Helper()
	found, err := s.driver.List(t.Context())
	if err != nil || len(found) != 1 {
		t.Fatalf("list = %+v, %v, want one sandbox", found, err)
	}
	return found[0]
}

func (s suite) shell(t *testing.T, ref driver.Ref, script, want string) {
	t.Helper()
	if got, code := Shell(t, s.driver, ref, script); got != want || code != 0 {
		t.Errorf("%q says %q (exit %d), want %q", script, got, code, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func testClaim(t *testing.T, s suite) {
	t.Helper()
	c := s.claim("s-1", 1, 5)
	first := Start(t, s.driver, c)
	if first.Path != driver.PathCold || first.Isolation != s.isolation || len(first.Layers) == 0 {
		t.Errorf("claim = %+v", first)
	}
	again, err := s.driver.Claim(t.Context(), c)
	must(t, err)
	if again.PodUID != first.PodUID || again.SandboxUID != first.SandboxUID {
		t.Errorf("claimed again = %+v, want %+v", again, first)
	}
	ep, err := s.driver.Locate(t.Context(), c.Ref)
	must(t, err)
	if ep.PodUID != first.PodUID {
		t.Errorf("located pod %s, want %s", ep.PodUID, first.PodUID)
	}
	want := driver.Found{Ref: c.Ref, SandboxUID: first.SandboxUID, PodUID: first.PodUID, Intent: 5, Epoch: "e-1", State: driver.StateRunning}
	got := s.only(t)
	if ago := time.Since(got.Since); ago < -time.Minute || ago > time.Hour {
		t.Errorf("the session has it since %s", got.Since)
	}
	if got.Since = want.Since; got != want {
		t.Errorf("found %+v, want %+v", got, want)
	}
	c.Intent = 7
	later, err := s.driver.Claim(t.Context(), c)
	must(t, err)
	if got := s.only(t); got.Intent != 7 || later.PodUID != first.PodUID {
		t.Errorf("under a newer intent: %+v, %+v", got, later)
	}
}

func testConcurrentClaims(t *testing.T, s suite) {
	t.Helper()
	c := s.claim("s-1", 1, 5)
	pods := make(chan string, 8)
	var wg sync.WaitGroup
	for range cap(pods) {
		wg.Go(func() {
			sb, err := s.driver.Claim(t.Context(), c)
			if err != nil {
				t.Error(err)
			}
			pods <- sb.PodUID
		})
	}
	wg.Wait()
	close(pods)
	distinct := map[string]bool{}
	for p := range pods {
		distinct[p] = true
	}
	if len(distinct) != 1 {
		t.Errorf("pods = %v, want one", distinct)
	}
}

func testBind(t *testing.T, s suite) {
	t.Helper()
	c := s.claim("s-1", 1, 5)
	Start(t, s.driver, c)
	health, err := s.driver.Bind(t.Context(), c.Ref, BindOf(c.Ref))
	must(t, err)
	if !health.Bound || health.Session != "s-1" || health.Generation != 1 {
		t.Errorf("bound again: %+v", health)
	}
	_, err = s.driver.Bind(t.Context(), c.Ref, "default/s-2/1")
	wantErr(t, "another session's bind", err, driver.ErrBindRefused)
}

func testSuspend(t *testing.T, s suite) {
	t.Helper()
	c := s.claim("s-1", 1, 5)
	first := Start(t, s.driver, c)
	s.shell(t, c.Ref, "echo kept > file; cat file", "kept")
	must(t, s.driver.Suspend(t.Context(), c.Ref, 6))
	must(t, s.driver.Suspend(t.Context(), c.Ref, 6))
	if got := s.only(t); got.State != driver.StateSuspended || got.PodUID != first.PodUID {
		t.Errorf("found %+v, want it suspended", got)
	}
	_, err := s.driver.Locate(t.Context(), c.Ref)
	wantErr(t, "locate a suspended sandbox", err, driver.ErrNotRunning)

	c.Intent = 7
	second := Restart(t, s.driver, c)
	if second.PodUID == first.PodUID || second.SandboxUID != first.SandboxUID {
		t.Errorf("resumed = %+v, want another pod of sandbox %s", second, first.SandboxUID)
	}
	s.shell(t, c.Ref, "cat file", "kept")
	again, err := s.driver.Resume(t.Context(), c)
	must(t, err)
	if again.PodUID != second.PodUID {
		t.Errorf("resumed again = %s, want %s", again.PodUID, second.PodUID)
	}
	_, err = s.driver.Resume(t.Context(), s.claim("s-2", 1, 1))
	wantErr(t, "resume what never was", err, driver.ErrNotFound)
	wantErr(t, "suspend what never was", s.driver.Suspend(t.Context(), driver.Ref{Tenant: "default", Session: "s-2", Generation: 1}, 1), driver.ErrNotFound)
}

func testNoVolume(t *testing.T, s suite) {
	t.Helper()
	c := s.claim("s-1", 1, 5)
	c.Runtime.Revision, c.Runtime.HasVolume = 11, false
	Start(t, s.driver, c)
	s.shell(t, c.Ref, "echo x > file; ls", "file")
	must(t, s.driver.Suspend(t.Context(), c.Ref, 6))
	c.Intent = 7
	Restart(t, s.driver, c)
	s.shell(t, c.Ref, "ls", "")
}

func testRelease(t *testing.T, s suite) {
	t.Helper()
	c := s.claim("s-1", 1, 5)
	Start(t, s.driver, c)
	// What an agent makes unreadable has to go as well.
	s.shell(t, c.Ref, "mkdir -p a/b && echo x > a/b/c && chmod 000 a/b a", "")
	must(t, s.driver.Release(t.Context(), c.Ref, 6, false))
	must(t, s.driver.Release(t.Context(), c.Ref, 6, false))
	if found, err := s.driver.List(t.Context()); err != nil || len(found) != 0 {
		t.Errorf("list = %+v, %v, want nothing", found, err)
	}
	_, err := s.driver.Locate(t.Context(), c.Ref)
	wantErr(t, "locate a released sandbox", err, driver.ErrNotFound)
	next := s.claim("s-1", 2, 8)
	Start(t, s.driver, next)
	s.shell(t, next.Ref, "ls", "")
}

func testNextGeneration(t *testing.T, s suite) {
	t.Helper()
	c := s.claim("s-1", 1, 5)
	Start(t, s.driver, c)
	s.shell(t, c.Ref, "echo kept > file", "")
	next := s.claim("s-1", 2, 8)
	_, err := s.driver.Claim(t.Context(), next)
	wantErr(t, "claim beside a running generation", err, driver.ErrBusy)
	must(t, s.driver.Release(t.Context(), c.Ref, 8, true))
	Start(t, s.driver, next)
	s.shell(t, next.Ref, "cat file", "kept")
	must(t, s.driver.Suspend(t.Context(), next.Ref, 9))
	third := s.claim("s-1", 3, 10)
	Start(t, s.driver, third)
	s.shell(t, third.Ref, "cat file", "kept")
	if got := s.only(t); got.Ref != third.Ref {
		t.Errorf("found %+v, want only generation 3", got)
	}
}

func testOlderIntents(t *testing.T, s suite) {
	t.Helper()
	c := s.claim("s-1", 1, 5)
	_, err := s.driver.Claim(t.Context(), c)
	must(t, err)
	old := s.claim("s-1", 1, 4)
	refused := func(when string) {
		t.Helper()
		_, err := s.driver.Claim(t.Context(), old)
		wantErr(t, "claim "+when, err, driver.ErrOlderIntent)
		_, err = s.driver.Resume(t.Context(), old)
		wantErr(t, "resume "+when, err, driver.ErrOlderIntent)
		wantErr(t, "suspend "+when, s.driver.Suspend(t.Context(), c.Ref, old.Intent), driver.ErrOlderIntent)
		wantErr(t, "release "+when, s.driver.Release(t.Context(), c.Ref, old.Intent, false), driver.ErrOlderIntent)
	}
	refused("of a claimed one")
	if got := s.only(t); got.State != driver.StateRunning {
		t.Errorf("after refusals: %+v", got)
	}
	must(t, s.driver.Suspend(t.Context(), c.Ref, 6))
	old.Intent = 5
	refused("of a suspended one")
	must(t, s.driver.Release(t.Context(), c.Ref, 9, false))
	old.Intent = 8
	refused("of a released one")
	older, ok := errors.AsType[*driver.OlderIntentError](s.driver.Release(t.Context(), c.Ref, 8, false))
	if !ok || older.Intent != 8 || older.Recorded != 9 {
		t.Errorf("error = %+v, want the numbers", older)
	}
}

// fillPool claims until the pool gives a warm sandbox, and releases the others.
func (s suite) fillPool(t *testing.T, prefix string) (driver.Claim, driver.Sandbox) {
	t.Helper()
	var c driver.Claim
	var sb driver.Sandbox
	i := 0
	Eventually(t, "a warm sandbox is there", func() bool {
		i++
		c = s.claim(fmt.Sprintf("%s-%d", prefix, i), 1, 5)
		var err error
		sb, err = s.driver.Claim(t.Context(), c)
		must(t, err)
		if sb.Path == driver.PathWarm {
			return true
		}
		must(t, s.driver.Release(t.Context(), c.Ref, 6, false))
		return false
	})
	return c, sb
}

func testWarm(t *testing.T, s suite) {
	t.Helper()
	must(t, s.driver.EnsurePool(t.Context(), s.runtime, 2))
	s.fillPool(t, "f")
	var mu sync.Mutex
	owners := map[string]string{}
	var wg sync.WaitGroup
	for i := range 6 {
		c := s.claim(fmt.Sprintf("s-%d", i), 1, 5)
		wg.Go(func() {
			sb, err := s.driver.Claim(t.Context(), c)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if other, taken := owners[sb.PodUID]; taken {
				t.Errorf("pod %s is both %s's and %s's", sb.PodUID, other, c.Session)
			}
			owners[sb.PodUID] = c.Session
		})
	}
	wg.Wait()
	for i := range 6 {
		ref := s.claim(fmt.Sprintf("s-%d", i), 1, 5).Ref
		if _, err := s.driver.Bind(t.Context(), ref, BindOf(ref)); err != nil {
			t.Error(err)
		}
	}
	must(t, s.driver.EnsurePool(t.Context(), s.runtime, 0))
}

func testWarmVolume(t *testing.T, s suite) {
	t.Helper()
	must(t, s.driver.EnsurePool(t.Context(), s.runtime, 1))
	c, warm := s.fillPool(t, "s")
	Start(t, s.driver, c)
	s.shell(t, c.Ref, "echo kept > file", "")
	must(t, s.driver.Suspend(t.Context(), c.Ref, 6))
	c.Intent = 7
	if sb := Restart(t, s.driver, c); sb.SandboxUID != warm.SandboxUID || sb.PodUID == warm.PodUID {
		t.Errorf("resumed %+v, want another pod of %s", sb, warm.SandboxUID)
	}
	s.shell(t, c.Ref, "cat file", "kept")
	must(t, s.driver.Release(t.Context(), c.Ref, 8, true))
	next := s.claim(c.Session, 2, 9)
	if sb := Start(t, s.driver, next); sb.Path != driver.PathCold {
		t.Errorf("a session with a volume got a %s sandbox", sb.Path)
	}
	s.shell(t, next.Ref, "cat file", "kept")
}

func testPoolRevision(t *testing.T, s suite) {
	t.Helper()
	must(t, s.driver.EnsurePool(t.Context(), s.runtime, 1))
	s.fillPool(t, "old")
	newer := s
	newer.runtime.Revision++
	must(t, s.driver.EnsurePool(t.Context(), newer.runtime, 1))
	newer.fillPool(t, "new")
	// One of the old revision may not come from the pool any more.
	c := s.claim("s-1", 1, 5)
	sb, err := s.driver.Claim(t.Context(), c)
	must(t, err)
	if sb.Path != driver.PathCold {
		t.Errorf("the old revision came %s", sb.Path)
	}
}

func testEntrypoint(t *testing.T, s suite) {
	t.Helper()
	c := s.claim("s-1", 1, 5)
	c.Runtime.Revision, c.Runtime.Argv = 12, []string{"/bin/sh", "-c", "exit 3"}
	_, err := s.driver.Claim(t.Context(), c)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	_, err = s.driver.Ready(ctx, c.Ref, sandboxapi.Health{})
	wantErr(t, "ready", err, driver.ErrEntrypoint)
}

func testInvalid(t *testing.T, s suite) {
	t.Helper()
	tests := map[string]func(*driver.Claim){
		"session with a path":         func(c *driver.Claim) { c.Session = "../x" },
		"tenant with a path":          func(c *driver.Claim) { c.Tenant = "a/b" },
		"no session":                  func(c *driver.Claim) { c.Session = "" },
		"long session":                func(c *driver.Claim) { c.Session = strings.Repeat("s", 64) },
		"workspace over the system":   func(c *driver.Claim) { c.Runtime.WorkspacePath = "/usr/share" },
		"workspace that is the root":  func(c *driver.Claim) { c.Runtime.WorkspacePath = "/" },
		"workspace that isn't clean":  func(c *driver.Claim) { c.Runtime.WorkspacePath = "/data/../etc" },
		"workspace that isn't rooted": func(c *driver.Claim) { c.Runtime.WorkspacePath = "work" },
		"negative limit":              func(c *driver.Claim) { c.Runtime.Limits.Pids = -1 },
	}
	for name, change := range tests {
		c := s.claim("s-1", 1, 5)
		change(&c)
		_, err := s.driver.Claim(t.Context(), c)
		wantErr(t, name, err, driver.ErrInvalid)
	}
	if found, err := s.driver.List(t.Context()); err != nil || len(found) != 0 {
		t.Errorf("list = %+v, %v, want nothing", found, err)
	}
	wantErr(t, "negative pool", s.driver.EnsurePool(t.Context(), s.runtime, -1), driver.ErrInvalid)
}
