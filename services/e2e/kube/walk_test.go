package kube_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// TestLife is a session's whole life, on a sandbox that was there and on one that had to
// be made: a message, a question, an answer, put away and taken back, ended.
func TestLife(t *testing.T) {
	t.Parallel()
	in := start(t)
	for name, tc := range map[string]struct {
		pool   int
		path   string
		layers []string
	}{
		"warm": {1, "warm", []string{"address", "bind", "claimed", "entrypoint", "sandbox"}},
		"cold": {0, "cold", []string{"address", "bind", "claimed", "entrypoint", "sandbox"}},
	} {
		in.shell(name, tc.pool)
		s := in.CreateOf("alice", api.CreateSession{Runtime: name, Message: "echo kept > note"})
		if s.Phase != api.SessionPhaseReady || s.Generation != 1 || s.Isolation != "unverified:container" {
			t.Fatalf("%s: created as %+v", name, s)
		}
		if got := slices.Sorted(maps.Keys(s.LayersMs)); !slices.Equal(got, tc.layers) {
			t.Errorf("%s: the time of layers %v is shown, want %v", name, got, tc.layers)
		}
		ready := harness.Of[session.Ready](in.Facts(s.ID))[0]
		box, pod := in.sandbox(s.ID), in.pod(s.ID)
		if ready.Path != tc.path || ready.SandboxUID != string(box.UID) || ready.PodUID != string(pod.UID) {
			t.Errorf("%s: the event says %+v, the cluster Sandbox %s and Pod %s", name, ready, box.UID, pod.UID)
		}
		if warm := box.Name != claimName(s.ID, 1); warm != (tc.pool > 0) {
			t.Errorf("%s: its Sandbox is %s", name, box.Name)
		}

		in.Approve("bob", in.AwaitQuestion(s.ID))
		in.Await(s.ID, "the run is over", func(s *api.Session) bool { return s.Run == "" && s.Waiting == 0 })
		in.suspend(s.ID)
		in.Send("alice", s.ID, "cat note")
		in.Approve("bob", in.AwaitQuestion(s.ID))
		in.AwaitFact(s.ID, "the file is still there", func(f []harness.Fact) bool {
			runs := harness.Of[session.RunFinished](f)
			return len(runs) > 0 && strings.Contains(harness.Said(f, runs[len(runs)-1].RunID), "kept")
		})
		resumed := harness.Of[session.Resumed](in.Facts(s.ID))
		if again := in.pod(s.ID); len(resumed) != 1 || again.UID == pod.UID || resumed[0].PodUID != string(again.UID) || in.sandbox(s.ID).UID != box.UID {
			t.Errorf("%s: resumed as %+v, the cluster has Pod %s, before %s", name, resumed, again.UID, pod.UID)
		}
		in.end(s.ID)
		in.remove(name)
	}
	in.nothingLeft()
}
