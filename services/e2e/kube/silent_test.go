package kube_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// TestNodeFallsSilentDuringAClaim: the node that a claim's Pod was bound to says nothing any
// more, in each stage of the start. The claim comes to nothing at once and by name, and the
// session goes on in another generation, on another node. What is left on the silent node
// goes with it, and the sweep then removes what no claim names any more.
func TestNodeFallsSilentDuringAClaim(t *testing.T) {
	t.Parallel()
	in := start(t)
	for name, test := range map[string]func(*testing.T, *installation){
		"before anything runs there":  silentAtOnce,
		"before the agent answers":    silentBeforeItAnswers,
		"and the node is deleted":     goneAtOnce,
		"and a loss ends the session": silentForGood,
	} {
		t.Run(name, func(t *testing.T) { test(t, in.in(t)) })
	}
	in.nothingLeft()
}

// between are two nodes that take the same Pods, on neither of which anything is done yet.
type between struct {
	in     *installation
	resume map[string]func()
}

func (in *installation) between(runtime string, change ...func(*api.RuntimeSpec)) between {
	in.t.Helper()
	one := in.cluster.Node(in.t)
	other := in.cluster.NodeBeside(in.t, one)
	in.shell(runtime, 0, append([]func(*api.RuntimeSpec){onNode(one), allowing}, change...)...)
	return between{in, map[string]func(){one: in.cluster.PauseKubelet(in.t, one), other: in.cluster.PauseKubelet(in.t, other)}}
}

// bound waits until a session's Pod has a node.
func (b between) bound(id string) *corev1.Pod {
	b.in.t.Helper()
	var pod *corev1.Pod
	harness.Eventually(b.in.t, "its Pod is on a node", func() bool {
		pod = b.in.podIfAny(id)
		return pod != nil && pod.Spec.NodeName != ""
	})
	return pod
}

// goOn has every node but one work.
func (b between) goOn(except string) {
	for node, resume := range b.resume {
		if node != except {
			resume()
		}
	}
}

// create makes a session that is told something, and doesn't wait for it.
func (in *installation) create(runtime, message string) (id string) {
	in.t.Helper()
	r, err := in.Client("alice").CreateSessionWithResponse(in.Context(), nil, api.CreateSession{Runtime: runtime, Message: message})
	in.must(err)
	return r.JSON201.ID
}

// moved wants a session's start to have been given up for its node, soon after a time, and
// the session to have done what it was told on another one.
func (b between) moved(id, node string, since time.Time) {
	in := b.in
	in.t.Helper()
	facts := in.AwaitFact(id, "it has done what it was told", func(f []harness.Fact) bool { return len(harness.Of[session.RunFinished](f)) == 1 })
	losses := harness.Of[session.Lost](facts)
	if len(losses) != 1 || losses[0].Cause != "node-not-ready" || losses[0].Generation != 1 {
		in.t.Errorf("lost: %+v", losses)
	}
	for _, f := range facts {
		if _, ok := f.Payload.(session.Lost); ok {
			took := f.Message.Envelope.Time.Sub(since)
			in.t.Logf("it was known after %s", took)
			if took > atOnce {
				in.t.Errorf("it took %s to be known", took)
			}
		}
	}
	if pod := in.pod(id); in.Session(id).Generation != 2 || pod.Spec.NodeName == node {
		in.t.Errorf("it goes on in generation %d on %s, which is silent", in.Session(id).Generation, pod.Spec.NodeName)
	}
	in.end(id)
}

// drop deletes a node, and with it what is left there.
func (in *installation) drop(node string) {
	in.t.Helper()
	in.must(in.kube.CoreV1().Nodes().Delete(in.t.Context(), node, metav1.DeleteOptions{}))
}

func silentAtOnce(t *testing.T, in *installation) {
	b := in.between("struck")
	id := in.create("struck", "echo hello")
	node := b.bound(id).Spec.NodeName
	b.goOn(node)
	since := time.Now()
	in.cluster.FallSilent(t, node)
	b.moved(id, node, since)
	in.drop(node)
}

func silentBeforeItAnswers(t *testing.T, in *installation) {
	b := in.between("mute", func(r *api.RuntimeSpec) { // whose agent answers only when nobody waits any more
		r.Adapter = api.Adapter{Protocol: api.AdapterProtocolNone}
		r.Entrypoints = []api.Entrypoint{{Name: "app", PathPrefix: "/", Port: 8000, Protocol: api.EntrypointProtocolHTTP, Ready: "/wait"}}
		pod := strings.Replace(string(r.Sandbox.PodTemplate), `"sandboxd", "shell-agent"`, `"agent"`, 1)
		r.Sandbox.PodTemplate = []byte(strings.Replace(pod, shellImage, agentImage, 1))
	})
	id := in.create("mute", "")
	pod := b.bound(id)
	b.goOn("")
	in.AwaitFact(id, "it is claimed", func(f []harness.Fact) bool { return len(harness.Of[session.Claimed](f)) == 1 })
	since := time.Now()
	in.cluster.FallSilent(t, pod.Spec.NodeName)
	facts := in.AwaitFact(id, "it is lost", func(f []harness.Fact) bool { return len(harness.Of[session.Lost](f)) == 1 })
	if l := harness.Of[session.Lost](facts)[0]; l.Cause != "node-not-ready" || time.Since(since) > atOnce {
		t.Errorf("after %s lost: %+v", time.Since(since), l)
	}
	in.end(id)
	in.drop(pod.Spec.NodeName)
}

// Who removes a node has its Pods removed, and agent-sandbox makes another: the claim goes
// on, for nothing was handed out yet.
func goneAtOnce(t *testing.T, in *installation) {
	b := in.between("dropped")
	id := in.create("dropped", "echo hello")
	node := b.bound(id).Spec.NodeName
	b.goOn(node)
	in.drop(node)
	facts := in.AwaitFact(id, "it has done what it was told", func(f []harness.Fact) bool { return len(harness.Of[session.RunFinished](f)) == 1 })
	if n := len(harness.Of[session.Failed](facts)); n > 0 || in.pod(id).Spec.NodeName == node {
		t.Errorf("failed %d times, and is on %s", n, in.pod(id).Spec.NodeName)
	}
	in.end(id)
}

func silentForGood(t *testing.T, in *installation) {
	b := in.between("brittle", func(r *api.RuntimeSpec) { r.OnLoss = api.OnLossEnd })
	id := in.create("brittle", "echo hello")
	node := b.bound(id).Spec.NodeName
	b.goOn(node)
	in.cluster.FallSilent(t, node)
	over := in.AwaitPhase(id, api.SessionPhaseEnded)
	if over.Outcome != api.SessionOutcomeFailed || !strings.Contains(over.Cause, "node-not-ready") {
		t.Errorf("it ended as %s for %q", over.Outcome, over.Cause)
	}
	in.drop(node)
}

// podIfAny is the Pod of a session's claim, nil while there is none.
func (in *installation) podIfAny(id string) *corev1.Pod {
	in.t.Helper()
	pods, err := in.kube.CoreV1().Pods(in.ns).List(harness.Context(in.t), metav1.ListOptions{})
	in.must(err)
	// A cold one has its claim's name.
	at := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return p.Name == claimName(id, 1) })
	if at < 0 {
		return nil
	}
	return &pods.Items[at]
}
