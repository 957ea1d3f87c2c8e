package kube_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// TestNodeIsDrained: a node is cordoned under a session that does nothing, and under one
// that works. The first is put away; the second goes on to the end of what it does, and is
// put away then. One whose Pod is evicted nevertheless has lost it, and goes on elsewhere.
func TestNodeIsDrained(t *testing.T) {
	t.Parallel()
	in := start(t)
	node := in.cluster.Node(t)
	in.shell("drained", 0, onNode(node), allowing, func(r *api.RuntimeSpec) { r.Timeouts.DrainGrace = "10s" })
	idle := in.CreateOf("alice", api.CreateSession{Runtime: "drained"})
	in.tell(idle.ID, "echo kept > note")
	// Processes of Pods share this machine's files.
	door := filepath.Join(t.TempDir(), "open")
	busy := in.CreateOf("alice", api.CreateSession{Runtime: "drained", Message: "while [ ! -e " + door + " ]; do sleep 0.05; done"})
	run := harness.Of[session.RunStarted](in.AwaitFact(busy.ID, "the command runs", func(f []harness.Fact) bool {
		return len(harness.Of[session.CallStarted](f)) == 1
	}))[0].RunID
	pod := in.pod(busy.ID)

	in.cluster.Cordon(t, node, true)
	in.AwaitPhase(idle.ID, api.SessionPhaseSuspended)
	for _, id := range []string{idle.ID, busy.ID} {
		facts := in.AwaitFact(id, "it is told to leave", func(f []harness.Fact) bool { return len(harness.Of[session.Draining](f)) == 1 })
		if d := harness.Of[session.Draining](facts)[0]; d.Cause != "node-cordoned" || len(harness.Of[session.Lost](facts)) > 0 {
			t.Errorf("%s: %+v", id, d)
		}
	}
	if s := in.Session(busy.ID); s.Phase != api.SessionPhaseReady || in.pod(busy.ID).UID != pod.UID {
		t.Errorf("the one that works is %s", s.Phase)
	}
	in.must(os.WriteFile(door, nil, 0o600))
	in.AwaitRun(busy.ID, run, api.RunStateFinished)
	in.AwaitPhase(busy.ID, api.SessionPhaseSuspended)

	in.cluster.Cordon(t, node, false)
	if said := in.tell(idle.ID, "cat note"); !strings.Contains(said, "kept") {
		t.Errorf("after the drain: %q", said)
	}
	// Eviction is what a drain does to what is still there.
	evicted := in.pod(idle.ID)
	in.must(in.kube.PolicyV1().Evictions(in.ns).Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: in.ns, Name: evicted.Name}}))
	in.Await(idle.ID, "it has left", func(s *api.Session) bool { return s.Phase != api.SessionPhaseReady })
	if said := in.tell(idle.ID, "cat note"); !strings.Contains(said, "kept") || in.pod(idle.ID).UID == evicted.UID {
		t.Errorf("after the eviction: %q", said)
	}
	in.end(idle.ID)
	in.end(busy.ID)
	in.remove("drained")
	in.nothingLeft()
}
