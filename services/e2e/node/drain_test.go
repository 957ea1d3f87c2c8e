//go:build node

package node_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
	"github.com/holdfast-io/holdfast/services/e2e/node/onenode"
)

// TestDrain drains the node under a session that does nothing, and under one in the
// middle of a call. The first is put away at once. The second comes to its end, whatever
// the drain asks for, and is put away then; both go on where the node takes Pods again.
func TestDrain(t *testing.T) {
	w := newWorld(t)
	w.runtime("drained", 0, keepingFor("60s"))
	idle := w.create("drained", "")
	w.answered(idle.ID, "echo still-here > /workspace/kept && sync")
	busy, run := w.working("drained")

	d := startDrain(t)
	w.until(idle.ID, "the idle one is put away", func(s *api.Session) bool { return s.Phase == api.SessionPhaseSuspended })
	harness.Eventually(t, "its Pod is gone", func() bool { return len(w.pods(idle.ID)) == 0 })
	before := d.refused.Load()
	harness.Eventually(t, "the eviction of the other one is refused, again and again", func() bool { return d.refused.Load() > before+3 })
	pods := w.pods(busy.ID)
	if s := w.session(busy.ID); s.Phase != api.SessionPhaseReady || len(pods) != 1 || pods[0].DeletionTimestamp != nil {
		t.Fatalf("the one that works is %s, with %d Pods", s.Phase, len(pods))
	}
	if _, err := cluster.Exec(harness.Context(t), &pods[0], "agent", "touch", "/workspace/open"); err != nil {
		t.Fatal(err)
	}
	if said := w.finished(busy.ID, run); !strings.Contains(said, "at-its-end") {
		t.Errorf("the call came to no end: %s", said)
	}
	began := time.Now()
	w.until(busy.ID, "it is put away, too", func(s *api.Session) bool { return s.Phase == api.SessionPhaseSuspended })
	d.over(t)
	fmt.Fprintf(os.Stdout, "drain: %d evictions were refused; the node is empty %d ms after the call's end\n", d.refused.Load(), time.Since(began).Milliseconds())

	cordon(t, false)
	for _, id := range []string{idle.ID, busy.ID} {
		said, _ := w.answered(id, "cat /workspace/kept")
		if s := w.session(id); !strings.Contains(said, "still-here") || s.Generation != 1 {
			t.Errorf("session %s has generation %d, and its file: %s", id, s.Generation, said)
		}
		w.end(id)
		nothingLeft(t, id)
	}
}

// TestDrainGraceIsOver: what a session does takes longer than its runtime lets a drain
// wait. Its sandbox is given up for that reason, and the node is empty; the session goes
// on with its file, in another one.
func TestDrainGraceIsOver(t *testing.T) {
	w := newWorld(t)
	w.runtime("hurried", 0, keepingFor("5s"))
	s, run := w.working("hurried")
	began := time.Now()
	d := startDrain(t)
	var failed session.RunFailed
	var lost session.Lost
	w.payload(s.ID, session.TypeRunFailed, 1, &failed)
	w.payload(s.ID, session.TypeLost, 1, &lost)
	if took := time.Since(began); failed.RunID != run || lost.Cause != "node-cordoned" || took < 5*time.Second {
		t.Errorf("after %s run %s failed, lost was %+v", took, failed.RunID, lost)
	}
	d.over(t)
	if d.refused.Load() == 0 {
		t.Error("no eviction was refused")
	}
	cordon(t, false)
	said, _ := w.answered(s.ID, "cat /workspace/kept")
	if s := w.session(s.ID); !strings.Contains(said, "still-here") || s.Generation != 2 {
		t.Errorf("it has generation %d, and its file: %s", s.Generation, said)
	}
	w.end(s.ID)
	nothingLeft(t, s.ID)
}

// keepingFor gives a runtime's sessions a volume each, and that long on a node that is
// drained.
func keepingFor(grace string) func(*api.RuntimeSpec) {
	return func(r *api.RuntimeSpec) {
		keeping(r)
		r.Timeouts.DrainGrace = grace
	}
}

// working gives a session in the middle of a call, which ends once its workspace has a
// file called open, and the call's run.
func (w world) working(runtime string) (s *api.Session, run string) {
	w.Helper()
	s = w.create(runtime, "echo still-here > /workspace/kept && sync\nwhile [ ! -e /workspace/open ]; do sleep 0.1; done; echo at-its-end")
	var started session.RunStarted
	w.payload(s.ID, session.TypeRunStarted, 1, &started)
	w.payload(s.ID, session.TypeCallStarted, 2, &session.CallStarted{})
	return s, started.RunID
}

// drain asks for the eviction of sandboxes' Pods until none is on the node any more, as
// `kubectl drain` does it.
type drain struct {
	refused atomic.Int64 // evictions that were answered with 429
	done    chan struct{}
}

// startDrain cordons the node and drains it until the test ends, and then lets it take
// Pods again.
func startDrain(t *testing.T) *drain {
	t.Helper()
	d := &drain{done: make(chan struct{})}
	cordon(t, true)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		<-d.done
		cordon(t, false)
	})
	go func() {
		defer close(d.done)
		again := time.NewTicker(200 * time.Millisecond)
		defer again.Stop()
		for {
			switch left, err := d.evict(ctx); {
			case ctx.Err() != nil:
				return
			case err != nil:
				t.Errorf("drain: %v", err)
				return
			case left == 0:
				return
			}
			select {
			case <-again.C:
			case <-ctx.Done():
			}
		}
	}()
	return d
}

// evict asks once for each Pod that is there, and says how many there were.
func (d *drain) evict(ctx context.Context) (left int, _ error) {
	var pods corev1.PodList
	if err := cluster.Client.List(ctx, &pods, client.InNamespace(boxSpace)); err != nil {
		return 0, err
	}
	var errs []error
	for _, p := range pods.Items {
		if p.Spec.NodeName == "" {
			continue
		}
		left++
		eviction := &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
			DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID))},
		}
		err := cluster.Client.SubResource("eviction").Create(ctx, &p, eviction)
		switch {
		case apierrors.IsTooManyRequests(err):
			d.refused.Add(1)
		case err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err):
			errs = append(errs, err)
		}
	}
	return left, errors.Join(errs...)
}

// over waits until no sandbox is on the node.
func (d *drain) over(t *testing.T) {
	t.Helper()
	select {
	case <-d.done:
	case <-bounded(t).Done():
		t.Fatal("the drain doesn't get through")
	}
}

// cordon says whether the node takes no more Pods.
func cordon(t *testing.T, on bool) {
	t.Helper()
	ctx := harness.Context(t)
	var node corev1.Node
	if err := cluster.Client.Get(ctx, client.ObjectKey{Name: onenode.NodeName}, &node); err != nil {
		t.Fatal(err)
	}
	patch := client.MergeFrom(node.DeepCopy())
	node.Spec.Unschedulable = on
	if err := cluster.Client.Patch(ctx, &node, patch); err != nil {
		t.Fatal(err)
	}
}
