package kube_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// cubes are manifests of AgentCube, as its users have them.
const cubes = `
apiVersion: runtime.agentcube.volcano.sh/v1alpha1
kind: AgentRuntime
metadata: {name: cube-agent}
spec:
  targetPort: [{pathPrefix: /, name: http, port: 8000, protocol: HTTP}]
  sessionTimeout: 10m
  maxSessionDuration: 1h
  podTemplate:
    spec:
      containers: [{name: agent, image: %[1]q, command: [agent]}]
---
apiVersion: runtime.agentcube.volcano.sh/v1alpha1
kind: CodeInterpreter
metadata: {name: cube-interpreter}
spec:
  ports: [{pathPrefix: /, port: 8000}]
  authMode: none
  warmPoolSize: 1
  template: {image: %[1]q, command: [agent]}
`

// TestAgentCube: its manifests are applied as they are, and their sessions answer.
func TestAgentCube(t *testing.T) {
	t.Parallel()
	in := start(t)
	file := filepath.Join(t.TempDir(), "cubes.yaml")
	in.must(os.WriteFile(file, fmt.Appendf(nil, cubes, agentImage), 0o600))
	binary, err := killable()
	in.must(err)
	apply := harness.SpawnBuild(t, binary, []string{"HOLDFAST_URL=" + in.url, "HOLDFAST_TOKEN=" + tokenOf("admin")}, "runtime", "apply", "-f", file)
	if code := apply.Wait(); code != 0 {
		t.Fatalf("apply: exit %d: %s", code, apply.Said())
	}
	in.poolHas("cube-interpreter", 1)
	for runtime, path := range map[string]string{"cube-agent": "cold", "cube-interpreter": "warm"} {
		s := in.CreateOf("alice", api.CreateSession{Runtime: runtime})
		if s.Phase != api.SessionPhaseReady {
			t.Fatalf("%s: %s %s", runtime, s.Phase, s.Cause)
		}
		if warm := in.sandbox(s.ID).Name != claimName(s.ID, 1); warm != (path == "warm") {
			t.Errorf("%s came not %s", runtime, path)
		}
		if status, body := in.invoke(s.ID, "/health"); status != http.StatusOK {
			t.Errorf("%s answers %d %s", runtime, status, body)
		}
		if pod := in.pod(s.ID); !strings.HasPrefix(pod.Spec.Containers[0].Image, agentImage) {
			t.Errorf("%s runs %s", runtime, pod.Spec.Containers[0].Image)
		}
		in.end(s.ID)
		in.remove(runtime)
	}
	in.nothingLeft()
}
