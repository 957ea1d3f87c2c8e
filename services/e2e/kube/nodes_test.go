package kube_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// evict asks for a Pod's eviction, of that one and none that comes after it.
func (in *installation) evict(ctx context.Context, pod *corev1.Pod) error {
	return in.kube.PolicyV1().Evictions(in.ns).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: in.ns, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))},
	})
}

// drain cordons a node and asks for the eviction of Pods on it again and again, as kubectl
// does, until the test ends or none is left; refused counts the answers of 429.
func (in *installation) drain(node string, pods ...*corev1.Pod) (refused *atomic.Int64, done <-chan struct{}) {
	in.t.Helper()
	in.cluster.Cordon(in.t, node, true)
	refused, over := &atomic.Int64{}, make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	in.t.Cleanup(func() {
		cancel()
		<-over
	})
	go func() {
		defer close(over)
		again := time.NewTicker(100 * time.Millisecond)
		defer again.Stop()
		for len(pods) > 0 {
			err := in.evict(ctx, pods[0])
			switch {
			case apierrors.IsTooManyRequests(err):
				refused.Add(1)
			case apierrors.IsNotFound(err), apierrors.IsConflict(err):
				pods = pods[1:]
				continue
			case err != nil && ctx.Err() == nil:
				in.t.Errorf("eviction: %v", err)
				return
			}
			select {
			case <-again.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return refused, over
}

// when is the time of the first fact of a kind.
func when[P session.Payload](facts []harness.Fact) time.Time {
	for _, f := range facts {
		if _, ok := f.Payload.(P); ok {
			return f.Message.Envelope.Time
		}
	}
	return time.Time{}
}

// working starts a session whose run goes on until the file that it gives is there.
func (in *installation) working(runtime string) (s *api.Session, run, door string) {
	in.t.Helper()
	// Processes of Pods share this machine's files.
	door = filepath.Join(in.t.TempDir(), "open")
	s = in.CreateOf("alice", api.CreateSession{
		Runtime: runtime, Message: "echo kept > note\nwhile [ ! -e " + door + " ]; do sleep 0.05; done",
	})
	run = harness.Of[session.RunStarted](in.AwaitFact(s.ID, "the command runs", func(f []harness.Fact) bool {
		return len(harness.Of[session.CallStarted](f)) == 2
	}))[0].RunID
	return s, run, door
}

// leaves waits until a session is told to leave its node.
func (in *installation) leaves(id string) []harness.Fact {
	in.t.Helper()
	facts := in.AwaitFact(id, "it is told to leave", func(f []harness.Fact) bool { return len(harness.Of[session.Draining](f)) == 1 })
	if d := harness.Of[session.Draining](facts)[0]; d.Cause != "node-cordoned" {
		in.t.Errorf("%s: %+v", id, d)
	}
	return facts
}

// TestNodeIsDrained: a node is drained under a session that does nothing, one that works,
// and a Pod that is warm. The first is put away at once; the second goes on to the end of
// what it does, whatever the drain asks for, and is put away then; the third just goes.
func TestNodeIsDrained(t *testing.T) {
	t.Parallel()
	in := start(t)
	node := in.cluster.Node(t)
	in.shell("drained", 1, onNode(node), allowing, func(r *api.RuntimeSpec) { r.Timeouts.DrainGrace = "60s" })
	idle := in.CreateOf("alice", api.CreateSession{Runtime: "drained"})
	in.tell(idle.ID, "echo kept > note")
	busy, run, door := in.working("drained")
	in.poolHas("drained", 1)
	pod, spare := in.pod(busy.ID), in.spare("drained")

	refused, drained := in.drain(node, spare, in.pod(idle.ID), pod)
	in.AwaitPhase(idle.ID, api.SessionPhaseSuspended)
	for _, id := range []string{idle.ID, busy.ID} {
		if facts := in.leaves(id); len(harness.Of[session.Lost](facts)) > 0 {
			t.Errorf("%s is lost", id)
		}
	}
	before := refused.Load()
	harness.Eventually(t, "the eviction of the one that works is refused, again and again", func() bool { return refused.Load() > before+3 })
	if s := in.Session(busy.ID); s.Phase != api.SessionPhaseReady || in.pod(busy.ID).UID != pod.UID {
		t.Errorf("the one that works is %s", s.Phase)
	}
	in.must(os.WriteFile(door, nil, 0o600))
	in.AwaitRun(busy.ID, run, api.RunStateFinished)
	in.AwaitPhase(busy.ID, api.SessionPhaseSuspended)
	<-drained

	in.cluster.Cordon(t, node, false)
	for _, id := range []string{idle.ID, busy.ID} {
		if said := in.tell(id, "cat note"); !strings.Contains(said, "kept") || in.Session(id).Generation != 1 {
			t.Errorf("after the drain: %q", said)
		}
		in.end(id)
	}
	in.remove("drained")
	in.nothingLeft()
}

// TestDrainGraceIsOver: what a session does on a node that is drained takes longer than
// its runtime's drainGrace. It is given up for that reason, with nobody evicted, and goes
// on with its files.
func TestDrainGraceIsOver(t *testing.T) {
	t.Parallel()
	in := start(t)
	node := in.cluster.Node(t)
	in.shell("slow", 0, onNode(node), allowing, func(r *api.RuntimeSpec) { r.Timeouts.DrainGrace = "2s" })
	s, run, _ := in.working("slow")
	pod := in.pod(s.ID)
	refused, drained := in.drain(node, pod)
	in.leaves(s.ID)
	if r := in.AwaitRun(s.ID, run, api.RunStateFailed); !strings.Contains(r.Cause, "workload-lost") {
		t.Errorf("the run failed for %q", r.Cause)
	}
	in.wasLost(s.ID, string(pod.UID), "node-cordoned")
	<-drained
	if refused.Load() == 0 {
		t.Error("no eviction was refused")
	}
	facts := in.Facts(s.ID)
	if took := when[session.Lost](facts).Sub(when[session.Draining](facts)); took < 2*time.Second {
		t.Errorf("it had %s", took)
	}
	in.cluster.Cordon(t, node, false)
	if said := in.tell(s.ID, "cat note"); !strings.Contains(said, "kept") || in.Session(s.ID).Generation != 2 {
		t.Errorf("after the drain: %q", said)
	}
	in.end(s.ID)
	in.remove("slow")
	in.nothingLeft()
}

// TestDrainIsCalledOff: a node takes Pods again before the grace of what runs there is
// over, and nothing of it is given up.
func TestDrainIsCalledOff(t *testing.T) {
	t.Parallel()
	in := start(t)
	node := in.cluster.Node(t)
	in.shell("called-off", 0, onNode(node), allowing, func(r *api.RuntimeSpec) { r.Timeouts.DrainGrace = "3s" })
	s, run, door := in.working("called-off")
	in.cluster.Cordon(t, node, true)
	in.leaves(s.ID)
	in.cluster.Cordon(t, node, false)
	in.AwaitFact(s.ID, "it may stay", func(f []harness.Fact) bool { return len(harness.Of[session.Stayed](f)) == 1 })
	in.must(os.WriteFile(door, nil, 0o600))
	in.AwaitRun(s.ID, run, api.RunStateFinished)
	if s := in.Session(s.ID); s.Phase != api.SessionPhaseReady || s.Generation != 1 {
		t.Errorf("it is %s", s.Phase)
	}
	in.end(s.ID)
	in.remove("called-off")
	in.nothingLeft()
}
