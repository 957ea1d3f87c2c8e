package runtime_test

import (
	"encoding/json"
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
