package kube_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
	"github.com/holdfast-io/holdfast/services/internal/kubetest"
)

// TestManyAtOnce: more sessions at once than are warm, or than the node is fast.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	in := start(t)
	in.shell("three", 3)
	in.shell("none", 0)
	for name, tc := range map[string]struct {
		runtime string
		n       int
	}{
		"twenty on a pool of three": {"three", 20},
		"seven cold":                {"none", 7},
	} {
		t.Run(name, func(t *testing.T) {
			in := in.in(t)
			made := in.atOnce(tc.n, tc.runtime)
			if len(made) == 0 {
				t.Error("none was made")
			}
			pods := map[string]string{}
			for _, s := range made {
				if s.Phase != api.SessionPhaseReady {
					t.Errorf("%s is %s %s", s.ID, s.Phase, s.Cause)
					continue
				}
				pod := string(in.pod(s.ID).UID)
				if other := pods[pod]; other != "" {
					t.Errorf("%s and %s have the same Pod", s.ID, other)
				}
				pods[pod] = s.ID
			}
			in.must(in.matched())
			in.endAll(made)
		})
	}
	t.Run("late", func(t *testing.T) { late(in.in(t)) })
	in.remove("three")
	in.remove("none")
	in.nothingLeft()
}

// atOnce creates so many sessions at the same time, and gives those that were made: the
// others were told to come again.
func (in *installation) atOnce(n int, runtime string) []*api.Session {
	in.t.Helper()
	var wg sync.WaitGroup
	var refused atomic.Int64
	made := make(chan *api.Session, n)
	alice := in.Client("alice")
	ctx := harness.Context(in.t)
	for range n {
		wg.Go(func() {
			prefer := "wait=60"
			r, err := alice.CreateSessionWithResponse(ctx, &api.CreateSessionParams{Prefer: &prefer}, api.CreateSession{Runtime: runtime})
			if p, ok := errors.AsType[*api.Error](err); ok && p.Problem.Status == 429 && p.Problem.Code != "" {
				refused.Add(1)
			} else if err != nil {
				in.t.Errorf("create: %v", err)
			} else {
				made <- r.JSON201
			}
		})
	}
	wg.Wait()
	close(made)
	var all []*api.Session
	for s := range made {
		all = append(all, s)
	}
	in.t.Logf("%d made, %d refused", len(all), refused.Load())
	return all
}

// endAll ends sessions at the same time.
func (in *installation) endAll(sessions []*api.Session) {
	in.t.Helper()
	for _, s := range sessions {
		if _, err := in.Client("alice").TerminateSessionWithResponse(in.Context(), s.ID, nil, api.TerminateSession{}); err != nil {
			in.t.Errorf("terminate: %v", err)
		}
	}
	for _, s := range sessions {
		in.AwaitPhase(s.ID, api.SessionPhaseEnded)
	}
}

// late: a node that does nothing until after the deadlines; what it starts then is
// nobody's, and doesn't stay.
func late(in *installation) {
	node := in.cluster.Node(in.t)
	in.shell("late", 0, onNode(node), func(r *api.RuntimeSpec) { r.Timeouts.Claim = "2s" })
	resume := in.cluster.PauseKubelet(in.t, node)
	made := in.atOnce(3, "late")
	for _, s := range made {
		facts := in.AwaitFact(s.ID, "it has failed", func(f []harness.Fact) bool { return len(harness.Of[session.Failed](f)) > 0 })
		if f := harness.Of[session.Failed](facts)[0]; f.Cause != "claim-timeout" {
			in.t.Errorf("%s failed: %+v", s.ID, f)
		}
	}
	// A claim is gone once its Pod is, and only then the session has ended.
	harness.Eventually(in.t, "the claims are ending", func() bool {
		return !slices.ContainsFunc(in.claims(), func(c claim) bool { return c.DeletionTimestamp == nil })
	})
	resume()
	for _, s := range made {
		if over := in.AwaitPhase(s.ID, api.SessionPhaseEnded); over.Outcome != api.SessionOutcomeFailed || !strings.Contains(over.Cause, "claim-timeout") {
			in.t.Errorf("%s ended as %s for %q", s.ID, over.Outcome, over.Cause)
		}
	}
	in.remove("late")
}

// onNode has a runtime's Pods run on a node of the test's own.
func onNode(node string) func(*api.RuntimeSpec) {
	return func(r *api.RuntimeSpec) {
		r.Sandbox = api.Sandbox{PodTemplate: fmt.Appendf(nil, `{"spec": {
			"nodeSelector": {%q: %q}, "tolerations": [{"key": %q, "value": %q, "effect": "NoSchedule"}],
			"containers": [{"name": "agent", "image": %q, "workingDir": "/workspace", "command": ["sandboxd", "shell-agent"]}]
		}}`, kubetest.OwnNode, node, kubetest.OwnNode, node, shellImage)}
	}
}

// idleSessions are those that wait long.
const idleSessions = 150

// TestManyIdle: that many sessions wait long keeps none that waits short from ending on
// time.
func TestManyIdle(t *testing.T) {
	t.Parallel()
	in := start(t)
	in.shell("long", 0, func(r *api.RuntimeSpec) { r.Timeouts.Idle = "8h" })
	in.shell("short", 0, func(r *api.RuntimeSpec) { r.Timeouts.Idle, r.OnIdle = "1s", api.OnIdleEnd })
	alice := in.Client("alice")
	ctx, cancel := context.WithTimeout(t.Context(), 6*harness.Patience) // a busy machine takes a second for each
	defer cancel()
	var wg sync.WaitGroup
	slots := make(chan struct{}, 6)
	for range idleSessions {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			prefer := "wait=60"
			r, err := alice.CreateSessionWithResponse(ctx, &api.CreateSessionParams{Prefer: &prefer}, api.CreateSession{Runtime: "long"})
			if err == nil && r.JSON201.Phase == api.SessionPhaseReady {
				_, err = alice.SuspendSessionWithResponse(ctx, r.JSON201.ID, nil) // its Pod isn't what is tested
			}
			if err != nil {
				t.Errorf("a session that waits: %v", err)
			}
		})
	}
	wg.Wait()
	s := in.CreateOf("alice", api.CreateSession{Runtime: "short"})
	due := s.Deadlines.Idle
	over := in.AwaitPhase(s.ID, api.SessionPhaseEnded)
	if over.Outcome != api.SessionOutcomeCompleted {
		t.Errorf("it ended as %s for %q", over.Outcome, over.Cause)
	}
	facts := in.Facts(s.ID)
	asked := facts[len(facts)-1].Message.Envelope.Time
	for _, f := range facts {
		if f.Type == "session.end-requested" {
			asked = f.Message.Envelope.Time
		}
	}
	if late := asked.Sub(due); late < 0 || late > 5*time.Second {
		t.Errorf("it ended %s after its deadline", late)
	} else {
		t.Logf("it ended %s after its deadline", late)
	}
}
