package view

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast/events/policy"
	"github.com/holdfast-io/holdfast/events/runtime"
)

// Runtime is one revision of a runtime; Spec is the API's RuntimeSpec.
type Runtime struct {
	Name     string          `json:"name"`
	Revision uint64          `json:"revision"`
	Spec     json.RawMessage `json:"spec"`
	By       string          `json:"by"`
	At       time.Time       `json:"at"`
	Seq      uint64          `json:"seq"`
}

// Policy is one revision of a policy; Spec is the API's PolicySpec.
type Policy struct {
	Name     string          `json:"name"`
	Revision uint64          `json:"revision"`
	Spec     json.RawMessage `json:"spec"`
	By       string          `json:"by"`
	At       time.Time       `json:"at"`
	Seq      uint64          `json:"seq"`
}

// apiRuntime is the API's form of a runtime: pids is a number there, and words that
// were left out stay out.
type apiRuntime struct {
	runtime.Spec
	Sandbox apiSandbox `json:"sandbox"`
	Policy  string     `json:"policy,omitempty"`
	OnIdle  string     `json:"onIdle,omitempty"`
	OnLoss  string     `json:"onLoss,omitempty"`
}

type apiSandbox struct {
	runtime.Sandbox
	Resources apiResources `json:"resources"`
}

type apiResources struct {
	Limits   map[string]any `json:"limits,omitempty"`
	Requests runtime.Limits `json:"requests,omitempty"`
}

// RuntimeSpec writes an applied runtime as the API's RuntimeSpec, masked.
func RuntimeSpec(s runtime.Spec) []byte {
	v := apiRuntime{
		Spec: s, Policy: s.Policy, OnIdle: s.OnIdle, OnLoss: s.OnLoss,
		Sandbox: apiSandbox{Sandbox: s.Sandbox, Resources: apiResources{Requests: s.Sandbox.Resources.Requests}},
	}
	if len(s.Sandbox.Resources.Limits) > 0 {
		v.Sandbox.Resources.Limits = map[string]any{}
	}
	for name, quantity := range s.Sandbox.Resources.Limits {
		v.Sandbox.Resources.Limits[name] = quantity
		if n, err := strconv.Atoi(quantity); name == "pids" && err == nil {
			v.Sandbox.Resources.Limits[name] = n
		}
	}
	return Masker{}.JSON(mustJSON(v))
}

// apiAsk is the API's form of a question's terms: a deadline of "never" is a word,
// and no duration is absent.
type apiAsk struct {
	Approvers        []string      `json:"approvers,omitempty"`
	ExcludeRequester bool          `json:"excludeRequester,omitempty"`
	Deadline         string        `json:"deadline,omitempty"`
	OnDeadline       policy.Effect `json:"onDeadline,omitempty"`
	ExecuteWithin    string        `json:"executeWithin,omitempty"`
	Risk             string        `json:"risk,omitempty"`
	Message          string        `json:"message,omitempty"`
}

type apiRule struct {
	policy.Rule
	Ask *apiAsk `json:"ask,omitempty"`
}

type apiPolicy struct {
	policy.Spec
	Rules []apiRule `json:"rules,omitempty"`
}

// PolicySpec writes an applied policy as the API's PolicySpec.
func PolicySpec(s policy.Spec) []byte {
	v := apiPolicy{Spec: s}
	for _, r := range s.Rules {
		rule := apiRule{Rule: r}
		if a := r.Ask; a != nil {
			rule.Ask = &apiAsk{
				Approvers: a.Approvers, ExcludeRequester: a.ExcludeRequester, OnDeadline: a.OnDeadline,
				Risk: a.Risk, Message: a.Message,
			}
			if a.Deadline > 0 {
				rule.Ask.Deadline = a.Deadline.String()
			}
			if a.NeverExpire {
				rule.Ask.Deadline = "never"
			}
			if a.ExecuteWithin > 0 {
				rule.Ask.ExecuteWithin = a.ExecuteWithin.String()
			}
		}
		v.Rules = append(v.Rules, rule)
	}
	return Masker{}.JSON(mustJSON(v))
}
