package rest

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/projections/view"
)

// A runtime comes back from its event as it was said: nothing of it is lost on the way.
func TestRuntimeSpecComesBack(t *testing.T) {
	t.Parallel()
	said := api.RuntimeSpec{
		Name: "trainer", Kind: "agent",
		Adapter: api.Adapter{Protocol: "agui", Entrypoint: "app", Path: "/run", Resume: "rerun"},
		Sandbox: api.Sandbox{
			Image: "a:1", HostFolder: "/srv", Command: []string{"run"}, Env: []api.EnvVar{{Name: "A", Value: "b"}},
			RuntimeClassName: "gvisor", ServiceAccountName: "trainer", AllowSecrets: true,
			PodTemplate: json.RawMessage(`{"spec":{"containers":[{"image":"a","name":"agent"}]}}`),
			Resources: api.Resources{
				Limits:   api.Limits{CPU: "1", Memory: "1Gi", Pids: 10, EphemeralStorage: "2Gi"},
				Requests: api.Requests{CPU: "100m", Memory: "64Mi", EphemeralStorage: "1Gi"},
			},
		},
		Workspace:   api.Workspace{Path: "/w", Size: "5Gi", StorageClassName: "fast"},
		Entrypoints: []api.Entrypoint{{Name: "app", PathPrefix: "/", Port: 8000, Protocol: "HTTP", Ready: "/health"}},
		WarmPool:    api.WarmPool{Size: 3},
		Timeouts:    api.Timeouts{Claim: "1m0s", Idle: "15m0s", Max: "8h0m0s", SuspendWhileWaiting: "2m0s", DrainGrace: "30s"},
		OnIdle:      "suspend", OnLoss: "restart", Stateless: true, Policy: "coder", Redact: []string{"/password"},
	}
	stored, err := runtimeSpec("trainer", said)
	if err != nil {
		t.Fatal(err)
	}
	var back api.RuntimeSpec
	if err := json.Unmarshal(view.RuntimeSpec(stored), &back); err != nil || !reflect.DeepEqual(back, said) {
		t.Errorf("comes back as\n%+v\nwant\n%+v (%v)", back, said, err)
	}
	// Beyond this list, which the server fills in, every field has to be said here.
	unsaid(t, reflect.ValueOf(said), "Secrets")
}

// unsaid reports fields of structs, at any depth, that have no value.
func unsaid(t *testing.T, v reflect.Value, but string) {
	t.Helper()
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if field.Name == but {
			continue
		}
		if v.Field(i).IsZero() {
			t.Errorf("the sample leaves %s.%s unset", v.Type().Name(), field.Name)
		}
		if v.Field(i).Kind() == reflect.Struct {
			unsaid(t, v.Field(i), but)
		}
	}
}

func TestAdminsOnly(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]api.Sandbox{
		"":                           {Image: "a", Command: []string{"x"}, RuntimeClassName: "gvisor"},
		"sandbox.hostFolder":         {HostFolder: "/srv"},
		"sandbox.podTemplate":        {PodTemplate: json.RawMessage(`{}`)},
		"sandbox.serviceAccountName": {ServiceAccountName: "x"},
		"sandbox.allowSecrets":       {AllowSecrets: true},
	} {
		if got := adminsOnly(s); got != want {
			t.Errorf("%+v: admins alone may say %q, want %q", s, got, want)
		}
	}
}
