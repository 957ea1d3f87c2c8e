//go:build node

package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	agentsv1beta1 "sigs.k8s.io/agent-sandbox/api/v1beta1"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// world is one test's sight of the installation.
type world struct {
	testing.TB
	api *apiclient.ClientWithResponses
}

func newWorld(t testing.TB) world {
	t.Helper()
	if holdfast == nil {
		t.Fatal("Holdfast isn't installed")
	}
	w := world{t, holdfast.client(t)}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(cluster.Describe(context.Background()))
		}
	})
	return w
}

// keeping gives a runtime's sessions a volume each.
func keeping(r *api.RuntimeSpec) {
	r.Stateless, r.Workspace = false, api.Workspace{Path: "/workspace", Size: "64Mi"}
}

// runtime applies one that is the shell agent without a volume but for what change does,
// with a policy that allows everything.
func (w world) runtime(name string, warm int, change func(*api.RuntimeSpec)) {
	w.Helper()
	ctx := harness.Context(w)
	if _, err := w.api.ApplyPolicyWithResponse(ctx, "open", nil, api.PolicySpec{Name: "open", Default: "allow"}); err != nil {
		w.Fatalf("policy: %v", err)
	}
	spec := api.RuntimeSpec{
		Name: name, Kind: api.RuntimeKindAgent,
		Adapter: api.Adapter{Protocol: api.AdapterProtocolAgui, Entrypoint: "app", Path: "/run", Resume: "rerun"},
		Sandbox: api.Sandbox{
			Image: shellImage, Command: []string{"/holdfast/sandboxd", "shell-agent"},
			Resources: api.Resources{Requests: api.Requests{CPU: "10m", Memory: "32Mi"}, Limits: api.Limits{Memory: "128Mi"}},
		},
		Entrypoints: []api.Entrypoint{{Name: "app", PathPrefix: "/", Port: 8000, Protocol: "HTTP", Ready: "/health"}},
		WarmPool:    api.WarmPool{Size: warm},
		Stateless:   true,
		OnIdle:      api.OnIdleSuspend, OnLoss: api.OnLossRestart, Policy: "open",
	}
	if change != nil {
		change(&spec)
	}
	if _, err := w.api.ApplyRuntimeWithResponse(ctx, name, nil, spec); err != nil {
		w.Fatalf("runtime %s: %v", name, err)
	}
}

// warm waits until a runtime's pool has as many as it should.
func (w world) warm(runtime string, size int32) {
	w.Helper()
	harness.Eventually(w, fmt.Sprintf("%d sandboxes of %s are warm", size, runtime), func() bool {
		var pools extensionsv1beta1.SandboxWarmPoolList
		if err := cluster.Client.List(harness.Context(w), &pools, client.InNamespace(boxSpace)); err != nil {
			return false
		}
		for _, p := range pools.Items {
			if strings.HasPrefix(p.Name, "hf-"+runtime+"-r") && p.Status.ReadyReplicas >= size {
				return true
			}
		}
		return false
	})
}

// create makes a session, and waits until it is ready.
func (w world) create(runtime, message string) *api.Session {
	w.Helper()
	prefer := "wait=60"
	r, err := w.api.CreateSessionWithResponse(harness.Context(w), &api.CreateSessionParams{Prefer: &prefer}, api.CreateSession{Runtime: runtime, Message: message})
	if err != nil {
		w.Fatalf("create: %v", err)
	}
	s := r.JSON201
	if s.Phase != api.SessionPhaseReady {
		w.Fatalf("session %s is %s %s", s.ID, s.Phase, s.Cause)
	}
	return s
}

func (w world) session(id string) *api.Session {
	w.Helper()
	r, err := w.api.GetSessionWithResponse(harness.Context(w), id, nil)
	if err != nil {
		w.Fatalf("get: %v", err)
	}
	return r.JSON200
}

// until waits until a session is as it should be.
func (w world) until(id, what string, holds func(*api.Session) bool) (s *api.Session) {
	w.Helper()
	w.Cleanup(func() {
		if w.Failed() {
			w.Logf("of session %s was wanted that %s; seen last: %+v", id, what, s)
		}
	})
	harness.Eventually(w, what, func() bool {
		s = w.session(id)
		return holds(s)
	})
	return s
}

// answered sends a message, and gives what the agent said and the time until it was done.
func (w world) answered(id, message string) (string, time.Duration) {
	w.Helper()
	began := time.Now()
	r, err := w.api.SendMessageWithResponse(harness.Context(w), id, nil, api.SendMessage{Content: message})
	if err != nil {
		w.Fatalf("send: %v", err)
	}
	return w.finished(id, r.JSON202.RunID), time.Since(began)
}

// finished waits for a run's end, "" for the first one's, and gives what was said.
func (w world) finished(id, run string) string {
	w.Helper()
	var said strings.Builder
	harness.Follow(w, w.api, id, func(f api.Frame) bool {
		e := harness.EventOf(f)
		var of struct {
			RunID   string          `json:"runId"`
			Message json.RawMessage `json:"message"`
		}
		if json.Unmarshal(e.Data, &of) != nil || run != "" && of.RunID != run {
			return false
		}
		switch e.Type {
		case session.TypeRunMessageRecorded:
			said.Write(of.Message)
		case session.TypeRunFailed:
			w.Fatalf("run %s failed: %s", of.RunID, e.Data)
		}
		return e.Type == session.TypeRunFinished
	})
	return said.String()
}

// payload waits for the n-th event of a type, and reads it.
func (w world) payload(id, eventType string, n int, to any) {
	w.Helper()
	frames := harness.Follow(w, w.api, id, harness.OnNth(n, harness.OnEvent(eventType)))
	if err := json.Unmarshal(harness.EventOf(frames[len(frames)-1]).Data, to); err != nil {
		w.Fatal(err)
	}
}

// invoke calls the agent through the gateway.
func (w world) invoke(id, method, path, body string) (string, error) {
	req, err := http.NewRequestWithContext(harness.Context(w), method, holdfast.apiURL+"/v1/sessions/"+id+"/invoke"+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+holdfast.token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	said, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, said)
	}
	return string(said), err
}

// pods are those of a session's sandboxes.
func (w world) pods(id string) []corev1.Pod {
	w.Helper()
	ctx := harness.Context(w)
	var claims extensionsv1beta1.SandboxClaimList
	var sandboxes agentsv1beta1.SandboxList
	var pods corev1.PodList
	for _, list := range []client.ObjectList{&claims, &sandboxes, &pods} {
		if err := cluster.Client.List(ctx, list, client.InNamespace(boxSpace)); err != nil {
			w.Fatal(err)
		}
	}
	owned := map[string]bool{}
	for _, c := range claims.Items {
		if c.Annotations["holdfast.dev/session"] == id {
			owned[string(c.UID)] = true
		}
	}
	for _, s := range sandboxes.Items {
		if len(s.OwnerReferences) > 0 && owned[string(s.OwnerReferences[0].UID)] {
			owned[string(s.UID)] = true
		}
	}
	var found []corev1.Pod
	for _, p := range pods.Items {
		if len(p.OwnerReferences) > 0 && owned[string(p.OwnerReferences[0].UID)] {
			found = append(found, p)
		}
	}
	return found
}

// end ends a session and waits until nothing of it is left.
func (w world) end(id string) {
	w.Helper()
	if _, err := w.api.TerminateSessionWithResponse(harness.Context(w), id, nil, api.TerminateSession{Reason: "the test is over"}); err != nil {
		w.Fatalf("terminate: %v", err)
	}
	w.until(id, "session "+id+" has ended", func(s *api.Session) bool { return s.Phase == api.SessionPhaseEnded })
}
