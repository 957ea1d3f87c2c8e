//go:build node

package node_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	agentsv1beta1 "sigs.k8s.io/agent-sandbox/api/v1beta1"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// rounds is how often what is timed is done.
const rounds = 5

// timed prints the median of what was measured.
func timed(what string, took []time.Duration) {
	slices.Sort(took)
	fmt.Fprintf(os.Stdout, "%-54s median %6d ms   (%d … %d, n=%d)\n", what, took[len(took)/2].Milliseconds(),
		took[0].Milliseconds(), took[len(took)-1].Milliseconds(), len(took))
}

// TestWarmAndCold has a message answered by a sandbox that was there and by one that
// has to be made.
func TestWarmAndCold(t *testing.T) {
	t.Run("warm", func(t *testing.T) { startsAndAnswers(t, "warm", 2, nil) })
	t.Run("cold", func(t *testing.T) { startsAndAnswers(t, "cold", 0, nil) })
	t.Run("volume", func(t *testing.T) { startsAndAnswers(t, "cold-with-a-volume", 0, keeping) })
}

// startsAndAnswers makes sessions of a runtime, one after the other, and says how long it
// took. Ready means bound: the Pod has shown its token, whose Pod is the one in the log.
func startsAndAnswers(t *testing.T, name string, warm int, change func(*api.RuntimeSpec)) {
	w := newWorld(t)
	w.runtime(name, warm, change)
	var ready, answer []time.Duration
	var layers []string
	for range rounds {
		if warm > 0 {
			w.warm(name, int32(warm))
		}
		began := time.Now()
		s := w.create(name, "id -u\nls /holdfast")
		ready = append(ready, time.Since(began))
		said := w.finished(s.ID, "")
		answer = append(answer, time.Since(began))
		if !strings.Contains(said, "1000") || !strings.Contains(said, "sandboxd") {
			t.Errorf("the agent said %s", said)
		}
		pods := w.pods(s.ID)
		if len(pods) != 1 {
			t.Fatalf("the session has %d Pods", len(pods))
		}
		var was session.Ready
		w.payload(s.ID, session.TypeReady, 1, &was)
		layers = append(layers, fmt.Sprint(was.LayersMs))
		if was.PodUID != string(pods[0].UID) {
			t.Errorf("the log says Pod %s, the cluster %s", was.PodUID, pods[0].UID)
		}
		if adopted := pods[0].CreationTimestamp.Time.Before(began.Truncate(time.Second)); adopted != (warm > 0) {
			t.Errorf("a Pod of before the session: %v", adopted)
		}
		w.end(s.ID)
		nothingLeft(t, s.ID, pods[0].Name)
	}
	timed(name+": create → ready", ready)
	timed(name+": create → the run is finished", answer)
	fmt.Fprintln(os.Stdout, "  of which, in ms:", strings.Join(layers, " "))
}

// TestSuspendAndResume: the Pod goes, the file stays.
func TestSuspendAndResume(t *testing.T) { suspendsAndResumes(t, "keeper", keeping) }

func suspendsAndResumes(t *testing.T, name string, change func(*api.RuntimeSpec)) {
	w := newWorld(t)
	w.runtime(name, 0, change)
	s := w.create(name, "")
	w.answered(s.ID, "echo still-here > /workspace/kept && sync")
	var suspended, resumed []time.Duration
	for range rounds {
		first := w.pods(s.ID)
		began := time.Now()
		if _, err := w.api.SuspendSessionWithResponse(harness.Context(t), s.ID, nil); err != nil {
			t.Fatal(err)
		}
		w.until(s.ID, "it is suspended", func(s *api.Session) bool { return s.Phase == api.SessionPhaseSuspended })
		harness.Eventually(t, "its Pod is gone", func() bool { return len(w.pods(s.ID)) == 0 })
		suspended = append(suspended, time.Since(began))
		said, took := w.answered(s.ID, "cat /workspace/kept")
		resumed = append(resumed, took)
		if !strings.Contains(said, "still-here") {
			t.Fatalf("the file didn't survive: %s", said)
		}
		if second := w.pods(s.ID); len(second) != 1 || second[0].UID == first[0].UID {
			t.Fatalf("it has the Pods %d, and none of them is new", len(second))
		}
	}
	timed(name+": suspend → the Pod is gone", suspended)
	timed(name+": message to a suspended one → finished", resumed)
	w.end(s.ID)
	nothingLeft(t, s.ID)
}

// nothingLeft wants neither claim, Sandbox, Pod nor volume of a session to be there.
// A warm Pod isn't named for its session: others are further names.
func nothingLeft(t *testing.T, id string, others ...string) {
	t.Helper()
	ctx := bounded(t)
	eventually(ctx, t, "nothing of the session is left", func() error {
		var left []string
		for _, list := range []client.ObjectList{&extensionsv1beta1.SandboxClaimList{}, &agentsv1beta1.SandboxList{}, &corev1.PodList{}, &corev1.PersistentVolumeClaimList{}} {
			if err := cluster.Client.List(ctx, list, client.InNamespace(boxSpace)); err != nil {
				return err
			}
			for _, name := range namesIn(list) {
				if slices.ContainsFunc(append(others, id), func(of string) bool { return strings.Contains(name, of) }) {
					left = append(left, fmt.Sprintf("%T %s", list, name))
				}
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("left: %v", left)
		}
		return nil
	})
}

func namesIn(list client.ObjectList) (names []string) {
	switch l := list.(type) {
	case *extensionsv1beta1.SandboxClaimList:
		for _, o := range l.Items {
			names = append(names, o.Name)
		}
	case *agentsv1beta1.SandboxList:
		for _, o := range l.Items {
			names = append(names, o.Name)
		}
	case *corev1.PodList:
		for _, o := range l.Items {
			names = append(names, o.Name)
		}
	case *corev1.PersistentVolumeClaimList:
		for _, o := range l.Items {
			names = append(names, o.Name)
		}
	}
	return names
}

// TestOOM: the agent takes more memory than its container may have. The session loses
// its sandbox for that reason, and gets another.
func TestOOM(t *testing.T) {
	w := newWorld(t)
	w.runtime("eater", 0, agent)
	s := w.create("eater", "")
	if _, err := w.invoke(s.ID, "POST", "/eat", ""); err == nil {
		t.Error("the agent survived")
	}
	var lost session.Lost
	w.payload(s.ID, session.TypeLost, 1, &lost)
	if lost.Cause != "out-of-memory" || lost.Generation != 1 {
		t.Errorf("lost: %+v", lost)
	}
	// Nobody waits for it, so the next one is made when somebody calls.
	harness.Eventually(t, "another one answers", func() bool {
		_, err := w.invoke(s.ID, "GET", "/health", "")
		return err == nil
	})
	if now := w.session(s.ID); now.Generation != 2 {
		t.Errorf("what answers is generation %d", now.Generation)
	}
	w.end(s.ID)
	nothingLeft(t, s.ID)
}

// agent makes of a runtime one of the suite's own agent.
func agent(r *api.RuntimeSpec) {
	r.Adapter = api.Adapter{Protocol: api.AdapterProtocolNone}
	r.Sandbox.Image, r.Sandbox.Command = agentImage, []string{"/agent"}
	r.Sandbox.Resources.Limits.Memory = "64Mi"
}
