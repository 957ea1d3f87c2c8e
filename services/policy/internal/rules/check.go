package rules

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/policy"
)

// approver is what an entry of ask.approvers looks like.
var approver = regexp.MustCompile(`^(user|group|role):[A-Za-z0-9][A-Za-z0-9._@/-]{0,127}$`)

// checkShape finds what is wrong apart from the expressions.
func checkShape(spec policy.Spec) []FieldError {
	var fields []FieldError
	wrong := func(pointer, detail string, args ...any) {
		fields = append(fields, FieldError{pointer, fmt.Sprintf(detail, args...)})
	}
	if !events.ValidToken(spec.Name) {
		wrong("/name", "use 1 to 63 of a-z, 0-9 and -")
	}
	if !effect(spec.Default) {
		wrong("/default", "has to be allow, deny or ask")
	}
	if len(spec.Rules) > MaxRules {
		wrong("/rules", "at most %d rules", MaxRules)
	}
	names := map[string]bool{DefaultRule: true}
	for i, r := range spec.Rules {
		at := fmt.Sprintf("/rules/%d", i)
		if r.Name == "" || len(r.Name) > 120 {
			wrong(at+"/name", "a decision names its rule: give it 1 to 120 characters")
		}
		if names[r.Name] {
			wrong(at+"/name", "another rule is called %q", r.Name)
		}
		names[r.Name] = true
		if len(r.When) > MaxExpression {
			wrong(at+"/when", "at most %d characters", MaxExpression)
		}
		if !effect(r.Then) {
			wrong(at+"/then", "has to be allow, deny or ask")
		}
		if r.Ask != nil {
			if r.Then != policy.Ask {
				wrong(at+"/ask", "only where then is ask")
			}
			checkAsk(*r.Ask, func(pointer, detail string) { wrong(at+"/ask"+pointer, "%s", detail) })
		}
	}
	for i, t := range spec.Tests {
		if !effect(t.Expect) {
			wrong(fmt.Sprintf("/tests/%d/expect", i), "has to be allow, deny or ask")
		}
	}
	return fields
}

func checkAsk(a policy.AskFor, wrong func(pointer, detail string)) {
	for i, who := range a.Approvers {
		if !approver.MatchString(who) {
			wrong(fmt.Sprintf("/approvers/%d", i), `has to be "user:<name>", "group:<name>" or "role:<role>"`)
		}
	}
	if a.OnDeadline != "" && a.OnDeadline != policy.Allow && a.OnDeadline != policy.Deny {
		wrong("/onDeadline", "has to be deny or allow")
	}
	if a.NeverExpire && (a.Deadline != 0 || a.OnDeadline != "") {
		wrong("/neverExpire", "doesn't go together with a deadline")
	}
	for pointer, d := range map[string]events.Duration{"/deadline": a.Deadline, "/executeWithin": a.ExecuteWithin} {
		if d < 0 || d.D() > 30*24*time.Hour {
			wrong(pointer, "has to be positive and at most 720h")
		}
	}
	if len(a.Message) > 2000 {
		wrong("/message", "at most 2000 characters")
	}
}

func effect(e policy.Effect) bool {
	return e == policy.Allow || e == policy.Deny || e == policy.Ask
}

// runTests runs the examples that the policy carries.
func (p *Program) runTests() []FieldError {
	var fields []FieldError
	for i, t := range p.spec.Tests {
		at := fmt.Sprintf("/tests/%d", i)
		args := t.Call.Args
		if len(args) == 0 {
			args = json.RawMessage("{}")
		}
		var user map[string]any
		if len(t.User) > 0 {
			if err := json.Unmarshal(t.User, &user); err != nil {
				fields = append(fields, FieldError{at + "/user", "has to be an object"})
				continue
			}
		}
		v, err := p.Evaluate(Call{Tool: t.Call.Tool, Args: args, User: user})
		if err != nil {
			fields = append(fields, FieldError{at + "/call/args", "has to be an object"})
			continue
		}
		if v.Effect != t.Expect {
			fields = append(fields, FieldError{at, fmt.Sprintf("%q: rule %q says %s, expected %s", t.Name, v.Rule, v.Effect, t.Expect)})
		}
	}
	return fields
}

// shown is an argument as its agent wrote it: text as it is, all else as JSON.
func shown(v any) string {
	if text, ok := v.(string); ok {
		return text
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return "" // what was decoded from JSON can be encoded
	}
	return string(raw)
}

var placeholder = regexp.MustCompile(`\{\{\s*args((?:\.[A-Za-z0-9_-]+)+)\s*\}\}`)

// maxShown bounds what of an argument a prompt's message quotes.
const maxShown = 200

// Message fills a rule's message with the call's arguments: {{args.version}}.
// Arguments are the agent's text, so they are quoted and short; the exact ones
// stand beside it in the prompt.
func Message(template string, args json.RawMessage) string {
	if template == "" {
		return ""
	}
	var object map[string]any
	dec := json.NewDecoder(bytes.NewReader(args))
	dec.UseNumber() // 1000000 is shown as it stands, not as 1e+06
	if err := dec.Decode(&object); err != nil {
		return template
	}
	return placeholder.ReplaceAllStringFunc(template, func(m string) string {
		path := strings.Split(placeholder.FindStringSubmatch(m)[1][1:], ".")
		var v any = object
		for _, key := range path {
			inner, ok := v.(map[string]any)
			if !ok {
				return `""`
			}
			v = inner[key]
		}
		if v == nil {
			return `""`
		}
		text := []rune(shown(v))
		if len(text) > maxShown {
			text = append(text[:maxShown], '…')
		}
		return fmt.Sprintf("%q", string(text))
	})
}
