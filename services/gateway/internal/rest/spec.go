package rest

import (
	"maps"
	"strconv"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/policy"
	"github.com/holdfast-io/holdfast/events/runtime"
)

// never is the API's word for a question without a deadline.
const never = "never"

// runtimeSpec writes a runtime as its event has it; view.RuntimeSpec is the way
// back. What is left out stays so: defaults are the workload service's.
func runtimeSpec(name string, in api.RuntimeSpec) (runtime.Spec, error) {
	out := runtime.Spec{
		Name: in.Name, Kind: runtime.Kind(in.Kind),
		Adapter: runtime.Adapter{
			Protocol: string(in.Adapter.Protocol), Entrypoint: in.Adapter.Entrypoint, Path: in.Adapter.Path,
			Resume: string(in.Adapter.Resume),
		},
		Sandbox: runtime.Sandbox{
			Image: in.Sandbox.Image, HostFolder: in.Sandbox.HostFolder, Command: in.Sandbox.Command,
			RuntimeClassName: in.Sandbox.RuntimeClassName, ServiceAccountName: in.Sandbox.ServiceAccountName,
			Resources: runtime.Resources{
				Limits: limits(in.Sandbox.Resources.Limits), Requests: requests(in.Sandbox.Resources.Requests),
			},
			PodTemplate: in.Sandbox.PodTemplate, AllowSecrets: in.Sandbox.AllowSecrets,
		},
		WarmPool: runtime.WarmPool{Size: in.WarmPool.Size},
		OnIdle:   string(in.OnIdle), OnLoss: string(in.OnLoss), Stateless: in.Stateless,
		Policy: in.Policy, Redact: in.Redact,
	}
	if out.Name == "" {
		out.Name = name
	}
	for _, e := range in.Sandbox.Env {
		out.Sandbox.Env = append(out.Sandbox.Env, runtime.EnvVar{Name: e.Name, Value: e.Value})
	}
	if in.Workspace.Path != "" {
		out.Workspace = &runtime.Workspace{
			Path: in.Workspace.Path, Size: in.Workspace.Size, StorageClassName: in.Workspace.StorageClassName,
		}
	}
	for _, e := range in.Entrypoints {
		out.Entrypoints = append(out.Entrypoints, runtime.Entrypoint{
			Name: e.Name, PathPrefix: e.PathPrefix, Port: e.Port, Protocol: string(e.Protocol), Ready: e.Ready,
		})
	}
	return out, durations([]timeout{
		{"/timeouts/claim", in.Timeouts.Claim, &out.Timeouts.Claim},
		{"/timeouts/idle", in.Timeouts.Idle, &out.Timeouts.Idle},
		{"/timeouts/max", in.Timeouts.Max, &out.Timeouts.Max},
		{"/timeouts/suspendWhileWaiting", in.Timeouts.SuspendWhileWaiting, &out.Timeouts.SuspendWhileWaiting},
		{"/timeouts/drainGrace", in.Timeouts.DrainGrace, &out.Timeouts.DrainGrace},
	})
}

// limits are by name in the event; pids is a number in the API.
func limits(in api.Limits) runtime.Limits {
	out := runtime.Limits{"cpu": in.CPU, "memory": in.Memory, "ephemeral-storage": in.EphemeralStorage}
	if in.Pids > 0 {
		out["pids"] = strconv.Itoa(in.Pids)
	}
	return said(out)
}

func requests(in api.Requests) runtime.Limits {
	return said(runtime.Limits{"cpu": in.CPU, "memory": in.Memory, "ephemeral-storage": in.EphemeralStorage})
}

// said leaves out what has no amount; nil is none at all.
func said(of runtime.Limits) runtime.Limits {
	maps.DeleteFunc(of, func(_, quantity string) bool { return quantity == "" })
	if len(of) == 0 {
		return nil
	}
	return of
}

// timeout is a duration in the API with its place in the event.
type timeout struct {
	pointer, from string
	to            *events.Duration
}

func durations(all []timeout) error {
	for _, t := range all {
		d, err := duration(t.pointer, t.from)
		if err != nil {
			return err
		}
		*t.to = value(d)
	}
	return nil
}

// policySpec writes a policy as its event has it; view.PolicySpec is the way
// back. Quorum is left out: the document lets only 1 pass, which is what there is.
func policySpec(name string, in api.PolicySpec) (policy.Spec, error) {
	out := policy.Spec{Name: in.Name, Default: policy.Effect(in.Default)}
	if out.Name == "" {
		out.Name = name
	}
	for i, r := range in.Rules {
		rule := policy.Rule{Name: r.Name, When: r.When, Then: policy.Effect(r.Then), Reason: r.Reason}
		if asked(r.Ask) {
			ask, err := askFor("/rules/"+strconv.Itoa(i)+"/ask", r.Ask)
			if err != nil {
				return out, err
			}
			rule.Ask = ask
		}
		out.Rules = append(out.Rules, rule)
	}
	for _, t := range in.Tests {
		out.Tests = append(out.Tests, policy.Test{
			Name: t.Name, Expect: policy.Effect(t.Expect), Call: policy.TestCall{Tool: t.Call.Tool, Args: t.Call.Args},
		})
	}
	return out, nil
}

// asked says whether a rule has terms for its question.
func asked(a api.Ask) bool {
	return len(a.Approvers) > 0 || a.Deadline != "" || a.ExcludeRequester || a.ExecuteWithin != "" || a.Message != "" ||
		a.OnDeadline != "" || a.Quorum != 0 || a.Risk != ""
}

func askFor(pointer string, in api.Ask) (*policy.AskFor, error) {
	out := &policy.AskFor{
		Approvers: in.Approvers, ExcludeRequester: in.ExcludeRequester, OnDeadline: policy.Effect(in.OnDeadline),
		NeverExpire: in.Deadline == never, Risk: string(in.Risk), Message: in.Message,
	}
	deadline := in.Deadline
	if out.NeverExpire {
		deadline = ""
	}
	return out, durations([]timeout{
		{pointer + "/deadline", deadline, &out.Deadline},
		{pointer + "/executeWithin", in.ExecuteWithin, &out.ExecuteWithin},
	})
}
