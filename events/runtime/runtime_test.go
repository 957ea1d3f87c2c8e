package runtime_test

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/revisions/revisionstest"
	"github.com/holdfast-io/holdfast/events/runtime"
)

func TestSuite(t *testing.T) {
	revisionstest.Run(t, revisionstest.Aggregate[runtime.Spec]{
		New: runtime.New, Owner: events.ServiceWorkload, Applied: runtime.TypeApplied, Removed: runtime.TypeRemoved,
		Change: func(s runtime.Spec) runtime.Spec { s.Policy = "other"; return s },
		Spec: runtime.Spec{
			Name: "coder", Kind: runtime.KindAgent,
			Adapter: runtime.Adapter{Protocol: "agui", Entrypoint: "app", Path: "/run", Resume: "rerun"},
			Sandbox: runtime.Sandbox{
				Image: "acme/coder@sha256:00ff", Command: []string{"python3", "agent.py"}, Env: []runtime.EnvVar{{Name: "LOG", Value: "info"}},
				RuntimeClassName: "gvisor", Resources: runtime.Resources{Limits: map[string]string{"cpu": "1", "memory": "1Gi"}},
			},
			Workspace:   &runtime.Workspace{Path: "/workspace", Size: "5Gi"},
			Entrypoints: []runtime.Entrypoint{{Name: "app", PathPrefix: "/", Port: 8000, Protocol: "HTTP", Ready: "/health"}},
			WarmPool:    runtime.WarmPool{Size: 3},
			Timeouts: runtime.Timeouts{
				Claim: events.Duration(time.Minute), Idle: events.Duration(15 * time.Minute), Max: events.Duration(8 * time.Hour),
				SuspendWhileWaiting: events.Duration(2 * time.Minute), DrainGrace: events.Duration(30 * time.Second),
			},
			OnIdle: "suspend", OnLoss: "restart", Stateless: true, Policy: "coder", Redact: []string{"/password"},
		},
	})
}

// What a runtime says of its Pod came later, and is stored in the same version: what
// doesn't say it is stored as before, and this is how one that does is stored.
func TestPodIsStored(t *testing.T) {
	t.Parallel()
	want := runtime.Spec{
		Name: "trainer", Kind: runtime.KindAgent, Adapter: runtime.Adapter{Protocol: "none"},
		Sandbox: runtime.Sandbox{
			PodTemplate:        json.RawMessage(`{"spec":{"containers":[{"image":"acme/trainer:3","name":"agent"}]}}`),
			ServiceAccountName: "trainer", AllowSecrets: true, Secrets: []string{"acme-key"},
			Resources: runtime.Resources{Requests: runtime.Limits{"cpu": "100m"}},
		},
		Workspace: &runtime.Workspace{Path: "/workspace", Size: "5Gi", StorageClassName: "fast"},
		OnIdle:    "suspend", OnLoss: "restart", Policy: "default",
	}
	stored, err := os.ReadFile("testdata/runtime.applied.v1.pod.json")
	if err != nil {
		t.Fatal(err)
	}
	record, err := runtime.New().ApplyRecord(want)
	if err != nil {
		t.Fatal(err)
	}
	if line, err := events.Marshal(record); err != nil || !bytes.Equal(bytes.TrimSpace(stored), line) {
		t.Errorf("is stored as\n%s\nwant\n%s (%v)", line, stored, err)
	}
	var read struct{ Data struct{ Spec runtime.Spec } }
	if err := json.Unmarshal(stored, &read); err != nil || !reflect.DeepEqual(read.Data.Spec, want) {
		t.Errorf("is read as\n%+v\nwant\n%+v (%v)", read.Data.Spec, want, err)
	}
}

// A count may be written as a number; it is kept as its digits.
func TestLimitsAsWritten(t *testing.T) {
	t.Parallel()
	for written, want := range map[string]string{
		`{"cpu":"500m","pids":256}`: `{"cpu":"500m","pids":"256"}`,
		`{"pids":"256"}`:            `{"pids":"256"}`,
		`{}`:                        `{}`,
		`null`:                      `null`,
	} {
		var l runtime.Limits
		if err := json.Unmarshal([]byte(written), &l); err != nil {
			t.Errorf("%s: %v", written, err)
		}
		if got, err := json.Marshal(l); err != nil || string(got) != want {
			t.Errorf("%s is kept as %s, want %s (%v)", written, got, want, err)
		}
	}
	for _, wrong := range []string{`{"pids":true}`, `{"pids":[1]}`, `[]`, `"x"`} {
		var l runtime.Limits
		if err := json.Unmarshal([]byte(wrong), &l); err == nil {
			t.Errorf("%s was read as %v", wrong, l)
		}
	}
}
