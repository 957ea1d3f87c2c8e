package kube_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// TestLosses has sandboxes taken away in every way that a cluster knows: each loss is in
// the log with its cause, and the session goes on in a new generation, or ends.
func TestLosses(t *testing.T) {
	t.Parallel()
	in := start(t)
	for name, test := range map[string]func(*testing.T, *installation){
		"the Sandbox, and a spare takes its place": lostToASpare,
		"the Pod, in the middle of a call":         lostInACall,
		"the Pod, in the middle of a run":          lostInARun,
		"out of memory":                            lostToMemory,
		"out of memory, for good":                  lostForGood,
	} {
		t.Run(name, func(t *testing.T) { test(t, in.in(t)) })
	}
}

// in is the installation for a subtest.
func (in *installation) in(t *testing.T) *installation {
	t.Helper()
	c := *in
	c.t, c.Sessions = t, harness.SessionsOf(t, in.client, in.openLog)
	return &c
}

// lost waits for a session's only loss.
func (in *installation) lost(id string) session.Lost {
	in.t.Helper()
	facts := in.AwaitFact(id, "the loss is known", func(f []harness.Fact) bool { return len(harness.Of[session.Lost](f)) > 0 })
	return harness.Of[session.Lost](facts)[0]
}

// wasLost wants a session's loss to be that of an incarnation, for a cause.
func (in *installation) wasLost(id, podUID, cause string) {
	in.t.Helper()
	if l := in.lost(id); l.Generation != 1 || l.PodUID != podUID || l.Cause != cause {
		in.t.Errorf("lost: %+v, want %s for %s", l, podUID, cause)
	}
}

// agent-sandbox binds the claim to the spare silently: its Ready never changes, and the
// session would go on in an empty sandbox.
func lostToASpare(t *testing.T, in *installation) {
	in.shell("spared", 2, allowing)
	s := in.CreateOf("alice", api.CreateSession{Runtime: "spared"})
	in.tell(s.ID, "echo kept > note")
	in.poolHas("spared", 1)
	box, pod := in.sandbox(s.ID), in.pod(s.ID)
	in.must(in.boxes.AgentsV1beta1().Sandboxes(in.ns).Delete(t.Context(), box.Name, metav1.DeleteOptions{}))
	in.wasLost(s.ID, string(pod.UID), "sandbox-deleted")
	if said := in.tell(s.ID, "cat note"); !strings.Contains(said, "kept") {
		t.Errorf("after the loss: %q", said)
	}
	if s := in.Session(s.ID); s.Generation != 2 || in.sandbox(s.ID).UID == box.UID {
		t.Errorf("it goes on as %+v", s)
	}
	in.end(s.ID)
}

// waiting is a runtime whose agent can be called, and answers when it is killed.
func waiting(r *api.RuntimeSpec) {
	r.Adapter = api.Adapter{Protocol: api.AdapterProtocolNone}
	r.Sandbox.Image, r.Sandbox.Command = agentImage, []string{"agent"}
}

func lostInACall(t *testing.T, in *installation) {
	in.shell("called", 0, waiting)
	s := in.CreateOf("alice", api.CreateSession{Runtime: "called"})
	pod := in.pod(s.ID)
	type answer struct {
		status int
		body   string
	}
	answered := make(chan answer, 1)
	go func() {
		status, body := in.invoke(s.ID, "/wait")
		answered <- answer{status, body}
	}()
	harness.Eventually(t, "the call is under way", func() bool {
		log, err := in.cluster.Log(pod, "agent")
		return err == nil && strings.Contains(log, "somebody waits")
	})
	in.must(in.kube.CoreV1().Pods(in.ns).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
	got := <-answered
	var problem api.Problem
	if err := json.Unmarshal([]byte(got.body), &problem); err != nil || problem.Code == "" || problem.Status != got.status || got.status < 500 {
		t.Errorf("the call ended with %d %q, want a problem (%v)", got.status, got.body, err)
	}
	t.Logf("the call ended with %s", problem.Code)
	in.wasLost(s.ID, string(pod.UID), "pod-deleted")

	// Nobody has to do anything: who calls again is there once it is ready.
	harness.Eventually(t, "it is called again", func() bool {
		status, _ := in.invoke(s.ID, "/health")
		return status == http.StatusOK
	})
	if again := in.pod(s.ID); again.UID == pod.UID || again.Status.PodIP == pod.Status.PodIP || in.Session(s.ID).Generation != 2 {
		t.Errorf("called again at %s %s, before %s %s", again.UID, again.Status.PodIP, pod.UID, pod.Status.PodIP)
	}
	in.end(s.ID)
}

func lostInARun(t *testing.T, in *installation) {
	in.shell("running", 0, allowing)
	s := in.CreateOf("alice", api.CreateSession{Runtime: "running", Message: "echo kept > note\nsleep 100"})
	run := harness.Of[session.RunStarted](in.AwaitFact(s.ID, "the second command runs", func(f []harness.Fact) bool {
		return len(harness.Of[session.CallStarted](f)) == 2
	}))[0].RunID
	pod := in.pod(s.ID)
	in.must(in.kube.CoreV1().Pods(in.ns).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
	// The agent is asked to end before the Pod is gone, and sandboxd may still say so.
	if r := in.AwaitRun(s.ID, run, api.RunStateFailed); !strings.Contains(r.Cause, "workload-lost") && r.Cause != "agent-error" {
		t.Errorf("the run failed for %q", r.Cause)
	}
	in.wasLost(s.ID, string(pod.UID), "pod-deleted")
	if said := in.tell(s.ID, "cat note"); !strings.Contains(said, "kept") {
		t.Errorf("after the loss: %q", said)
	}
	in.end(s.ID)
}

func lostToMemory(t *testing.T, in *installation) {
	in.shell("eater", 0, allowing)
	s := in.CreateOf("alice", api.CreateSession{Runtime: "eater"})
	in.tell(s.ID, "echo kept > note")
	pod := in.pod(s.ID)
	in.must(in.cluster.OOM(in.ns, pod.Name, "agent"))
	in.wasLost(s.ID, string(pod.UID), "out-of-memory")
	if !in.lost(s.ID).WorkspaceKept {
		t.Error("the volume isn't said to be kept")
	}
	if said := in.tell(s.ID, "cat note"); !strings.Contains(said, "kept") || in.Session(s.ID).Generation != 2 {
		t.Errorf("after the loss: %q", said)
	}
	in.end(s.ID)
}

func lostForGood(t *testing.T, in *installation) {
	in.shell("fragile", 0, func(r *api.RuntimeSpec) { r.OnLoss = api.OnLossEnd })
	s := in.CreateOf("alice", api.CreateSession{Runtime: "fragile"})
	in.must(in.cluster.OOM(in.ns, in.pod(s.ID).Name, "agent"))
	over := in.AwaitPhase(s.ID, api.SessionPhaseEnded)
	if over.Outcome != api.SessionOutcomeFailed || !strings.Contains(over.Cause, "out-of-memory") {
		t.Errorf("it ended as %s for %q", over.Outcome, over.Cause)
	}
	if slices.ContainsFunc(in.claims(), func(c claim) bool { return c.Annotations[noteSession] == s.ID }) {
		t.Error("its claim is left")
	}
}

// invoke calls into a session's sandbox and gives status and body; 0 where there is no
// answer at all.
func (in *installation) invoke(id, path string) (status int, body string) {
	in.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, in.url+"/v1/sessions/"+id+"/invoke"+path, http.NoBody)
	if err != nil {
		return 0, err.Error()
	}
	req.Header.Set("Authorization", "Bearer "+tokenOf("alice"))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	read, err := io.ReadAll(resp.Body)
	if err != nil {
		return resp.StatusCode, err.Error()
	}
	return resp.StatusCode, string(read)
}
