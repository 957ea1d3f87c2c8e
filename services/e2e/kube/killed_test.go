package kube_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// TestKilledBetweenCallAndAppend kills the workload service, as kill -9 does, after the API
// server did what it was asked and before the log has it. Another process takes it up: the
// create, which is sent twice besides, is one session and one claim, and the end leaves
// nothing.
func TestKilledBetweenCallAndAppend(t *testing.T) {
	t.Parallel()
	reached := filepath.Join(t.TempDir(), "reached")
	in, first := startToKill(t, 1, "HOLDFAST_FAILPOINT=workload-claimed", "HOLDFAST_FAILPOINT_FILE="+reached)
	in.shell("once", 0)
	key := "once"
	create := func() string {
		r, err := in.Client("alice").CreateSessionWithResponse(in.Context(), &api.CreateSessionParams{IdempotencyKey: &key}, api.CreateSession{Runtime: "once"})
		in.must(err)
		if r.JSON201 != nil {
			return r.JSON201.ID
		}
		return r.JSON200.ID
	}
	id := create()
	in.diedAt(first[0], reached)
	if again := create(); again != id {
		t.Errorf("created twice: %s, %s", id, again)
	}
	facts := in.Facts(id)
	if len(harness.Of[session.ClaimRequested](facts)) != 1 || len(harness.Of[session.Claimed](facts)) != 0 {
		t.Errorf("the log has more than that a claim was requested")
	}
	made := in.claims()
	if len(made) != 1 {
		t.Fatalf("%d claims", len(made))
	}

	second := in.spawn("HOLDFAST_FAILPOINT=workload-removed", "HOLDFAST_FAILPOINT_FILE="+reached)
	in.AwaitPhase(id, api.SessionPhaseReady)
	if got := in.claims(); len(got) != 1 || got[0].UID != made[0].UID {
		t.Errorf("%d claims, and the first one isn't the one that was made", len(got))
	}
	if _, err := in.Client("alice").TerminateSessionWithResponse(in.Context(), id, nil, api.TerminateSession{}); err != nil {
		t.Fatal(err)
	}
	in.diedAt(second, reached)
	if phase := in.Session(id).Phase; phase != api.SessionPhaseEnding {
		t.Errorf("with nobody to say that it is removed, it is %s", phase)
	}
	in.spawn()
	in.AwaitPhase(id, api.SessionPhaseEnded)
	in.remove("once")
	in.nothingLeft()
}

// TestSweepsAreTakenOver: of three replicas one is killed. What was its to sweep another one
// does, soon, so that of all that is there again of ended sessions nothing is left; what
// isn't of an ended session stays.
func TestSweepsAreTakenOver(t *testing.T) {
	t.Parallel()
	in, replicas := startToKill(t, 3)
	in.shell("swept", 0)
	lives := in.CreateOf("alice", api.CreateSession{Runtime: "swept"})
	var ended []claim
	for range 12 { // of which each has a share, or one has none once in a hundred runs
		s := in.CreateOf("alice", api.CreateSession{Runtime: "swept"})
		ended = append(ended, in.claimNamed(claimName(s.ID, 1)))
		in.end(s.ID)
	}
	harness.Eventually(t, "each has its lease", func() bool { return len(in.leases()) == 3 })
	replicas[0].Kill()
	for _, c := range ended {
		in.copy(c, c.Annotations[noteSession], fieldManager, nil)
	}
	harness.Eventually(t, "what is of ended sessions is gone", func() bool { return len(in.claims()) == 1 })
	if s := in.Session(lives.ID); s.Phase != api.SessionPhaseReady || s.Generation != 1 {
		t.Errorf("the one that lives is %s in generation %d", s.Phase, s.Generation)
	}
	in.end(lives.ID)
	in.remove("swept")
	in.nothingLeft()
}

// leases are those of the replicas.
func (in *installation) leases() []coordinationv1.Lease {
	in.t.Helper()
	list, err := in.kube.CoordinationV1().Leases(in.own).List(harness.Context(in.t), metav1.ListOptions{})
	in.must(err)
	return list.Items
}

// diedAt waits until a process has died at its failpoint.
func (in *installation) diedAt(c *harness.Child, reached string) {
	in.t.Helper()
	select {
	case <-c.Done():
	case <-time.After(harness.Patience):
		in.t.Fatalf("it didn't die: %s", c.Said())
	}
	if _, err := os.Stat(reached); err != nil {
		in.t.Fatalf("it died elsewhere (%v): %s", err, c.Said())
	}
	in.must(os.Remove(reached))
}

// TestKilledBeforeTheClaimBinds: the service dies while the node still does nothing for its
// claims. The next process finishes what is in time and removes what isn't.
func TestKilledBeforeTheClaimBinds(t *testing.T) {
	t.Parallel()
	in, first := startToKill(t, 1)
	node := in.cluster.Node(t)
	in.shell("patient", 0, onNode(node))
	in.shell("hasty", 0, onNode(node), func(r *api.RuntimeSpec) { r.Timeouts.Claim = "2s" })
	resume := in.cluster.PauseKubelet(t, node)
	var ids []string
	for _, runtime := range []string{"patient", "hasty"} {
		r, err := in.Client("alice").CreateSessionWithResponse(in.Context(), nil, api.CreateSession{Runtime: runtime})
		in.must(err)
		ids = append(ids, r.JSON201.ID)
	}
	harness.Eventually(t, "both have a claim", func() bool { return len(in.claims()) == 2 })
	first[0].Kill()

	in.spawn()
	in.AwaitFact(ids[1], "the one that can't wait has failed", func(f []harness.Fact) bool { return len(harness.Of[session.Failed](f)) == 1 })
	harness.Eventually(t, "its claim is ending", func() bool {
		return slices.ContainsFunc(in.claims(), func(c claim) bool { return c.Name == claimName(ids[1], 1) && c.DeletionTimestamp != nil })
	})
	resume()
	in.AwaitPhase(ids[1], api.SessionPhaseEnded)
	in.AwaitPhase(ids[0], api.SessionPhaseReady)
	in.end(ids[0])
	in.remove("patient")
	in.remove("hasty")
	in.nothingLeft()
}

// TestThreeReplicas kills one of three workload services after the other, while sessions
// are made, told something, put away, taken back and ended. Whoever acts, each generation
// of a session has one claim, ever.
func TestThreeReplicas(t *testing.T) {
	t.Parallel()
	in, replicas := startToKill(t, 3)
	in.shell("walked", 1, allowing)
	seen := in.watchClaims()
	ctx, cancel := context.WithTimeout(t.Context(), 3*harness.Patience)
	defer cancel()
	const each, places = 3, 3
	var wg sync.WaitGroup
	var done atomic.Int64
	for place := range places {
		wg.Go(func() {
			for i := range each {
				if err := in.walk(ctx, fmt.Sprintf("walk-%d-%d", place, i)); err != nil {
					t.Errorf("walk %d of place %d: %v", i, place, err)
				}
				done.Add(1)
			}
		})
	}
	for i := range replicas {
		harness.Eventually(t, "walks go on", func() bool { return done.Load() >= int64(2*i+1) })
		replicas[i].Kill()
		replicas[i] = in.spawn()
	}
	wg.Wait()
	for name, uids := range seen() {
		if len(uids) != 1 {
			t.Errorf("claim %s was made %d times", name, len(uids))
		}
	}
	in.remove("walked")
	in.nothingLeft()
}

// watchClaims notes every claim that is made; what it returns gives their UIDs by name.
func (in *installation) watchClaims() (seen func() map[string][]string) {
	in.t.Helper()
	w, err := in.ext.ExtensionsV1beta1().SandboxClaims(in.ns).Watch(in.t.Context(), metav1.ListOptions{})
	in.must(err)
	made := map[string][]string{}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for e := range w.ResultChan() {
			if c, ok := e.Object.(*claim); ok && e.Type == watch.Added {
				made[c.Name] = append(made[c.Name], string(c.UID))
			}
		}
	}()
	return func() map[string][]string {
		w.Stop()
		<-ended
		if len(made) == 0 {
			in.t.Error("no claim was seen")
		}
		return made
	}
}

// walk is a session's whole life, by somebody who repeats what isn't answered.
func (in *installation) walk(ctx context.Context, key string) error {
	alice := in.Client("alice")
	var id, run string
	over := func(*api.Session) bool { // in the view, which may be behind
		r, err := alice.ListRunsWithResponse(ctx, id, nil)
		return err == nil && slices.ContainsFunc(r.JSON200.Items, func(r api.Run) bool { return r.ID == run && r.State == api.RunStateFinished })
	}
	for _, step := range []struct {
		name string
		do   func(context.Context) error
		then func(*api.Session) bool
	}{
		{"create", func(ctx context.Context) error {
			r, err := alice.CreateSessionWithResponse(ctx, &api.CreateSessionParams{IdempotencyKey: &key}, api.CreateSession{Runtime: "walked"})
			if err == nil && r.JSON201 != nil {
				id = r.JSON201.ID
			} else if err == nil {
				id = r.JSON200.ID
			}
			return err
		}, inPhase(api.SessionPhaseReady)},
		{"tell", func(ctx context.Context) error {
			r, err := alice.SendMessageWithResponse(ctx, id, &api.SendMessageParams{IdempotencyKey: &key}, api.SendMessage{Content: "echo once >> marks"})
			if err == nil {
				run = r.JSON202.RunID
			}
			return err
		}, over},
		{"suspend", func(ctx context.Context) error {
			_, err := alice.SuspendSessionWithResponse(ctx, id, nil)
			return err
		}, inPhase(api.SessionPhaseSuspended)},
		{"resume", func(ctx context.Context) error {
			_, err := alice.ResumeSessionWithResponse(ctx, id, nil)
			return err
		}, inPhase(api.SessionPhaseReady)},
		{"terminate", func(ctx context.Context) error {
			_, err := alice.TerminateSessionWithResponse(ctx, id, nil, api.TerminateSession{})
			return err
		}, inPhase(api.SessionPhaseEnded)},
	} {
		if err := again(ctx, step.do); err != nil {
			return fmt.Errorf("%s %s: %w", step.name, id, err)
		}
		last := "nothing"
		err := again(ctx, func(ctx context.Context) error {
			r, err := alice.GetSessionWithResponse(ctx, id, nil)
			if err != nil {
				return err
			}
			if last = string(r.JSON200.Phase); !step.then(r.JSON200) {
				return errNotYet
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("after %s %s is %s: %w", step.name, id, last, err)
		}
	}
	return nil
}

func inPhase(p api.SessionPhase) func(*api.Session) bool {
	return func(s *api.Session) bool { return s.Phase == p }
}

var errNotYet = errors.New("not yet")

// again does something until it is done: what fails because a process died is repeated,
// and what is refused because the session is still in use, too.
func again(ctx context.Context, do func(context.Context) error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := do(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-tick.C:
		}
	}
}
