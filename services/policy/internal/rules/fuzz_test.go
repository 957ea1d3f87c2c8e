package rules_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"

	"github.com/holdfast-io/holdfast/events/policy"
	"github.com/holdfast-io/holdfast/services/policy/internal/rules"
)

// Whatever is applied is refused with places, or gives a verdict on any call that
// allows nothing that no rule allows.
func FuzzCompile(f *testing.F) {
	for _, r := range coder().Rules {
		f.Add(r.When, `{"command":"ls"}`)
	}
	f.Add(`args.a.all(x, x == args.b)`, `{"a":[1,2],"b":null}`)
	f.Add(`((((((((((`, `{}`)
	f.Add(`"a".matches(args.p)`, `{"p":"(a*)*b"}`)
	f.Add("tool\x00", `[]`)
	f.Fuzz(func(t *testing.T, when, args string) {
		p, err := rules.Compile(policy.Spec{Name: "p", Default: policy.Deny, Rules: []policy.Rule{{Name: "r", When: when, Then: policy.Ask}}})
		if err != nil {
			var invalid *rules.InvalidError
			if !errors.As(err, &invalid) || len(invalid.Fields) == 0 || !strings.HasPrefix(invalid.Fields[0].Pointer, "/rules/0/when") {
				t.Fatalf("not a refusal with a place: %v", err)
			}
			return
		}
		v, err := p.Evaluate(rules.Call{Tool: "shell", Args: json.RawMessage(args)})
		if err == nil && v.Effect != policy.Ask && v.Effect != policy.Deny {
			t.Fatalf("%+v", v)
		}
	})
}

// What an agent wrote stays inside quotes, and nothing in it is invisible.
func FuzzMessage(f *testing.F) {
	f.Add("Deploy {{args.version}}?", `{"version":"v1"}`)
	f.Add("{{args.a}} {{args.a.b}}", `{"a":{"b":"\u202e\""}}`)
	f.Add("{{args.a}}", `{"a":1e400}`)
	f.Fuzz(func(t *testing.T, template, args string) {
		got := rules.Message(template, json.RawMessage(args))
		if template == "" && got != "" {
			t.Fatalf("%q out of nothing", got)
		}
		if !strings.Contains(template, "{{") && got != template {
			t.Fatalf("%q became %q", template, got)
		}
		for _, r := range got {
			if !unicode.IsPrint(r) && !strings.ContainsRune(template, r) && r != unicode.ReplacementChar {
				t.Fatalf("%q shows %U as it is", got, r)
			}
		}
	})
}
