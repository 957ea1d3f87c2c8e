package rules_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/policy"
	"github.com/holdfast-io/holdfast/services/policy/internal/rules"
)

// coder is the design's example.
func coder() policy.Spec {
	return policy.Spec{
		Name: "coder", Default: policy.Ask,
		Rules: []policy.Rule{
			{Name: "reading is free", When: `tool == "shell" && args.command.matches("^(ls|cat|pwd|echo)( [A-Za-z0-9_./-]+)*$")`, Then: policy.Allow},
			{Name: "never", When: `tool == "shell" && args.command.matches("(^|[;&| ])(sudo|mkfs|shutdown)( |$)")`, Then: policy.Deny, Reason: "nobody needs this"},
			{Name: "deploys", When: `tool == "deploy"`, Then: policy.Ask, Ask: &policy.AskFor{
				Approvers: []string{"group:sre"}, ExcludeRequester: true, Deadline: events.Duration(30 * time.Minute), ExecuteWithin: events.Duration(10 * time.Minute),
			}},
		},
		Tests: []policy.Test{{Name: "reading", Call: policy.TestCall{Tool: "shell", Args: json.RawMessage(`{"command":"ls -l"}`)}, Expect: policy.Allow}},
	}
}

func compile(t *testing.T, spec policy.Spec) *rules.Program {
	t.Helper()
	p, err := rules.Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestFirstMatchDecides(t *testing.T) {
	t.Parallel()
	p := compile(t, coder())
	for command, want := range map[string]struct {
		effect policy.Effect
		rule   string
	}{
		"ls":                  {policy.Allow, "reading is free"},
		"cat go.mod ../x/y-z": {policy.Allow, "reading is free"},
		"ls; rm -rf /":        {policy.Ask, rules.DefaultRule},
		"ls $(rm -rf /)":      {policy.Ask, rules.DefaultRule},
		"ls\nrm -rf /":        {policy.Ask, rules.DefaultRule},
		"sudo make":           {policy.Deny, "never"},
		"true && sudo make":   {policy.Deny, "never"},
		"echo sudo":           {policy.Allow, "reading is free"}, // the first that matches
		"pseudosudo":          {policy.Ask, rules.DefaultRule},
		"make test":           {policy.Ask, rules.DefaultRule},
	} {
		args, err := json.Marshal(map[string]string{"command": command})
		if err != nil {
			t.Fatal(err)
		}
		v, err := p.Evaluate(rules.Call{Tool: "shell", Args: args})
		if err != nil || v.Effect != want.effect || v.Rule != want.rule {
			t.Errorf("%q: %s by %q (%v), want %s by %q", command, v.Effect, v.Rule, err, want.effect, want.rule)
		}
	}
}

// What a rule leaves out has the documented defaults; what it says stands.
func TestVerdictIsComplete(t *testing.T) {
	t.Parallel()
	p := compile(t, coder())
	v, err := p.Evaluate(rules.Call{Tool: "other", Args: json.RawMessage(`{}`)})
	if err != nil || v.Ask.Deadline != policy.DefaultDeadline || v.Ask.ExecuteWithin != policy.DefaultExecuteWithin || v.Ask.OnDeadline != policy.Deny {
		t.Errorf("%+v, %v", v, err)
	}
	v, err = p.Evaluate(rules.Call{Tool: "deploy", Args: json.RawMessage(`{}`)})
	if err != nil || v.Ask.Deadline != events.Duration(30*time.Minute) || v.Ask.ExecuteWithin != events.Duration(10*time.Minute) || !v.Ask.ExcludeRequester {
		t.Errorf("%+v, %v", v, err)
	}
}

// Every variable is there, with the type that its name promises.
func TestVariables(t *testing.T) {
	t.Parallel()
	call := rules.Call{
		Tool: "shell", Args: json.RawMessage(`{"n":3,"list":["a"],"deep":{"x":true}}`), Isolation: "none", Now: time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC),
		Session: map[string]any{"id": "s-1", "owner": "alice", "labels": map[string]any{"team": "search"}},
		Runtime: map[string]any{"name": "shell", "revision": int64(4)}, Agent: map[string]any{"run": "r-1"}, User: map[string]any{"id": "alice"},
	}
	for _, when := range []string{
		`args.n == 3`, `args.list.exists(x, x == "a")`, `args.deep.x == true`, `isolation == "none"`, `now.getHours() == 15`,
		`session.labels.team == "search"`, `runtime.name == "shell" && runtime.revision >= 4`, `agent.run == "r-1"`, `user.id == session.owner`,
		`!has(args.absent)`, `sets.contains(args.list, ["a"])`, `tool.startsWith("sh")`,
	} {
		p := compile(t, policy.Spec{Name: "p", Default: policy.Deny, Rules: []policy.Rule{{Name: "r", When: when, Then: policy.Allow}}})
		if v, err := p.Evaluate(call); err != nil || v.Effect != policy.Allow {
			t.Errorf("%s: %+v, %v", when, v, err)
		}
	}
}

// A rule that can't be evaluated opens nothing: an allow doesn't match, everything
// else does and says so.
func TestErrorsFailClosed(t *testing.T) {
	t.Parallel()
	long, err := json.Marshal(map[string]any{"list": make([]int, 2000)})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		when string
		args json.RawMessage
	}{
		"a missing key":   {`args.absent == "x"`, json.RawMessage(`{}`)},
		"another type":    {`args.n.startsWith("x")`, json.RawMessage(`{"n":1}`)},
		"not a bool":      {`args.n`, json.RawMessage(`{"n":1}`)},
		"division":        {`1 / int(args.n) == 1`, json.RawMessage(`{"n":0}`)},
		"over its budget": {`args.list.all(x, args.list.all(y, args.list.all(z, x == y && y == z)))`, long},
		"a bad pattern":   {`"a".matches(args.p)`, json.RawMessage(`{"p":"("}`)},
	} {
		for then, want := range map[policy.Effect]policy.Effect{policy.Allow: policy.Deny, policy.Ask: policy.Ask, policy.Deny: policy.Deny} {
			spec := policy.Spec{Name: "p", Default: policy.Deny, Rules: []policy.Rule{{Name: "r", When: tc.when, Then: then}}}
			p, err := rules.Compile(spec)
			if err != nil {
				if name == "not a bool" {
					continue // refused already when applied
				}
				t.Fatalf("%s: %v", name, err)
			}
			v, err := p.Evaluate(rules.Call{Tool: "shell", Args: tc.args})
			if err != nil || v.Effect != want {
				t.Errorf("%s in a rule that would %s: %+v, %v; want %s", name, then, v, err, want)
			}
			if then == policy.Ask && !strings.Contains(v.Reason, "could not be evaluated") {
				t.Errorf("%s: the reason is %q", name, v.Reason)
			}
		}
	}
}

// A policy that can't work is refused with the place of every error.
func TestCompileRefuses(t *testing.T) {
	t.Parallel()
	one := func(change func(*policy.Rule)) policy.Spec {
		s := policy.Spec{Name: "p", Default: policy.Ask, Rules: []policy.Rule{{Name: "r", When: "true", Then: policy.Ask, Ask: &policy.AskFor{}}}}
		change(&s.Rules[0])
		return s
	}
	whole := func(change func(*policy.Spec)) policy.Spec { s := coder(); change(&s); return s }
	for name, tc := range map[string]struct {
		spec    policy.Spec
		pointer string
	}{
		"syntax":             {one(func(r *policy.Rule) { r.When = `tool ==` }), "/rules/0/when"},
		"empty":              {one(func(r *policy.Rule) { r.When = "" }), "/rules/0/when"},
		"unknown variable":   {one(func(r *policy.Rule) { r.When = `arg.command == "x"` }), "/rules/0/when"},
		"types":              {one(func(r *policy.Rule) { r.When = `tool == 1` }), "/rules/0/when"},
		"not a condition":    {one(func(r *policy.Rule) { r.When = `tool + "x"` }), "/rules/0/when"},
		"a bad pattern":      {one(func(r *policy.Rule) { r.When = `tool.matches("(")` }), "/rules/0/when"},
		"too long":           {one(func(r *policy.Rule) { r.When = strings.Repeat("x", rules.MaxExpression+1) }), "/rules/0/when"},
		"no name":            {one(func(r *policy.Rule) { r.Name = "" }), "/rules/0/name"},
		"the default's name": {one(func(r *policy.Rule) { r.Name = rules.DefaultRule }), "/rules/0/name"},
		"no effect":          {one(func(r *policy.Rule) { r.Then = "maybe" }), "/rules/0/then"},
		"ask of an allow":    {one(func(r *policy.Rule) { r.Then = policy.Allow }), "/rules/0/ask"},
		"approver":           {one(func(r *policy.Rule) { r.Ask.Approvers = []string{"group:sre", "bob"} }), "/rules/0/ask/approvers/1"},
		"deadline":           {one(func(r *policy.Rule) { r.Ask.Deadline = -1 }), "/rules/0/ask/deadline"},
		"a year to execute":  {one(func(r *policy.Rule) { r.Ask.ExecuteWithin = events.Duration(365 * 24 * time.Hour) }), "/rules/0/ask/executeWithin"},
		"on deadline":        {one(func(r *policy.Rule) { r.Ask.OnDeadline = policy.Ask }), "/rules/0/ask/onDeadline"},
		"never and deadline": {one(func(r *policy.Rule) { r.Ask.NeverExpire, r.Ask.Deadline = true, 1 }), "/rules/0/ask/neverExpire"},
		"two of one name":    {whole(func(s *policy.Spec) { s.Rules[2].Name = "never" }), "/rules/2/name"},
		"its own name":       {whole(func(s *policy.Spec) { s.Name = "No Such" }), "/name"},
		"no default":         {whole(func(s *policy.Spec) { s.Default = "" }), "/default"},
		"a failing test":     {whole(func(s *policy.Spec) { s.Tests[0].Expect = policy.Deny }), "/tests/0"},
		"a test of nothing":  {whole(func(s *policy.Spec) { s.Tests[0].Expect = "" }), "/tests/0/expect"},
		"a test's arguments": {whole(func(s *policy.Spec) { s.Tests[0].Call.Args = json.RawMessage(`[]`) }), "/tests/0/call/args"},
		"a test's user":      {whole(func(s *policy.Spec) { s.Tests[0].User = json.RawMessage(`[]`) }), "/tests/0/user"},
		"too many rules": {whole(func(s *policy.Spec) {
			for i := range rules.MaxRules {
				s.Rules = append(s.Rules, policy.Rule{Name: fmt.Sprint(i), When: "false", Then: policy.Deny})
			}
		}), "/rules"},
	} {
		_, err := rules.Compile(tc.spec)
		var invalid *rules.InvalidError
		if !errors.As(err, &invalid) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := invalid.Fields[0]; got.Pointer != tc.pointer || got.Detail == "" {
			t.Errorf("%s: %+v, want %s", name, invalid.Fields, tc.pointer)
		}
	}
}

// An error in an expression names its place.
func TestCompileNamesThePlace(t *testing.T) {
	t.Parallel()
	_, err := rules.Compile(policy.Spec{Name: "p", Default: policy.Ask, Rules: []policy.Rule{{Name: "r", When: `tool == "x" && arg.x`, Then: policy.Ask}}})
	if err == nil || !strings.Contains(err.Error(), "1:16") || !strings.Contains(err.Error(), "arg") {
		t.Errorf("%v", err)
	}
}

func TestMessage(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ template, args, want string }{
		"nothing":            {"", `{}`, ""},
		"text":               {"Deploy {{args.version}}?", `{"version":"v1"}`, `Deploy "v1"?`},
		"spaces":             {"Deploy {{ args.version }}?", `{"version":"v1"}`, `Deploy "v1"?`},
		"deep":               {"{{args.a.b}}", `{"a":{"b":"c"}}`, `"c"`},
		"absent":             {"{{args.a.b}}", `{"a":"x"}`, `""`},
		"a large number":     {"{{args.n}}", `{"n":1000000000}`, `"1000000000"`},
		"an object":          {"{{args.a}}", `{"a":{"b":[1,null]}}`, `"{\"b\":[1,null]}"`},
		"quotes":             {"{{args.a}}", `{"a":"x\" approve \""}`, `"x\" approve \""`},
		"lines":              {"{{args.a}}", `{"a":"x\ny"}`, `"x\ny"`},
		"reversed text":      {"{{args.a}}", `{"a":"x\u202Ey"}`, `"x\u202ey"`},
		"a template in text": {"{{args.a}}", `{"a":"{{args.b}}","b":"secret"}`, `"{{args.b}}"`},
		"long":               {"{{args.a}}", `{"a":"` + strings.Repeat("x", 500) + `"}`, `"` + strings.Repeat("x", 200) + `…"`},
		"nobody's":           {"{{session.id}} {{args}}", `{}`, "{{session.id}} {{args}}"},
	} {
		if got := rules.Message(tc.template, json.RawMessage(tc.args)); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}
