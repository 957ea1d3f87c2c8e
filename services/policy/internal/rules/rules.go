package rules

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/ext"

	"github.com/holdfast-io/holdfast/events/policy"
)

// Limits of a policy. The cost limit is CEL's own unit: about one for each
// operation, with strings and lists by their size.
const (
	MaxRules      = 200
	MaxExpression = 4096
	CostLimit     = 100_000
)

// Call is what a rule can look at.
type Call struct {
	Tool string
	// Args is the call's canonical JSON object.
	Args json.RawMessage
	// Session has id, owner, labels and runtime; Runtime name and revision; User
	// the requester's id; Agent the run's and agent's ids.
	Session, Runtime, Agent, User map[string]any
	Isolation                     string
	Now                           time.Time
}

// Verdict is what a policy says of a call.
type Verdict struct {
	Effect policy.Effect
	Rule   string
	Reason string
	// Ask is set where Effect is ask.
	Ask policy.AskFor
}

// DefaultRule names the verdict that no rule gave.
const DefaultRule = "default"

// FieldError is one place of a policy that is wrong. Pointer is a JSON pointer
// into the policy.
type FieldError struct{ Pointer, Detail string }

// InvalidError lists everything that is wrong with a policy.
type InvalidError struct{ Fields []FieldError }

// Error counts and names the first.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("policy has %d errors, first at %s: %s", len(e.Fields), e.Fields[0].Pointer, e.Fields[0].Detail)
}

// Program is a compiled policy. It is safe for concurrent use.
type Program struct {
	spec  policy.Spec
	rules []cel.Program
}

var env = mustEnv()

func mustEnv() *cel.Env {
	object := cel.MapType(cel.StringType, cel.DynType)
	e, err := cel.NewEnv(
		cel.Variable("tool", cel.StringType),
		cel.Variable("args", object),
		cel.Variable("session", object),
		cel.Variable("runtime", object),
		cel.Variable("agent", object),
		cel.Variable("user", object),
		cel.Variable("isolation", cel.StringType),
		cel.Variable("now", cel.TimestampType),
		ext.Strings(), ext.Sets(), ext.Lists(),
	)
	if err != nil {
		panic(err) // the declarations above are constants
	}
	return e
}

// Compile checks a policy and makes a Program. The error is *InvalidError.
func Compile(spec policy.Spec) (*Program, error) {
	p := &Program{spec: spec}
	fields := checkShape(spec)
	for i, r := range spec.Rules {
		if len(r.When) > MaxExpression {
			continue // told by checkShape
		}
		prg, err := compileRule(r.When)
		if err != nil {
			fields = append(fields, FieldError{fmt.Sprintf("/rules/%d/when", i), err.Error()})
			continue
		}
		p.rules = append(p.rules, prg)
	}
	if len(fields) > 0 {
		return nil, &InvalidError{Fields: fields}
	}
	if fields = p.runTests(); len(fields) > 0 {
		return nil, &InvalidError{Fields: fields}
	}
	return p, nil
}

var errNotBool = errors.New("has to be true or false: its type is not bool")

// compiling serialises compilation: cel-go's checker fills in its catalog of names
// at the first unknown one, without a lock, while others copy it. Evaluation needs
// none of it.
var compiling sync.Mutex

func compileRule(expression string) (cel.Program, error) {
	compiling.Lock()
	defer compiling.Unlock()
	ast, issues := env.Compile(expression)
	if issues.Err() != nil {
		return nil, placed(issues.Errors())
	}
	if ast.OutputType() != cel.BoolType {
		return nil, errNotBool
	}
	return env.Program(ast, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(CostLimit))
}

// placed words what is wrong with an expression, each with its line and column, as
// in "1:9: undeclared reference to 'arg'".
func placed(issues []*cel.Error) error {
	all := make([]error, len(issues))
	for i, e := range issues {
		all[i] = fmt.Errorf("%d:%d: %s", e.Location.Line(), e.Location.Column()+1, e.Message)
	}
	return errors.Join(all...)
}

// Evaluate gives the verdict on a call. It is a pure function of the policy and
// the call.
func (p *Program) Evaluate(c Call) (Verdict, error) {
	var args map[string]any
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return Verdict{}, fmt.Errorf("arguments: %w", err)
	}
	activation := map[string]any{
		"tool": c.Tool, "args": args, "session": orEmpty(c.Session), "runtime": orEmpty(c.Runtime),
		"agent": orEmpty(c.Agent), "user": orEmpty(c.User), "isolation": c.Isolation, "now": c.Now,
	}
	for i, r := range p.spec.Rules {
		out, _, err := p.rules[i].Eval(activation)
		if err != nil {
			if r.Then == policy.Allow {
				continue
			}
			v := p.verdict(r)
			v.Reason = fmt.Sprintf("the rule could not be evaluated (%v), so it counts as matching", err)
			return v, nil
		}
		if out.Value() == true {
			return p.verdict(r), nil
		}
	}
	return p.verdict(policy.Rule{Name: DefaultRule, Then: p.spec.Default, Reason: "no rule matched"}), nil
}

func (p *Program) verdict(r policy.Rule) Verdict {
	v := Verdict{Effect: r.Then, Rule: r.Name, Reason: r.Reason}
	if r.Then == policy.Ask && r.Ask != nil {
		v.Ask = *r.Ask
	}
	if v.Ask.Deadline == 0 {
		v.Ask.Deadline = policy.DefaultDeadline
	}
	if v.Ask.OnDeadline == "" {
		v.Ask.OnDeadline = policy.Deny
	}
	if v.Ask.ExecuteWithin == 0 {
		v.Ask.ExecuteWithin = policy.DefaultExecuteWithin
	}
	return v
}

func orEmpty(m map[string]any) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return m
}
